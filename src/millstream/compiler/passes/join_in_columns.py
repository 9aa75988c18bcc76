"""Vectorises the join of two streams if the results are selected fields of both records.

Every interval join qualifies. A window join qualifies with fixed event-time windows without gaps that fire at their
end; others emit the same rows one pair at a time, which is slower; a warning reports this once.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.compiler.stream_types import typed_input
from millstream.graph.nodes import CoGroupWindow, Graph, IntervalJoin, Node
from millstream.graph.notices import log_once
from millstream.graph.window_traits import fixed_windows, is_plain_trigger
from millstream.plan.operations import ProjectedIntervalJoin, WindowJoin
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["join_in_columns"]


def join_in_columns(graph: Graph) -> Graph:
    """Turns every eligible join of selected fields into a ProjectedIntervalJoin or a WindowJoin."""

    def joined(node: Node) -> Node:
        operation = node.operation
        if isinstance(operation, IntervalJoin) and operation.fields is not None:
            return replace(node, operation=ProjectedIntervalJoin(**vars(operation)))
        if isinstance(operation, CoGroupWindow) and operation.fields is not None:
            windows = _windows_in_columns(node, operation)
            if windows is not None:
                types = typed_input(graph, node, 1), typed_input(graph, node, 2)
                fields, tags, late = operation.fields, operation.tags, operation.late_tags
                in_columns = WindowJoin(None, tags, types=types, windows=windows, fields=fields, late_tags=late)
                return replace(node, operation=in_columns)
        return node

    return replace(graph, nodes=tuple(map(joined, graph.nodes)))


def _windows_in_columns(node: Node, operation: CoGroupWindow) -> PaneWindows | None:
    """The windows as panes. None, with a warning about the cost, if a setting needs every record."""
    windows = fixed_windows(operation.assigner, 0)
    obstacles = [
        reason
        for reason, applies in (
            (f"windows of {type(operation.assigner).__name__}", not _are_fixed(windows)),
            ("an evictor", operation.evictor is not None),
            ("a trigger of its own", operation.has_own_trigger and not is_plain_trigger(operation.trigger, True)),
            ("allowed lateness", operation.allowed_lateness_ms > 0),
        )
        if applies
    ]
    if not obstacles:
        return windows
    log_once(
        f"window join, {obstacles}",
        f"the join at {node.site} has {' and '.join(obstacles)}: it runs a pair at a time and not in columns, which is "
        "slower",
    )
    return None


def _are_fixed(windows: PaneWindows | None) -> bool:
    """Whether windows are fixed in event time, without gaps between them."""
    return windows is not None and windows.is_event_time and not windows.has_gaps
