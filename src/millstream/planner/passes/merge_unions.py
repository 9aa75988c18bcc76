"""UNION as UNION ALL without doubles: the distinct rows of all branches."""

from __future__ import annotations

from dataclasses import replace

from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import Aggregate, Relation, SetOperation, Sink
from millstream.planner.session import PlannerSession

__all__ = ["merge_unions"]


def merge_unions(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Make every UNION an aggregation over a UNION ALL."""
    return rewritten(sinks, _as_groups)


def _as_groups(relation: Relation) -> Relation:
    if not isinstance(relation, SetOperation) or relation.kind != "UNION" or relation.all:
        return relation
    rows = replace(relation, all=True)
    return Aggregate(relation.schema, rows, tuple(range(len(relation.schema))), (), site=relation.site)
