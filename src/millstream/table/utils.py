"""Conversions between pandas and Arrow, as in PyFlink's workers, for programs that call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from millstream.errors import NotAvailableError
from millstream.expressions.data_type import DataType
from millstream.expressions.types import LocalZonedTimestampType
from millstream.pyflink_names import add_pyflink_names
from millstream.records.unpickling import unpickled

__all__ = [
    "arrow_to_pandas",
    "pandas_to_arrow",
    "pickled_bytes_to_python_converter",
    "to_expression_jarray",
    "tz_convert_from_internal",
    "tz_convert_to_internal",
]


def pandas_to_arrow(
    schema: pa.Schema, timezone: Any, field_types: Sequence[DataType], series: Sequence[Any]
) -> pa.RecordBatch:
    """Converts Series to a record batch."""
    columns = [
        pa.Array.from_pandas(tz_convert_to_internal(each, type_, timezone), type=field.type)
        for each, type_, field in zip(series, field_types, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_to_pandas(timezone: Any, field_types: Sequence[DataType], batches: Iterable[pa.RecordBatch]) -> list[Any]:
    """Converts record batches to Series, one per column."""
    columns = pa.Table.from_batches(list(batches)).columns
    return [
        tz_convert_from_internal(column.to_pandas(date_as_object=True), type_, timezone)
        for column, type_ in zip(columns, field_types, strict=True)
    ]


def tz_convert_from_internal(s: Any, t: DataType, local_tz: Any) -> Any:
    """Converts TIMESTAMP_LTZ to a zone's local time; other types are unchanged."""
    if not isinstance(t, LocalZonedTimestampType):
        return s
    in_utc = s if s.dt.tz is not None else s.dt.tz_localize("UTC")
    return in_utc.dt.tz_convert(local_tz).dt.tz_localize(None)


def tz_convert_to_internal(s: Any, t: DataType, local_tz: Any) -> Any:
    """Converts TIMESTAMP_LTZ from a zone's local time to UTC; other types are unchanged."""
    if not isinstance(t, LocalZonedTimestampType):
        return s
    zoned = s if s.dt.tz is not None else s.dt.tz_localize(local_tz)
    return zoned.dt.tz_convert("UTC")


def to_expression_jarray(exprs: Sequence[Any]) -> Any:
    """Converts expressions to a Java array."""
    raise NotAvailableError("to_expression_jarray is not available: there is no JVM. Pass the expressions unchanged")


def pickled_bytes_to_python_converter(data: Any, field_type: DataType) -> Any:
    """Converts a pickled value from Java to the Python value of its type."""
    value = unpickled(data) if isinstance(data, bytes | bytearray) else data
    return field_type.from_sql_type(value)


add_pyflink_names(globals())
