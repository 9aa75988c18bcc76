"""Which column is the time of a table's rows, as its WATERMARK says it: what may be known of event time without running
an expression. Pure."""

from __future__ import annotations

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import DayTimeIntervalType, LocalZonedTimestampType, TimestampType

__all__ = ["time_column"]


def time_column(rowtime: RowExpression, watermark: RowExpression) -> int | None:
    """The column that is the time of rows, if their watermark is that time or a fixed while from it: the latest row has
    the largest watermark then, and the others need not be looked at. None: it may be any of them."""
    if not isinstance(rowtime, Column) or not isinstance(rowtime.type, TimestampType | LocalZonedTimestampType):
        return None
    if watermark == rowtime:
        return rowtime.index
    if not isinstance(watermark, Call) or watermark.function not in ("+", "-"):
        return None
    moved, interval = watermark.arguments
    is_fixed = isinstance(interval, Literal) and isinstance(interval.type, DayTimeIntervalType)
    return rowtime.index if is_fixed and moved == rowtime else None
