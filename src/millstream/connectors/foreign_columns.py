"""Converts columns between other systems' types and ours.

Our columns hold every value of their type without loss: an INSTANT is seconds and nanoseconds, a BIG_DEC its text, a
BIG_INT its bytes. Parquet, Spark and similar systems have narrower types for these, which users expect in
files: a timestamp in UTC with microseconds, DECIMAL(38, 18), DECIMAL(38, 0). All other types are equal on both sides.

Inward conversion is lossless; a value outside the declared type is an error. Outward an INSTANT is truncated to
microseconds, and a number too large for its decimal is an error.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.time import Instant
from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.columns import arrow_type, from_record_batch, stream_schema, to_record_batch
from millstream.records.shapes import is_byte_array, is_sequence, plain_type

__all__ = ["foreign_schema", "inward", "outward"]

_FOREIGN: dict[BasicType, pa.DataType] = {
    BasicType.INSTANT: pa.timestamp("us", "UTC"),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
    BasicType.BIG_INT: pa.decimal128(38, 0),
}
_INSTANT_FIELDS = [pa.field("seconds", pa.int64()), pa.field("nanos", pa.int32())]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def inward(batch: pa.RecordBatch, type_info: TypeInformation, subject: str) -> pa.RecordBatch:
    """Converts an external batch, with columns in the order of the type, to the stream's layout. `subject` is for
    errors.

    Dictionaries with values of exactly this type stay dictionaries."""
    schema = stream_schema(type_info)
    assert schema is not None, "an untyped stream has no columns"
    if batch.schema.equals(schema):
        return batch
    columns = [
        _inward_column(column, field_type, f"{subject}, column {field.name!r}")
        for column, field, field_type in zip(batch.columns, schema, _column_types(type_info), strict=True)
    ]
    fields = [
        field.with_type(column.type) if isinstance(column, pa.DictionaryArray) else field
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def outward(batch: pa.RecordBatch, type_info: TypeInformation) -> pa.RecordBatch:
    """Converts a batch of the stream to the types of other systems."""
    schema = foreign_schema(type_info)
    columns = [
        column if column.type.equals(field.type) else _outward_column(column, field_type, field)
        for column, field, field_type in zip(batch.columns, schema, _column_types(type_info), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def foreign_schema(type_info: TypeInformation) -> pa.Schema:
    """The schema of a stream of this type in other systems.

    >>> foreign_schema(Types.ROW_NAMED(["at", "n"], [Types.INSTANT(), Types.INT()])).types
    [TimestampType(timestamp[us, tz=UTC]), DataType(int32)]
    """
    schema = stream_schema(type_info)
    assert schema is not None, "an untyped stream has no columns"
    pairs = zip(schema.names, _column_types(type_info), strict=True)
    return pa.schema([(name, _foreign_type(field_type)) for name, field_type in pairs])


def _column_types(type_info: TypeInformation) -> list[TypeInformation]:
    plain = plain_type(type_info)
    return plain.get_field_types() if isinstance(plain, (RowTypeInfo, TupleTypeInfo)) else [type_info]


def _foreign_type(type_info: TypeInformation) -> pa.DataType:
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo) and plain.basic_type in _FOREIGN:
        return _FOREIGN[plain.basic_type]
    if isinstance(plain, (RowTypeInfo, TupleTypeInfo)):
        return pa.struct(
            [(name, _foreign_type(field)) for name, field in zip(_names(plain), plain.get_field_types(), strict=True)]
        )
    if is_sequence(plain) and not is_byte_array(plain):
        return pa.list_(_foreign_type(plain.element_type))
    if isinstance(plain, MapTypeInfo):
        return pa.map_(_foreign_type(plain.key_type), _foreign_type(plain.value_type))
    arrow = arrow_type(plain)
    if arrow is None:
        raise ProgramError("Other systems cannot read pickled values. Declare the type of the records.")
    return arrow


def _names(type_info: RowTypeInfo | TupleTypeInfo) -> list[str]:
    if isinstance(type_info, RowTypeInfo):
        return type_info.get_field_names()
    return [f"f{i}" for i in range(len(type_info.get_field_types()))]


def _inward_column(column: pa.Array, type_info: TypeInformation, subject: str) -> pa.Array:
    target = arrow_type(type_info)
    if column.type.equals(target):
        return column
    if isinstance(column, pa.DictionaryArray):
        if column.type.value_type.equals(target):
            return column
        column = column.dictionary_decode()
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        if plain.basic_type is BasicType.INSTANT and pa.types.is_timestamp(column.type):
            return _instants(column)
        if plain.basic_type is BasicType.BIG_DEC and (
            pa.types.is_decimal(column.type) or pa.types.is_integer(column.type)
        ):
            return column.cast(pa.string())
    try:
        if _foreign_type(type_info).equals(target):
            return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Convert through Python values instead, so that the error names the failing one.
        pass
    convert = _from_foreign(type_info)
    try:
        return to_record_batch([(convert(value),) for value in column.to_pylist()], Types.ROW([type_info])).column(0)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"{subject}: {error.message}", value=error.value, path=error.path) from error


def _instants(column: pa.Array) -> pa.Array:
    """Timestamps as seconds and nanoseconds. A timestamp without a zone is interpreted as UTC."""
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit]
    ticks = column.cast(pa.int64())
    down = pc.divide(ticks, per_second)
    # Arrow's division truncates towards zero; before 1970 that is one second too late.
    early = pc.less(ticks, pc.multiply(down, per_second))
    seconds = pc.subtract(down, pc.cast(early, pa.int64()))
    nanos = pc.multiply(pc.subtract(ticks, pc.multiply(seconds, per_second)), 1_000_000_000 // per_second)
    parts = [seconds, pc.cast(nanos, pa.int32())]
    return pa.StructArray.from_arrays(parts, fields=_INSTANT_FIELDS, mask=column.is_null())


def _outward_column(column: pa.Array, type_info: TypeInformation, field: pa.Field) -> pa.Array:
    plain = plain_type(type_info)
    try:
        if isinstance(plain, BasicTypeInfo) and plain.basic_type is BasicType.INSTANT:
            seconds, nanos = column.field("seconds"), column.field("nanos")
            micros = pc.add(pc.multiply_checked(seconds, 1_000_000), pc.divide(pc.cast(nanos, pa.int64()), 1000))
            return pc.if_else(column.is_null(), None, micros).cast(field.type)
        schema = stream_schema(Types.ROW([type_info]))
        rows = from_record_batch(pa.RecordBatch.from_arrays([column], schema=schema), Types.ROW([type_info]))
        convert = _to_foreign(type_info)
        return pa.array([convert(row[0]) for row in rows], field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeMismatchError(
            f"Column {field.name!r} of type {type_info} does not fit {field.type}, its type in other systems: {error}. "
            f"Map it to STRING, or to a smaller number, before the sink.",
            path=field.name,
        ) from error


Convert = Callable[[Any], Any]


def _from_foreign(type_info: TypeInformation) -> Convert:
    """The converter from Arrow's Python value of a foreign column to ours."""
    return _walker(
        type_info,
        {
            BasicType.INSTANT: lambda value: _instant(value) if isinstance(value, dt.datetime) else value,
            BasicType.BIG_INT: lambda value: (
                int(value) if isinstance(value, Decimal) and value == int(value) else value
            ),
            BasicType.BIG_DEC: lambda value: Decimal(value) if isinstance(value, int) else value,
        },
        lambda fields, value: tuple(fields[name](value.get(name)) for name in fields),
    )


