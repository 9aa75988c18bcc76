"""Atomic types: strings, numbers, times, intervals. Names and parameters are PyFlink's."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.expressions.data_type import AtomicType, DataType
from millstream.expressions.interval_types import DayTimeIntervalType, YearMonthIntervalType

__all__ = [
    "BigIntType",
    "BinaryType",
    "BitmapType",
    "BooleanType",
    "CharType",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "FractionalType",
    "IntType",
    "IntegralType",
    "LocalZonedTimestampType",
    "NullType",
    "NumericType",
    "SmallIntType",
    "TimeType",
    "TimestampType",
    "TinyIntType",
    "VarBinaryType",
    "VarCharType",
    "VariantType",
    "YearMonthIntervalType",
    "ZonedTimestampType",
    "is_text",
]

LENGTH_MAX = 0x7FFFFFFF
"""The length of STRING and BYTES."""
EPOCH = dt.datetime(1970, 1, 1)
_UNITS = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")


class NullType(AtomicType):
    """The type of the NULL literal."""

    name = "NULL"

    @property
    def arrow(self) -> pa.DataType:
        return pa.null()


class NumericType(AtomicType):
    """Numbers."""


class IntegralType(NumericType):
    """Integers of `bits` bits."""

    bits: int

    @property
    def arrow(self) -> pa.DataType:
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[self.bits]


class FractionalType(NumericType):
    """Numbers with fractional digits."""


class _Sized(AtomicType):
    """A type with a length."""

    def __init__(self, length: int = 1, nullable: bool = True) -> None:
        super().__init__(nullable)
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= LENGTH_MAX:
            raise ProgramError(f"{self.name} has a length of 1 to {LENGTH_MAX}, not {length!r}")
        self.length = length

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (self.length,)

    @property
    def sql(self) -> str:
        return f"{self.name}({self.length})"


class CharType(_Sized):
    """Strings of exactly `length` characters."""

    name = "CHAR"

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()


class VarCharType(_Sized):
    """Strings of at most `length` characters; STRING at the maximum length."""

    name = "VARCHAR"

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()

    @property
    def sql(self) -> str:
        return "STRING" if self.length == LENGTH_MAX else super().sql


class BinaryType(_Sized):
    """Byte strings of exactly `length` bytes."""

    name = "BINARY"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()


class VarBinaryType(_Sized):
    """Byte strings of at most `length` bytes; BYTES at the maximum length."""

    name = "VARBINARY"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()

    @property
    def sql(self) -> str:
        return "BYTES" if self.length == LENGTH_MAX else super().sql


class BitmapType(AtomicType):
    """A set of 32-bit integers in the canonical bytes of `records.bitmaps`: equal sets have equal bytes."""

    name = "BITMAP"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()


class VariantType(AtomicType):
    """Any JSON value, as canonical JSON text (`runtime.expressions.variants`)."""

    name = "VARIANT"

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()


class BooleanType(AtomicType):
    name = "BOOLEAN"

    @property
    def arrow(self) -> pa.DataType:
        return pa.bool_()


class TinyIntType(IntegralType):
    name = "TINYINT"
    bits = 8


class SmallIntType(IntegralType):
    name = "SMALLINT"
    bits = 16


class IntType(IntegralType):
    name = "INT"
    bits = 32


class BigIntType(IntegralType):
    name = "BIGINT"
    bits = 64


class FloatType(FractionalType):
    name = "FLOAT"

    @property
    def arrow(self) -> pa.DataType:
        return pa.float32()


class DoubleType(FractionalType):
    name = "DOUBLE"

    @property
    def arrow(self) -> pa.DataType:
        return pa.float64()


class DecimalType(FractionalType):
    """Numbers of `precision` digits, `scale` of them after the point."""

    name = "DECIMAL"

    def __init__(self, precision: int = 10, scale: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise ProgramError(
                f"DECIMAL({precision}, {scale}): the precision is 1 to 38, the scale 0 to the precision, both included"
            )
        self.precision = precision
        self.scale = scale

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.precision, self.scale

    @property
    def sql(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)


class DateType(AtomicType):
    """Dates."""

    name = "DATE"
    EPOCH_ORDINAL = EPOCH.toordinal()

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        return None if obj is None else obj.toordinal() - self.EPOCH_ORDINAL

    def from_sql_type(self, obj: Any) -> Any:
        return None if obj is None else dt.date.fromordinal(obj + self.EPOCH_ORDINAL)

    @property
    def arrow(self) -> pa.DataType:
        return pa.date32()


class _Precise(AtomicType):
    """A time with `precision` fractional digits of a second."""

    digits_max = 9

    def __init__(self, precision: int, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 0 <= precision <= self.digits_max:
            raise ProgramError(f"{self.name} has a precision of 0 to {self.digits_max}, not {precision!r}")
        self.precision = precision

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (self.precision,)

    @property
    def sql(self) -> str:
        return f"{self.name}({self.precision})"


class TimeType(_Precise):
    """A time of day. Flink computes with milliseconds regardless of the precision."""

    name = "TIME"
    EPOCH_ORDINAL = EPOCH.toordinal()

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        """Microseconds of the day."""
        if obj is None:
            return None
        return ((obj.hour * 60 + obj.minute) * 60 + obj.second) * 1_000_000 + obj.microsecond

    def from_sql_type(self, obj: Any) -> Any:
        return None if obj is None else (EPOCH + dt.timedelta(microseconds=obj)).time()

    def __init__(self, precision: int = 0, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def arrow(self) -> pa.DataType:
        return pa.time32("ms")


class _Stamp(_Precise):
    """A timestamp."""

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        """Microseconds since 1970; a datetime without a zone counts as UTC."""
        if obj is None:
            return None
        return calendar.timegm(obj.utctimetuple()) * 1_000_000 + obj.microsecond

    def from_sql_type(self, obj: Any) -> Any:
        return None if obj is None else EPOCH + dt.timedelta(microseconds=obj)


class TimestampType(_Stamp):
    """A timestamp without time zone."""

    name = "TIMESTAMP"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp(_UNITS[self.precision])


class LocalZonedTimestampType(_Stamp):
    """An instant, displayed in the session's zone."""

    name = "TIMESTAMP_LTZ"
    EPOCH_ORDINAL = EPOCH.toordinal()

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp(_UNITS[self.precision], "UTC")


class ZonedTimestampType(_Stamp):
    """TIMESTAMP WITH TIME ZONE. It can only be parsed and printed; as in Flink, no operation supports it."""

    name = "TIMESTAMP_TZ"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


def is_text(type_: DataType) -> bool:
    """Whether the type is a string type."""
    return isinstance(type_, CharType | VarCharType)
