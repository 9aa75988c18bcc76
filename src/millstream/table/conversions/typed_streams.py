"""Streams of a table's rows in the types that PyFlink's legacy methods request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.types import RowKind
from millstream.datastream.streams.stream import DataStream
from millstream.graph.site import refuse

__all__ = ["flagged_stream", "typed_stream"]

_ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)


def typed_stream(stream: DataStream, type_info: TypeInformation, method: str) -> DataStream:
    """Rows as values of a type: a row, a tuple, or the single column's value."""
    return stream.map(_value_of(stream, type_info, method), type_info)


def flagged_stream(stream: DataStream, type_info: TypeInformation) -> DataStream:
    """Pairs of an insert flag and the row as a value of the type."""
    value = _value_of(stream, type_info, "to_retract_stream")
    return stream.map(lambda row: (row.get_row_kind() in _ADDED, value(row)), Types.TUPLE([Types.BOOLEAN(), type_info]))


def _value_of(stream: DataStream, type_info: TypeInformation, method: str) -> Callable[[Any], Any]:
    """The conversion from a row to a value of the type. Rejects types with a different number of fields."""
    rows = stream._stream_type()
    assert isinstance(rows, RowTypeInfo)
    if not isinstance(type_info, TypeInformation):
        raise refuse(f"{method}: found {type_info!r}, expected a type such as Types.ROW([...])")
    columns = len(rows.get_field_types())
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        if len(type_info.get_field_types()) != columns:
            wanted = len(type_info.get_field_types())
            raise refuse(f"{method}: the table has {columns} columns and the type {wanted} fields, expected as many")
        return tuple if isinstance(type_info, TupleTypeInfo) else _as_row
    if columns != 1:
        raise refuse(f"{method}: the table has {columns} columns, expected one for {type_info}, or a row type")
    return _only_value


def _as_row(row: Any) -> Any:
    return row


def _only_value(row: Any) -> Any:
    return row[0]
