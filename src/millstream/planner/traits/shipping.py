"""How rows reach a relation from its inputs, in Flink's terms: FORWARD within a task, HASH to the task that owns the
key, GLOBAL to a single task."""

from __future__ import annotations

from millstream.planner.lowering.joins import join_keys
from millstream.planner.relations import Aggregate, Join, Over, Rank, Relation, WindowAggregate

__all__ = ["ship_strategy"]


def ship_strategy(relation: Relation) -> str:
    """The ship strategy of the edges into a relation."""
    if isinstance(relation, Aggregate | WindowAggregate):
        has_key = bool(relation.groups)
    elif isinstance(relation, Rank | Over):
        has_key = bool(relation.partition)
    elif isinstance(relation, Join):
        has_key = bool(join_keys(relation).left)
    else:
        return "FORWARD"
    return "HASH" if has_key else "GLOBAL"
