"""Splits windows of built-in aggregates in two, if both halves can run vectorised.

In the upstream task a partial aggregate accumulates records by key and pane; downstream of the exchange, panes are
merged into windows. This requires fixed windows that fire only at their end, and columnar records, keys and
accumulators. Other windows run a record at a time, with the same results. If a setting of the program needs every
record, a warning reports once that this is slower.

The stateful half retains the node's name, uid and settings. The other half runs in the upstream tasks, whatever their
parallelism.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.aggregation.groups import is_flat
from millstream.aggregation.kernels import runs_in_columns
from millstream.aggregation.pane_rows import partial_type
from millstream.compiler.stream_types import typed_input
from millstream.graph.field_key import FieldKey, OneKey
from millstream.graph.nodes import Edge, Graph, Node, Partitioning, Read, ReadyAggregates, Window
from millstream.graph.notices import log_once
from millstream.graph.window_traits import fixed_windows, is_plain_trigger
from millstream.plan.operations import PaneAggregate, PartialAggregate
from millstream.records.columns import arrow_type
from millstream.state.keys.key_columns import is_stored_as_is
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["parallelism_of", "split_windows"]


def split_windows(graph: Graph) -> Graph:
    """Turns every eligible window into a PaneAggregate with a PartialAggregate before each of its inputs; renumbers the
    nodes."""
    nodes: list[Node] = []
    number: dict[int, int] = {}  # node numbers in the new graph
    for node in graph.nodes:
        inputs = tuple(replace(edge, source=number[edge.source]) for edge in node.inputs)
        moved, windows = replace(node, inputs=inputs), _splittable(graph, node)
        if windows is not None:
            assert isinstance(node.operation, Window) and node.operation.ready is not None
            nodes += _partials(moved, windows, nodes)
            moved = _final(moved, node.operation.ready, windows, len(nodes))
        number[node.id] = len(nodes) + 1
        nodes.append(replace(moved, id=number[node.id]))
    return replace(graph, nodes=tuple(nodes))


def _splittable(graph: Graph, node: Node) -> PaneWindows | None:
    """The windows of a node that can be split."""
    operation = node.operation
    if not isinstance(operation, Window) or operation.ready is None:
        return None
    if operation.ready.row_type is None or operation.ready.row_type != node.output_type:
        return None  # results are not columnar, or have another type
    windows = fixed_windows(operation.assigner, operation.allowed_lateness_ms)
    if windows is None or not _has_columns(graph, node, operation.ready) or not _fires_by_itself(node, operation):
        return None
    return windows


def _has_columns(graph: Graph, node: Node, ready: ReadyAggregates) -> bool:
    """Whether records, key and aggregates are all columnar."""
    key_type = node.inputs[0].key_type
    if typed_input(graph, node) is None or key_type is None or not is_stored_as_is(key_type):
        return False
    return is_flat(arrow_type(key_type)) and all(map(runs_in_columns, ready.measures))


def _fires_by_itself(node: Node, operation: Window) -> bool:
    """Whether no setting needs every record; warns about the cost otherwise."""
    obstacles = [
        reason
        for reason, applies in (
            ("an evictor", operation.evictor is not None),
            ("a trigger of its own", not is_plain_trigger(operation.trigger, operation.assigner.is_event_time())),
            ("late records in a side output", operation.late_tag is not None),
        )
        if applies
    ]
    if obstacles:
        log_once(
            f"aggregates, {obstacles}",
            f"the windows at {node.site} have {' and '.join(obstacles)}: their aggregates run a record at a time, not "
            "in columns, which is slower",
        )
    return not obstacles


def _partials(node: Node, windows: PaneWindows, before: list[Node]) -> list[Node]:
    """A partial aggregate for each input of the node, in the upstream task."""
    operation, key_type = node.operation, node.inputs[0].key_type
    assert isinstance(operation, Window) and operation.ready is not None and key_type is not None
    measures = operation.ready.measures
    return [
        Node(
            len(before) + at,
            PartialAggregate(measures, windows),
            f"Partial {type(operation.assigner).__name__}",
            inputs=(_local(edge),),
            output_type=partial_type(measures, key_type),
            parallelism=parallelism_of(before[edge.source - 1]),
            site=node.site,
        )
        for at, edge in enumerate(node.inputs, start=1)
    ]


def _final(node: Node, ready: ReadyAggregates, windows: PaneWindows, last_partial: int) -> Node:
    """The stateful half: the node itself, which reads the partial aggregates; `last_partial` is the number of the last
    of these."""
    edge = node.inputs[0]
    # A stream that was declared as partitioned by its key needs no exchange.
    partitioning = Partitioning.FORWARD if edge.partitioning is Partitioning.FORWARD else Partitioning.HASH
    first_partial = last_partial - len(node.inputs) + 1
    edges = tuple(
        Edge(partial, partitioning, key_selector=FieldKey(0, 0), key_type=edge.key_type, site=edge.site)
        for partial in range(first_partial, last_partial + 1)
    )
    return replace(
        node, operation=PaneAggregate(ready.measures, windows, ready.has_key, ready.has_bounds), inputs=edges
    )


def _local(edge: Edge) -> Edge:
    """The edge into a partial aggregate: records stay in their task regardless of their key. A single key for all
    records needs no key selector."""
    selector = None if isinstance(edge.key_selector, OneKey) else edge.key_selector
    stays = edge.partitioning is Partitioning.FORWARD
    partitioning = Partitioning.FORWARD if stays else Partitioning.UNSPECIFIED
    return Edge(edge.source, partitioning, selector, edge.key_type, tag=edge.tag, site=edge.site)


def parallelism_of(node: Node) -> int | None:
    """The upstream operator's parallelism, so that a partial aggregate runs in its tasks."""
    single = isinstance(node.operation, Read) and node.operation.source.single
    return 1 if single else node.parallelism
