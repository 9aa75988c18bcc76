"""Refuse windows of event time over records that cannot have timestamps.

Records get timestamps from a `WatermarkStrategy` with a timestamp assigner, at the source or later; results of
windows and of timers have some too. Where none of these stands anywhere before a window, its first record would fail
the job: that is said before the job starts. Where one stands on some of the ways, only a running job can tell.
"""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.graph.nodes import (
    AssignTimestamps,
    Graph,
    KeyedProcess,
    Node,
    PaneAggregate,
    PartialAggregate,
    Read,
    Window,
)

__all__ = ["check_event_time"]


def check_event_time(graph: Graph) -> Graph:
    """The graph unchanged, or a ProgramError at the window."""
    for node in graph.nodes:
        if _needs_timestamps(node) and not _has_timestamps(graph, node):
            raise ProgramError(
                f"'{node.name}' has windows of event time, and nothing before it gives records timestamps. Call "
                "assign_timestamps_and_watermarks() before the windows with a strategy that has "
                "with_timestamp_assigner(...), or use windows of processing time",
                at=str(node.site),
            )
    return graph


def _needs_timestamps(node: Node) -> bool:
    operation = node.operation
    if isinstance(operation, Window):
        return bool(operation.assigner.is_event_time())
    return isinstance(operation, PartialAggregate) and operation.windows.is_event_time


def _has_timestamps(graph: Graph, node: Node) -> bool:
    """Whether anything the node reads from may give records timestamps."""
    pending, seen = [edge.source for edge in node.inputs], set()
    while pending:
        source = graph.node(pending.pop())
        if source.id not in seen:
            seen.add(source.id)
            if _stamps(source):
                return True
            pending += [edge.source for edge in source.inputs]
    return False


def _stamps(node: Node) -> bool:
    operation = node.operation
    if isinstance(operation, (Window, PaneAggregate, KeyedProcess)):
        return True  # results carry the time of the window or timer
    if isinstance(operation, (Read, AssignTimestamps)):
        strategy = operation.watermarks
        return strategy is not None and strategy.timestamp_assigner is not None
    return False
