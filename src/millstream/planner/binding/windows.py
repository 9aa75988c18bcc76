"""Time windows: the functions TUMBLE, HOP, CUMULATE and SESSION in FROM, and the legacy ones in GROUP BY.

A window needs a time attribute: a column with a watermark, or PROCTIME(). Sizes are constant, and checked here.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from millstream.expressions.row_expressions import Column, Literal, RowExpression
from millstream.expressions.types import LocalZonedTimestampType, TimestampType, YearMonthIntervalType
from millstream.planner.binding.expressions import ExpressionBinder
from millstream.planner.binding.scope import Scope
from millstream.planner.relations import (
    Field,
    Relation,
    Schema,
    TimeKind,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.session import PlannerSession
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = [
    "ALIAS_PROPERTIES",
    "GROUP_FUNCTIONS",
    "PROPERTY_FUNCTIONS",
    "WINDOW_FUNCTIONS",
    "LegacyWindow",
    "WindowArguments",
    "assign_window",
    "check_multiple",
    "group_window",
    "is_group_window",
]

WINDOW_FUNCTIONS = {kind.value: kind for kind in WindowKind}
"""The window functions of FROM."""
GROUP_FUNCTIONS = {"TUMBLE": WindowKind.TUMBLE, "HOP": WindowKind.HOP, "SESSION": WindowKind.SESSION}
"""The legacy ones of GROUP BY."""
PROPERTY_FUNCTIONS = {
    f"{kind}_{word}": (kind, value)
    for kind in GROUP_FUNCTIONS
    for word, value in (
        ("START", WindowProperty.START),
        ("END", WindowProperty.END),
        ("ROWTIME", WindowProperty.TIME),
        ("PROCTIME", WindowProperty.PROCTIME),
    )
}
_PARAMETERS = {
    WindowKind.TUMBLE: ("SIZE", "OFFSET"),
    WindowKind.HOP: ("SLIDE", "SIZE", "OFFSET"),
    WindowKind.CUMULATE: ("STEP", "SIZE", "OFFSET"),
    WindowKind.SESSION: ("GAP",),
}
ALIAS_PROPERTIES = {
    "WINDOW_START": WindowProperty.START,
    "WINDOW_END": WindowProperty.END,
    "WINDOW_ROWTIME": WindowProperty.TIME,
    "WINDOW_PROCTIME": WindowProperty.PROCTIME,
}
"""The window properties of the Table API: `col("w").start` and similar."""


@dataclass(frozen=True)
class LegacyWindow:
    """The window of GROUP BY TUMBLE(…), with its syntax."""

    shape: WindowShape
    call: syntax.Call | None
    alias: str | None = None


@dataclass(frozen=True)
class WindowArguments:
    """The arguments of a window function in FROM, by name: `data` is the table, `time` its DESCRIPTOR."""

    data: syntax.TableArgument
    time: syntax.Descriptor
    sizes: dict[str, syntax.Expression]


def is_group_window(group: syntax.Expression) -> TypeGuard[syntax.Call]:
    """Whether a group is a window: TUMBLE(ts, …)."""
    if not isinstance(group, syntax.Call) or group.path:
        return False
    return group.name.upper() in GROUP_FUNCTIONS and bool(group.arguments)


def window_arguments(call: syntax.Call, kind: WindowKind) -> WindowArguments:
    """The arguments of a window function, by position or by name."""
    names = ["DATA", "TIMECOL", *_PARAMETERS[kind]]
    if any(isinstance(each, syntax.Argument) for each in call.arguments):
        by_name: dict[str, syntax.Expression] = {}
        for argument in call.arguments:
            if not isinstance(argument, syntax.Argument):
                raise problem(f"{kind.value}: pass arguments either by position or by name, not both", argument)
            if argument.name.upper() not in names:
                words = ", ".join(names)
                raise problem(f"{kind.value} has no argument '{argument.name}': it has {words}", argument)
            by_name[argument.name.upper()] = argument.value
    else:
        if len(call.arguments) > len(names):
            raise problem(f"{kind.value} takes at most {len(names)} arguments, got {len(call.arguments)}", call)
        by_name = dict(zip(names, call.arguments, strict=False))
    data, time = by_name.pop("DATA", None), by_name.pop("TIMECOL", None)
    if not isinstance(data, syntax.TableArgument):
        raise problem(
            f"{kind.value}: the first argument is a table: TABLE name, or a query in parentheses", data or call
        )
    if not isinstance(time, syntax.Descriptor) or len(time.columns) != 1:
        raise problem(f"{kind.value}: the second argument is DESCRIPTOR(column), the time column", time or call)
    missing = [name for name in _PARAMETERS[kind] if name not in by_name and name != "OFFSET"]
    if missing:
        raise problem(f"{kind.value}: the argument {missing[0]} is missing", call)
    return WindowArguments(data, time, by_name)


def assign_window(
    relation: Relation, arguments: WindowArguments, kind: WindowKind, session: PlannerSession, call: syntax.Call
) -> WindowAssign:
    """A window function over a relation: its columns, then window_start, window_end and window_time."""
    column = Scope.of(relation).resolve(arguments.time.columns, arguments.time)
    shape = _shape(kind, column, relation, arguments.sizes, session, arguments.time, call)
    if arguments.data.partition_by:
        if kind is not WindowKind.SESSION:
            raise problem(f"{kind.value} takes no PARTITION BY: only SESSION windows are keyed", call)
        shape = replace(shape, partition=tuple(_column(each, relation) for each in arguments.data.partition_by))
    time_type = relation.schema.fields[shape.time].type
    ends = TimestampType(3, False)
    is_rowtime = shape.time_kind is TimeKind.ROWTIME
    last = time_type.not_null() if is_rowtime else LocalZonedTimestampType(3, False)
    # The rows are in a window from here on: window_time replaces their time attributes.
    fields = tuple(
        Field(each.name, each.type) if each.time is shape.time_kind else each for each in relation.schema.fields
    )
    added = (Field("window_start", ends), Field("window_end", ends), Field("window_time", last, shape.time_kind))
    return WindowAssign(Schema(fields + added), relation, shape)


def _column(written: syntax.Expression, relation: Relation) -> int:
    """A PARTITION BY column of a session window."""
    bound = Scope.of(relation).resolve(written.parts, written) if isinstance(written, syntax.Name) else None
    if not isinstance(bound, Column):
        raise problem("PARTITION BY of a window function must name columns of its input table", written)
    return bound.index


def group_window(
    kind: WindowKind,
    time: RowExpression,
    relation: Relation,
    sizes: dict[str, syntax.Expression],
    session: PlannerSession,
    node: syntax.Node,
) -> WindowShape:
    """The window of GROUP BY TUMBLE(…), or of the Table API's window(…); `time` is an expression over the relation's
    columns."""
    shape = _shape(kind, time, relation, sizes, session, node, node)
    return WindowShape(
        kind, shape.time, shape.size_ms, shape.slide_ms, shape.offset_ms, is_legacy=True, time_kind=shape.time_kind
    )


def legacy_sizes(
    kind: WindowKind, arguments: Sequence[syntax.Expression], node: syntax.Node
) -> dict[str, syntax.Expression]:
    """TUMBLE(ts, size[, offset]), HOP(ts, slide, size[, offset]), SESSION(ts, gap)."""
    names = _PARAMETERS[kind]
    most, least = len(names), len([name for name in names if name != "OFFSET"])
    if not least <= len(arguments) <= most:
        raise problem(f"{kind.value} in GROUP BY takes a time and {', '.join(names[:least]).lower()}", node)
    return dict(zip(names, arguments, strict=False))


def _shape(
    kind: WindowKind,
    time: RowExpression,
    relation: Relation,
    sizes: dict[str, syntax.Expression],
    session: PlannerSession,
    time_node: syntax.Node,
    node: syntax.Node,
) -> WindowShape:
    time_kind = relation.schema.fields[time.index].time if isinstance(time, Column) else None
    if not isinstance(time, Column) or time_kind is None:
        raise problem(
            f"The window function requires the timecol is a time attribute type, but is {time.type}. "
            "Declare a WATERMARK for it, or a column AS PROCTIME()",
            time_node,
        )
    lengths = {name: _milliseconds(written, session, kind, name) for name, written in sizes.items()}
    size, slide = lengths.get("SIZE", lengths.get("GAP", 0)), lengths.get("SLIDE", lengths.get("STEP"))
    for name, length in lengths.items():
        if length <= 0 and name != "OFFSET":
            raise problem(f"{kind.value}: {name.lower()} must be more than 0 ms, got {length} ms", sizes[name])
    if kind is WindowKind.CUMULATE:
        check_multiple(kind, size, slide, node)
    return WindowShape(kind, time.index, size, slide, lengths.get("OFFSET", 0), time_kind=time_kind)


def check_multiple(kind: WindowKind, size: int, slide: int | None, node: syntax.Node | None) -> None:
    """HOP in aggregations, and CUMULATE, require a size that is a multiple of the slide or step, as in Flink."""
    if slide is None or size % slide == 0:
        return
    large, small = ("maxSize", "step") if kind is WindowKind.CUMULATE else ("size", "slide")
    rule = f"{kind.value} table function based aggregate requires {large} must be an integral multiple of {small}"
    raise problem(f"{rule}, but got {large} {size} ms and {small} {slide} ms", node)


def _milliseconds(written: syntax.Expression, session: PlannerSession, kind: WindowKind, name: str) -> int:
    bound = ExpressionBinder(Scope(), session).bind(written)
    if isinstance(bound.type, YearMonthIntervalType):
        raise problem(
            f"{kind.value}: {name.lower()} must be an interval of days to seconds: months differ in length", written
        )
    if not isinstance(bound, Literal) or not isinstance(bound.value, datetime.timedelta):
        raise problem(
            f"{kind.value}: {name.lower()} must be a constant interval, such as INTERVAL '10' MINUTE", written
        )
    return round(bound.value / datetime.timedelta(milliseconds=1))
