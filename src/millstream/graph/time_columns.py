"""Determines the time column of a table's rows from its WATERMARK, without evaluating an expression. Pure."""

from __future__ import annotations

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import DayTimeIntervalType, LocalZonedTimestampType, TimestampType

__all__ = ["time_column"]


def time_column(rowtime: RowExpression, watermark: RowExpression) -> int | None:
    """The time column of rows, if their watermark is that column or has a fixed distance from it. The latest row then
    has the largest watermark, and the others need not be evaluated. None if any row may have the largest watermark."""
    if not isinstance(rowtime, Column) or not isinstance(rowtime.type, TimestampType | LocalZonedTimestampType):
        return None
    if watermark == rowtime:
        return rowtime.index
    if not isinstance(watermark, Call) or watermark.function not in ("+", "-"):
        return None
    moved, interval = watermark.arguments
    is_fixed = isinstance(interval, Literal) and isinstance(interval.type, DayTimeIntervalType)
    return rowtime.index if is_fixed and moved == rowtime else None
