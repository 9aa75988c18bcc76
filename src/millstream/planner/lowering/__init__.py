"""Lowering: turns a plan of relations into graph nodes, of which every program consists.

One table maps each relation to its rule; relations without a rule are rejected by name. Planner passes make all other
decisions: a rule only chooses the operation that implements a relation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.graph.builder import GraphBuilder
from millstream.graph.nodes import Node, Write
from millstream.planner import relations, time_joins
from millstream.planner.changing_relations import FromChangelog, LookupJoin, Normalise, ToChangelog
from millstream.planner.entries import TableEntry
from millstream.planner.lowering.calcs import (
    lower_correlate,
    lower_filter,
    lower_limit,
    lower_project,
    lower_union,
    lower_unnest,
    lower_values,
)
from millstream.planner.lowering.changelogs import lower_from_changelog, lower_to_changelog
from millstream.planner.lowering.context import Lowering, Rule
from millstream.planner.lowering.endpoints import CollectTarget, SourceOrigin, StreamOrigin, StreamTarget
from millstream.planner.lowering.groups import lower_aggregate
from millstream.planner.lowering.joins import lower_join
from millstream.planner.lowering.lookups import lower_lookup
from millstream.planner.lowering.normalising import lower_normalise
from millstream.planner.lowering.overs import lower_over
from millstream.planner.lowering.ranks import lower_rank
from millstream.planner.lowering.scans import lower_scan, lower_watermark
from millstream.planner.lowering.sinks import lower_sink
from millstream.planner.lowering.time_joins import (
    lower_interval_join,
    lower_stamp,
    lower_temporal_join,
    lower_window_join,
)
from millstream.planner.lowering.windows import lower_window_aggregate, lower_window_assign
from millstream.planner.relations import Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.window_ranks import WindowRank

__all__ = ["CollectTarget", "SourceOrigin", "StreamOrigin", "StreamTarget", "lower"]

_RULES: Mapping[type[Relation], Rule] = {
    relations.Scan: lower_scan,
    relations.WatermarkAssign: lower_watermark,
    relations.Values: lower_values,
    relations.Project: lower_project,
    relations.Filter: lower_filter,
    relations.Correlate: lower_correlate,
    relations.Unnest: lower_unnest,
    relations.SetOperation: lower_union,
    relations.Limit: lower_limit,
    relations.Aggregate: lower_aggregate,
    relations.Join: lower_join,
    time_joins.IntervalJoin: lower_interval_join,
    time_joins.WindowJoin: lower_window_join,
    time_joins.TemporalJoin: lower_temporal_join,
    time_joins.Stamp: lower_stamp,
    relations.Over: lower_over,
    relations.Rank: lower_rank,
    WindowRank: lower_rank,
    Normalise: lower_normalise,
    LookupJoin: lower_lookup,
    ToChangelog: lower_to_changelog,
    FromChangelog: lower_from_changelog,
    relations.WindowAssign: lower_window_assign,
    relations.WindowAggregate: lower_window_aggregate,
}


def lower(sinks: Sequence[Sink], builder: GraphBuilder, session: PlannerSession) -> tuple[Node, ...]:
    """Adds the nodes of optimised sinks to a program's graph, and returns the last node of each sink."""
    context = Lowering(builder, session, _RULES)
    return _named(sinks, tuple(lower_sink(sink, context) for sink in sinks), builder)


def _named(sinks: Sequence[Sink], nodes: tuple[Node, ...], builder: GraphBuilder) -> tuple[Node, ...]:
    """The nodes, with sink names. Tables that share a name across databases or catalogs are named by their path."""
    paths: dict[str, set[tuple[str, ...]]] = {}
    for sink, node in zip(sinks, nodes, strict=True):
        if isinstance(sink.target, TableEntry) and isinstance(node.operation, Write) and node.uid is not None:
            paths.setdefault(node.name, set()).add(sink.target.path)
    for sink, node in zip(sinks, nodes, strict=True):
        alike = paths.get(node.name, ())
        if len(alike) > 1 and isinstance(sink.target, TableEntry):
            parts = 2 if len({path[-2:] for path in alike}) == len(alike) else 3
            builder.amend(node.id, name=f"Sink: {'.'.join(sink.target.path[-parts:])}")
    return tuple(builder.nodes[node.id] for node in nodes)