def _to_foreign(type_info: TypeInformation) -> Convert:
    """The converter from our Python value to Arrow's of a foreign column."""
    return _walker(
        type_info,
        {
            BasicType.INSTANT: lambda value: (
                _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
            ),
            BasicType.BIG_INT: Decimal,
        },
        lambda fields, value: {name: fields[name](part) for name, part in zip(fields, value, strict=True)},
    )


def _instant(moment: dt.datetime) -> Instant:
    since = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def _walker(
    type_info: TypeInformation, leaves: dict[BasicType, Convert], structure: Callable[[dict[str, Convert], Any], Any]
) -> Convert:
    """A converter for nested values: `leaves` for single values, `structure` for rows; recurses into lists and maps."""
    plain = plain_type(type_info)
    inner: Convert
    if isinstance(plain, BasicTypeInfo):
        inner = leaves.get(plain.basic_type, lambda value: value)
    elif isinstance(plain, (RowTypeInfo, TupleTypeInfo)):
        pairs = zip(_names(plain), plain.get_field_types(), strict=True)
        fields = {name: _walker(field, leaves, structure) for name, field in pairs}
        inner = lambda value: structure(fields, value)  # noqa: E731
    elif is_sequence(plain) and not is_byte_array(plain):
        element = _walker(plain.element_type, leaves, structure)
        inner = lambda value: [element(item) for item in value]  # noqa: E731
    elif isinstance(plain, MapTypeInfo):
        key, item = (_walker(part, leaves, structure) for part in (plain.key_type, plain.value_type))
        inner = lambda value: {key(k): item(v) for k, v in (value.items() if isinstance(value, dict) else value)}  # noqa: E731
    else:
        return lambda value: value
    return lambda value: None if value is None else inner(value)
