"""Converts between Arrow types and SQL types. Each SQL type has one Arrow type; the inverse conversion chooses the
nearest SQL type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as kinds

from millstream.errors import TypeMismatchError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, RowField, RowType
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)

__all__ = ["create_arrow_schema", "from_arrow_type", "to_arrow_type"]

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], type[DataType]], ...] = (
    (kinds.is_boolean, BooleanType),
    (kinds.is_int8, TinyIntType),
    (kinds.is_int16, SmallIntType),
    (kinds.is_int32, IntType),
    (kinds.is_int64, BigIntType),
    (kinds.is_float32, FloatType),
    (kinds.is_float64, DoubleType),
    (kinds.is_date, DateType),
    (kinds.is_duration, DayTimeIntervalType),
    (kinds.is_null, NullType),
)
_TEXTS = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
_BYTES = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view)
_LISTS = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)


def from_arrow_type(arrow_type: pa.DataType, nullable: bool = True) -> DataType:
    """The SQL type for values of an Arrow type.

    >>> str(from_arrow_type(pa.timestamp("ms", "UTC"))), str(from_arrow_type(pa.list_(pa.string()), nullable=False))
    ('TIMESTAMP_LTZ(3)', 'ARRAY<STRING> NOT NULL')
    """
    for is_kind, class_ in _PLAIN:
        if is_kind(arrow_type):
            return class_(nullable=nullable) if class_ is not NullType else NullType()
    if any(is_kind(arrow_type) for is_kind in _TEXTS):
        return VarCharType(LENGTH_MAX, nullable)
    if any(is_kind(arrow_type) for is_kind in _BYTES):
        return VarBinaryType(LENGTH_MAX, nullable)
    if kinds.is_fixed_size_binary(arrow_type):
        return BinaryType(arrow_type.byte_width, nullable)
    if kinds.is_decimal(arrow_type):
        return DecimalType(arrow_type.precision, arrow_type.scale, nullable)
    if kinds.is_time(arrow_type):
        return TimeType(_DIGITS[arrow_type.unit], nullable)
    if kinds.is_timestamp(arrow_type):
        class_of_moments = TimestampType if arrow_type.tz is None else LocalZonedTimestampType
        return class_of_moments(_DIGITS[arrow_type.unit], nullable)
    if kinds.is_dictionary(arrow_type):
        return from_arrow_type(arrow_type.value_type, nullable)
    if any(is_kind(arrow_type) for is_kind in _LISTS):
        return ArrayType(from_arrow_type(arrow_type.value_type, arrow_type.value_field.nullable), nullable)
    if kinds.is_map(arrow_type):
        key = from_arrow_type(arrow_type.key_type, False)
        return MapType(key, from_arrow_type(arrow_type.item_type, arrow_type.item_field.nullable), nullable)
    if kinds.is_struct(arrow_type):
        fields = [RowField(f.name, from_arrow_type(f.type, f.nullable)) for f in arrow_type]
        return RowType(fields, nullable)
    raise TypeMismatchError(f"the Arrow type {arrow_type} has no SQL data type; cast the column to another type first")


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a data type's values."""
    return data_type.arrow


def create_arrow_schema(field_names: Sequence[str], field_types: Sequence[DataType]) -> pa.Schema:
    """The Arrow schema of named columns."""
    pairs = zip(field_names, field_types, strict=True)
    return pa.schema([pa.field(name, type_.arrow, type_.is_nullable) for name, type_ in pairs])
