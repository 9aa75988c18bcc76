"""Merges equal relations: a view read by two INSERTs is computed once, and a source is read once.

Relations are frozen data, so equal relations have equal rows. Random relations are the exception, and stay separate.
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
    """Merges equal relations."""
    known: dict[object, Relation] = {}

    def rule(relation: Relation) -> Relation:
        if _is_random(relation):
            return relation
        # Equal inputs are one object already, so a relation is identified by itself and the ids of its inputs.
        key = _key(relation)
        return known.setdefault(key, relation)

    return rewritten(sinks, rule)


def _is_random(relation: Relation) -> bool:
    """Whether a relation draws random values: each occurrence in the query must draw its own. The clock is not
    random."""
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
    """The expressions in an attribute of a relation: a condition, arguments, rows of VALUES."""
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
    """A value as a cache key: itself if hashable, otherwise its identity."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
