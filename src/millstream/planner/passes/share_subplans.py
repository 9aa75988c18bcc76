"""Equal relations become one object: a view that two INSERTs read is computed once, and a source read once.

Relations are frozen data, so equal means: the same rows. What is not deterministic is computed once, too, as in Flink.
"""

from __future__ import annotations

from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import Relation, Scan, Sink
from millstream.planner.session import PlannerSession

__all__ = ["share_subplans"]


def share_subplans(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Make equal relations one."""
    known: dict[object, Relation] = {}

    def rule(relation: Relation) -> Relation:
        # Inputs are one object already where they are equal, so a relation is known by itself and their ids.
        key = _key(relation)
        return known.setdefault(key, relation)

    return rewritten(sinks, rule)


def _key(relation: Relation) -> object:
    if isinstance(relation, Sink):
        return id(relation)
    own = []
    for name, value in vars(relation).items():
        if name in ("input", "left", "right", "branches", "site", "uid"):
            continue
        if isinstance(relation, Scan) and name == "table":
            own.append((name, _hashed(value)))
        else:
            own.append((name, _hashed(value)))
    return (type(relation), tuple(id(each) for each in relation.inputs), tuple(own))


def _hashed(value: object) -> object:
    """A value as a key: itself where it can be one, else its identity."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
