"""Splits table aggregations in two: pre-aggregation in the upstream tasks, and groups or windows downstream of the
exchange.

A Top-N over an append-only table is also split: each task first drops rows outside its own first N.

`split_windows` does the same for built-in aggregates of streams. Here the planner has ensured that everything can run
vectorised, so every aggregation is split. An aggregation without a key is one group, and runs in one task.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.aggregation.distinct_arguments import partial_measures
from millstream.aggregation.pane_rows import partial_session_type, partial_type
from millstream.common.typeinfo import TypeInformation
from millstream.compiler.passes.split_windows import parallelism_of
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Graph, Node, Operation, Partitioning
from millstream.graph.table_nodes import GroupAggregate, RankRows, SessionAggregate, WindowAggregate
from millstream.plan.operations import (
    FinalGroups,
    FinalSessions,
    PartialGroups,
    PartialRank,
    PartialSessions,
    TablePaneAggregate,
    TablePartialAggregate,
)

__all__ = ["split_table_aggregates"]

Aggregation = WindowAggregate | GroupAggregate | SessionAggregate


def split_table_aggregates(graph: Graph) -> Graph:
    """Splits every table aggregation, with a pre-aggregating node before each of its inputs; renumbers the nodes."""
    nodes: list[Node] = []
    number: dict[int, int] = {}  # node numbers in the new graph
    for node in graph.nodes:
        moved = replace(node, inputs=tuple(replace(edge, source=number[edge.source]) for edge in node.inputs))
        if isinstance(node.operation, WindowAggregate | GroupAggregate | SessionAggregate):
            partials = [
                _partial(moved, node.operation, edge, nodes, len(nodes) + at)
                for at, edge in enumerate(moved.inputs, start=1)
            ]
            nodes += partials
            moved = _final(moved, node.operation, [partial.id for partial in partials])
        if isinstance(node.operation, RankRows) and not node.operation.is_changing:
            ranks = [
                _partial_rank(moved, node.operation, edge, nodes, len(nodes) + at)
                for at, edge in enumerate(moved.inputs, start=1)
            ]
            edges = [replace(edge, source=rank.id) for edge, rank in zip(moved.inputs, ranks, strict=True)]
            nodes += ranks
            moved = replace(moved, inputs=tuple(edges))
        number[node.id] = len(nodes) + 1
        nodes.append(replace(moved, id=number[node.id]))
    return replace(graph, nodes=tuple(nodes))


def _partial(node: Node, operation: Aggregation, edge: Edge, before: list[Node], id: int) -> Node:
    return Node(
        id,
        _partial_operation(operation),
        f"Local{node.name}",
        inputs=(replace(edge, partitioning=Partitioning.UNSPECIFIED, key_selector=None, key_type=operation.key_type),),
        output_type=_partial_type(operation),
        parallelism=parallelism_of(before[edge.source - 1]),
        site=node.site,
    )


def _partial_rank(node: Node, operation: RankRows, edge: Edge, before: list[Node], id: int) -> Node:
    return Node(
        id,
        PartialRank(operation),
        f"Local{node.name}",
        inputs=(replace(edge, partitioning=Partitioning.UNSPECIFIED, key_selector=None),),
        output_type=before[edge.source - 1].output_type,
        parallelism=parallelism_of(before[edge.source - 1]),
        site=node.site,
    )


def _partial_type(operation: Aggregation) -> TypeInformation:
    if isinstance(operation, SessionAggregate):
        return partial_session_type(operation.measures, operation.key_type)
    measures = operation.measures
    if isinstance(operation, GroupAggregate):
        measures = partial_measures(measures, operation.ttl_ms)
    return partial_type(measures, operation.key_type)


def _partial_operation(operation: Aggregation) -> Operation:
    if isinstance(operation, GroupAggregate):
        measures = partial_measures(operation.measures, operation.ttl_ms)
        return PartialGroups(operation.keys, measures, operation.is_signed)
    if isinstance(operation, SessionAggregate):
        return PartialSessions(operation.keys, operation.measures, operation.gap_ms, operation.is_event_time)
    windows = operation.windows.attached() if operation.is_attached else operation.windows
    return TablePartialAggregate(operation.measures, windows, operation.keys, operation.zone)


def _final(node: Node, operation: Aggregation, partials: list[int]) -> Node:
    edges = tuple(
        Edge(partial, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=operation.key_type)
        for partial in partials
    )
    parallelism = node.parallelism if operation.keys else 1
    return replace(node, operation=_final_operation(operation), inputs=edges, parallelism=parallelism)


def _final_operation(operation: Aggregation) -> Operation:
    keys = len(operation.keys)
    if isinstance(operation, GroupAggregate):
        return FinalGroups(keys, operation.measures, operation.is_signed, operation.ttl_ms)
    if isinstance(operation, SessionAggregate):
        time = operation.gap_ms, operation.is_event_time
        return FinalSessions(keys, operation.measures, *time, operation.columns, operation.zone)
    return TablePaneAggregate(
        operation.measures,
        operation.windows.attached() if operation.is_attached else operation.windows,
        columns=operation.columns,
        keys=keys,
        zone=operation.zone,
        attached=operation.windows if operation.is_attached else None,
    )
