"""Event time of data frames: `watermark=("ts", "ts - INTERVAL '5' SECOND")` names a column and its watermark in SQL."""

from __future__ import annotations

from typing import Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.expressions.nested_types import RowField, RowType
from millstream.expressions.types import LocalZonedTimestampType, TimestampType
from millstream.graph.site import refuse, refuse_type
from millstream.planner.entries import WatermarkEntry
from millstream.sql.parser import parse_expression

__all__ = ["Watermark", "checked_watermark", "timed_row_type"]

Watermark = tuple[str, str] | None


def checked_watermark(method: str, watermark: Any) -> WatermarkEntry | None:
    """Checks the watermark argument and parses its expression."""
    if watermark is None:
        return None
    if not isinstance(watermark, tuple) or len(watermark) != 2 or not all(isinstance(part, str) for part in watermark):
        raise refuse_type(
            f"{method}: found {watermark!r} as the watermark, expected ('ts', \"ts - INTERVAL '5' SECOND\")"
        )
    column, text = watermark
    with at_users_line():
        return WatermarkEntry(column, parse_expression(text), text)


def timed_row_type(row_type: RowType, watermark: WatermarkEntry | None) -> tuple[RowType, WatermarkEntry | None]:
    """The row type with precision 3 in the watermark's column, as required of a time attribute."""
    if watermark is None:
        return row_type, None
    if watermark.column not in row_type.names:
        raise refuse(f"watermark: found no column {watermark.column!r}; the data has {', '.join(row_type.names)}")
    fields = []
    for each in row_type.fields:
        data_type = each.data_type
        if each.name == watermark.column:
            if not isinstance(data_type, TimestampType | LocalZonedTimestampType):
                raise refuse(f"watermark: found the column {each.name!r} of {data_type}, expected a timestamp")
            data_type = type(data_type)(3, data_type.is_nullable)
        fields.append(RowField(each.name, data_type, each.description))
    return RowType(fields, row_type.is_nullable), watermark
