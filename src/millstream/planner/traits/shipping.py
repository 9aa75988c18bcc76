"""How rows come to a relation from what is below it, in Flink's words: FORWARD within their task, HASH by a key to the
task that owns it, GLOBAL to the one task there is."""

from __future__ import annotations

from millstream.planner.lowering.joins import join_keys
from millstream.planner.relations import Aggregate, Join, Over, Rank, Relation, WindowAggregate

__all__ = ["ship_strategy"]


def ship_strategy(relation: Relation) -> str:
    """The word for the edges into a relation."""
    if isinstance(relation, Aggregate | WindowAggregate):
        has_key = bool(relation.groups)
    elif isinstance(relation, Rank | Over):
        has_key = bool(relation.partition)
    elif isinstance(relation, Join):
        has_key = bool(join_keys(relation).left)
    else:
        return "FORWARD"
    return "HASH" if has_key else "GLOBAL"
