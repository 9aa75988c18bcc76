"""Streams of a table's rows in the types that PyFlink's older methods ask for."""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.types import RowKind
from millstream.datastream.streams.stream import DataStream
from millstream.graph.site import refuse

__all__ = ["flagged_stream", "typed_stream"]


def typed_stream(stream: DataStream, type_info: TypeInformation, method: str) -> DataStream:
    """Rows as values of a type: a row, a tuple, or the only column alone."""
    rows = stream._stream_type()
    assert isinstance(rows, RowTypeInfo)
    if not isinstance(type_info, TypeInformation):
        raise refuse(f"{method}: found {type_info!r}, expected a type such as Types.ROW([...])")
    columns = len(rows.get_field_types())
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        if len(type_info.get_field_types()) != columns:
            wanted = len(type_info.get_field_types())
            raise refuse(f"{method}: the table has {columns} columns and the type {wanted} fields, expected as many")
        return stream.map(_as_tuple if isinstance(type_info, TupleTypeInfo) else _as_row, type_info)
    if columns != 1:
        raise refuse(f"{method}: the table has {columns} columns, expected one for {type_info}, or a row type")
    return stream.map(_only_value, type_info)


def flagged_stream(stream: DataStream, type_info: TypeInformation) -> DataStream:
    """Pairs: whether the row was added, and the row."""
    if not isinstance(type_info, TypeInformation):
        raise refuse(f"to_retract_stream: found {type_info!r}, expected a type such as Types.ROW([...])")
    return stream.map(_flagged, Types.TUPLE([Types.BOOLEAN(), type_info]))


def _as_row(row: Any) -> Any:
    return row


def _as_tuple(row: Any) -> tuple[Any, ...]:
    return tuple(row)


def _only_value(row: Any) -> Any:
    return row[0]


def _flagged(row: Any) -> tuple[bool, Any]:
    return row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER), row
