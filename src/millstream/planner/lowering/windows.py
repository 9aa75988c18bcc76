"""Lowers windows: aggregations on panes, and window functions without aggregation.

A query's windows use the rows' event time, which batches carry as timestamps, or processing time. Windows over
TIMESTAMP_LTZ or processing time are aligned to local time in the session's zone.
"""

from __future__ import annotations

from millstream.errors import LATER, NotYetError
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import LocalZonedTimestampType
from millstream.graph import table_nodes
from millstream.graph.table_nodes import WindowColumn
from millstream.planner.lowering.aggregates import bound_aggregates, key_type_of
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.lowering.user_aggregates import window_aggregates
from millstream.planner.relations import (
    Relation,
    TimeKind,
    WindowAggregate,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.traits.constants import constant_columns
from millstream.state.windows.local_time import arrow_zone
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["lower_window_aggregate", "lower_window_assign", "panes_of"]

_PROPERTIES = {
    WindowProperty.START: "start",
    WindowProperty.END: "end",
    WindowProperty.TIME: "time",
    WindowProperty.PROCTIME: "proctime",
}


def panes_of(window: WindowShape) -> PaneWindows:
    """The pane layout of a window shape.

    >>> panes_of(WindowShape(WindowKind.CUMULATE, 0, 60_000, 10_000)).pane_ms
    10000
    """
    is_event_time = window.time_kind is TimeKind.ROWTIME
    if window.kind is WindowKind.TUMBLE:
        return PaneWindows(window.size_ms, window.size_ms, window.offset_ms, None, is_event_time)
    if window.kind is WindowKind.SESSION or window.slide_ms is None:
        raise NotYetError.of(f"windows of {window.kind.value}", LATER)
    if window.kind is WindowKind.HOP:
        return PaneWindows(window.size_ms, window.slide_ms, window.offset_ms, None, is_event_time)
    return PaneWindows(window.size_ms, window.size_ms, window.offset_ms, window.slide_ms, is_event_time)


def lower_window_assign(relation: WindowAssign, context: Lowering) -> Lowered:
    """Lowers a window function without an aggregation."""
    rows = context.lowered(relation.input)
    window = relation.window
    added = relation.schema.fields[-3:]
    row_type = named_row(
        [*rows.row_type.names, *(field.name for field in added)], [*rows.types, *(field.type for field in added)]
    )
    zone = _zone(window, relation.input, context)
    operation = table_nodes.WindowRows(panes_of(window), window.time, zone)
    return context.added(operation, "WindowTableFunction", rows.nodes, row_type)


def lower_window_aggregate(relation: WindowAggregate, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    columns = (
        *(WindowColumn("key", number) for number in range(len(relation.groups))),
        *(WindowColumn("measure", number) for number in range(len(relation.calls))),
        *(WindowColumn(_PROPERTIES[each]) for each in relation.properties),
    )
    row_type = named_row(relation.schema.names, relation.schema.types)
    if relation.window.kind is WindowKind.SESSION and relation.window.attached is None:
        return _sessions(relation, rows, columns, row_type, context)
    panes = panes_of(relation.window)
    measures = bound_aggregates(relation.calls, rows.types, constant_columns(relation.input))
    operation = table_nodes.WindowAggregate(
        relation.groups,
        key_type_of(relation.groups, rows.row_type),
        window_aggregates(measures, merges=not panes.is_tumbling),
        panes,
        columns,
        _zone(relation.window, relation.input, context),
        relation.window.attached is not None,
    )
    if not columns:  # no column is read, but a batch needs one to have a row count
        raise NotYetError.of("a window aggregation without columns", LATER)
    lowered = context.added(operation, "WindowAggregate", rows.nodes, row_type, **context.uid_for(relation))
    if not relation.groups and panes.size_ms == 1:  # rows sorted by time: they stay in their task
        context.let_change(lowered.nodes[0])
    return lowered


def _sessions(
    relation: WindowAggregate, rows: Lowered, columns: tuple[WindowColumn, ...], row_type: RowType, context: Lowering
) -> Lowered:
    window = relation.window
    measures = bound_aggregates(relation.calls, rows.types, constant_columns(relation.input))
    operation = table_nodes.SessionAggregate(
        relation.groups,
        key_type_of(relation.groups, rows.row_type),
        window_aggregates(measures, merges=True),
        window.size_ms,
        window.time_kind is TimeKind.ROWTIME,
        columns,
        _zone(window, relation.input, context),
    )
    return context.added(operation, "SessionAggregate", rows.nodes, row_type, **context.uid_for(relation))


def _zone(window: WindowShape, input_: Relation, context: Lowering) -> str:
    """The zone to whose local time the windows are aligned. TIMESTAMP is already local time."""
    if window.time_kind is TimeKind.PROCTIME:
        return arrow_zone(context.session.zone)
    if window.attached is not None:
        first = _first_window(input_)
        return "UTC" if first is None else _zone(first.window, first.input, context)
    is_moment = isinstance(input_.schema.types[window.time], LocalZonedTimestampType)
    return arrow_zone(context.session.zone) if is_moment else "UTC"


def _first_window(relation: Relation) -> WindowAssign | WindowAggregate | None:
    """The relation that assigned the rows to their windows."""
    if isinstance(relation, WindowAssign | WindowAggregate):
        return relation
    return _first_window(relation.inputs[0]) if relation.inputs else None
