"""Equal relations become one object: a view that two INSERTs read is computed once, and a source read once.

Relations are frozen data, so equal means: the same rows; but what draws by chance is drawn for each that was written.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.expressions.row_expressions import Call, RowExpression, UserCall, walk
from millstream.expressions.user_functions import UserFunction
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import Relation, Sink
from millstream.planner.session import PlannerSession

__all__ = ["share_subplans"]

_RANDOM = frozenset({"RAND", "RAND_INTEGER", "UUID"})


def share_subplans(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Make equal relations one."""
    known: dict[object, Relation] = {}

    def rule(relation: Relation) -> Relation:
        if _is_random(relation):
            return relation
        # Inputs are one object already where they are equal, so a relation is known by itself and their ids.
        key = _key(relation)
        return known.setdefault(key, relation)

    return rewritten(sinks, rule)


def _is_random(relation: Relation) -> bool:
    """Whether it draws values by chance: each that was written draws its own. The clock is no chance."""
    for value in vars(relation).values():
        if isinstance(value, UserFunction) and not value.is_deterministic:
            return True
        for part in (part for whole in _expressions(value) for part in walk(whole)):
            if isinstance(part, Call) and part.function in _RANDOM:
                return True
            if isinstance(part, UserCall) and not part.function.is_deterministic:
                return True
    return False


def _expressions(value: object) -> Iterator[RowExpression]:
    """The expressions that an attribute of a relation is, or has in it: a condition, arguments, rows of VALUES."""
    if isinstance(value, RowExpression):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _expressions(each)


def _key(relation: Relation) -> object:
    if isinstance(relation, Sink):
        return id(relation)
    passed_over = ("input", "left", "right", "branches", "site", "uid")
    own = [(name, _hashed(value)) for name, value in vars(relation).items() if name not in passed_over]
    return (type(relation), tuple(id(each) for each in relation.inputs), tuple(own))


def _hashed(value: object) -> object:
    """A value as a key: itself where it can be one, else its identity."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
