"""Rejects event-time windows over records that cannot have timestamps.

A `WatermarkStrategy` with a timestamp assigner, at the source or later, assigns timestamps; results of windows and
timers have timestamps as well. If none of these is upstream of a window, its first record would fail the job, so this
error is raised before the job starts. If only some paths have one, records are checked at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millstream.errors import ProgramError
from millstream.graph.nodes import (
    AssignTimestamps,
    Graph,
    IntervalJoin,
    KeyedProcess,
    LoopHead,
    LoopTail,
    Node,
    Read,
    Window,
)
from millstream.graph.window_traits import EndlessAssigner
from millstream.plan.operations import PaneAggregate, PartialAggregate, WindowJoin

__all__ = ["check_event_time"]


def check_event_time(graph: Graph) -> Graph:
    """Returns the graph unchanged, or raises ProgramError at the window."""
    for node in graph.nodes:
        inputs = sorted({edge.input for edge in node.inputs}) if _needs_timestamps(node) else []
        if inputs:
            _check_ends_of_time(graph, node)
        bare = next((number for number in inputs if not _has_timestamps(graph, node, number)), None)
        if bare is not None:
            where = "it" if len(inputs) == 1 else f"its {('first', 'second')[bare - 1]} input"
            what, instead = "has windows of event time", ", or use windows of processing time"
            if isinstance(node.operation, IntervalJoin):
                what, instead = "joins by event time", ""
            raise ProgramError(
                f"'{node.name}' {what}, and no operator before {where} assigns timestamps. Call "
                "assign_timestamps_and_watermarks() before key_by() with a strategy that has "
                f"with_timestamp_assigner(...){instead}",
                at=str(node.site),
            )
    return graph


def _check_ends_of_time(graph: Graph, node: Node) -> None:
    """Rejects results of endless windows as input: their timestamp is the end of time, which no window contains."""
    for source in _before(graph, node, _has_own_times):
        if isinstance(source.operation, Window) and isinstance(source.operation.assigner, EndlessAssigner):
            raise ProgramError(
                f"'{node.name}' uses event time, and results of '{source.name}' ({source.site}) have no "
                "timestamp, because its windows never end. Call assign_timestamps_and_watermarks() between the two",
                at=str(node.site),
            )


def _has_own_times(node: Node) -> bool:
    """Whether an operator's output has other timestamps than its input."""
    if isinstance(node.operation, AssignTimestamps):
        return node.operation.watermarks.timestamp_assigner is not None
    return isinstance(node.operation, (Window, PaneAggregate, WindowJoin))


def _needs_timestamps(node: Node) -> bool:
    operation = node.operation
    if isinstance(operation, (IntervalJoin, WindowJoin)):
        return True
    if isinstance(operation, Window):
        return bool(operation.assigner.is_event_time())
    return isinstance(operation, PartialAggregate) and operation.windows.is_event_time


def _has_timestamps(graph: Graph, node: Node, number: int) -> bool:
    """Whether an upstream node on this input may assign timestamps."""
    return any(_stamps(source) for source in _before(graph, node, _stamps, number))


def _before(graph: Graph, node: Node, is_last: Callable[[Node], bool], number: int | None = None) -> Iterator[Node]:
    """The upstream nodes of `node`, on one input or all, up to and including nodes that satisfy `is_last`."""
    pending, seen = [edge.source for edge in node.inputs if number in (None, edge.input)], set()
    while pending:
        source = graph.node(pending.pop())
        if source.id not in seen:
            seen.add(source.id)
            yield source
            if is_last(source):
                continue
            pending += [edge.source for edge in source.inputs]
            if isinstance(source.operation, LoopHead):
                pending += [tail.id for tail in graph.nodes if _closes(tail, source.operation)]


def _closes(node: Node, head: LoopHead) -> bool:
    return isinstance(node.operation, LoopTail) and node.operation.loop == head.loop


def _stamps(node: Node) -> bool:
    operation = node.operation
    if isinstance(operation, (Window, PaneAggregate, KeyedProcess, IntervalJoin, WindowJoin)):
        return True  # results carry the timestamp of the window or timer
    if isinstance(operation, Read) and operation.source.carries_timestamps:
        return True
    if isinstance(operation, (Read, AssignTimestamps)):
        strategy = operation.watermarks
        return strategy is not None and strategy.timestamp_assigner is not None
    return False
