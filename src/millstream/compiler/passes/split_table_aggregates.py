"""Split aggregations of tables in two: partials where the rows are, panes and windows or groups behind the exchange.

It is what `split_windows` does for ready aggregates of streams. Here the planner has made sure that everything can be
done in columns, so there is no other way. What has no key is one group: it runs in one task.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.aggregation.pane_rows import partial_type
from millstream.compiler.passes.split_windows import parallelism_of
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Graph, Node, Operation, Partitioning
from millstream.graph.table_nodes import GroupAggregate, WindowAggregate
from millstream.plan.operations import FinalGroups, PartialGroups, TablePaneAggregate, TablePartialAggregate

__all__ = ["split_table_aggregates"]


def split_table_aggregates(graph: Graph) -> Graph:
    """Every aggregation of a table is one of partials, with a node that makes them before each of its inputs; nodes
    are numbered anew."""
    nodes: list[Node] = []
    number: dict[int, int] = {}  # of each node, in the new graph
    for node in graph.nodes:
        moved = replace(node, inputs=tuple(replace(edge, source=number[edge.source]) for edge in node.inputs))
        if isinstance(node.operation, WindowAggregate | GroupAggregate):
            partials = [
                _partial(moved, node.operation, edge, nodes, len(nodes) + at)
                for at, edge in enumerate(moved.inputs, start=1)
            ]
            nodes += partials
            moved = _final(moved, node.operation, [partial.id for partial in partials])
        number[node.id] = len(nodes) + 1
        nodes.append(replace(moved, id=number[node.id]))
    return replace(graph, nodes=tuple(nodes))


def _partial(node: Node, operation: WindowAggregate | GroupAggregate, edge: Edge, before: list[Node], id: int) -> Node:
    return Node(
        id,
        _partial_operation(operation),
        f"Local{node.name}",
        inputs=(replace(edge, partitioning=Partitioning.UNSPECIFIED, key_selector=None, key_type=operation.key_type),),
        output_type=partial_type(operation.measures, operation.key_type),
        parallelism=parallelism_of(before[edge.source - 1]),
        site=node.site,
    )


def _partial_operation(operation: WindowAggregate | GroupAggregate) -> Operation:
    if isinstance(operation, GroupAggregate):
        return PartialGroups(operation.keys, operation.measures, operation.is_signed)
    windows = operation.windows.attached() if operation.is_attached else operation.windows
    return TablePartialAggregate(operation.measures, windows, operation.keys, operation.zone)


def _final(node: Node, operation: WindowAggregate | GroupAggregate, partials: list[int]) -> Node:
    edges = tuple(
        Edge(partial, Partitioning.HASH, key_selector=FieldKey(0, 0), key_type=operation.key_type)
        for partial in partials
    )
    parallelism = node.parallelism if operation.keys else 1
    return replace(node, operation=_final_operation(operation), inputs=edges, parallelism=parallelism)


def _final_operation(operation: WindowAggregate | GroupAggregate) -> Operation:
    keys = len(operation.keys)
    if isinstance(operation, GroupAggregate):
        return FinalGroups(keys, operation.measures, operation.is_signed, operation.ttl_ms)
    return TablePaneAggregate(
        operation.measures,
        operation.windows.attached() if operation.is_attached else operation.windows,
        columns=operation.columns,
        keys=keys,
        zone=operation.zone,
        attached=operation.windows if operation.is_attached else None,
    )
