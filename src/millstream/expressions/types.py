"""The types of single values: texts, numbers, times, intervals. Names and parameters are PyFlink's."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.expressions.data_type import AtomicType, DataType

__all__ = [
    "BigIntType",
    "BinaryType",
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
    "YearMonthIntervalType",
    "ZonedTimestampType",
]

LENGTH_MAX = 0x7FFFFFFF
"""The length of STRING and BYTES."""
_UNITS = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")


class NullType(AtomicType):
    """The type of NULL alone."""

    name = "NULL"

    @property
    def arrow(self) -> pa.DataType:
        return pa.null()


class NumericType(AtomicType):
    """Numbers."""


class IntegralType(NumericType):
    """Whole numbers of so many bits."""

    bits: int

    @property
    def arrow(self) -> pa.DataType:
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[self.bits]


class FractionalType(NumericType):
    """Numbers with digits behind the point."""


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
    """Text of just so many characters."""

    name = "CHAR"

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()


class VarCharType(_Sized):
    """Text of at most so many characters; of the greatest length, STRING."""

    name = "VARCHAR"

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()

    @property
    def sql(self) -> str:
        return "STRING" if self.length == LENGTH_MAX else super().sql


class BinaryType(_Sized):
    """Just so many bytes."""

    name = "BINARY"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()


class VarBinaryType(_Sized):
    """At most so many bytes; of the greatest length, BYTES."""

    name = "VARBINARY"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()

    @property
    def sql(self) -> str:
        return "BYTES" if self.length == LENGTH_MAX else super().sql


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
    """Numbers of `precision` digits, `scale` of them behind the point."""

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
    """Days."""

    name = "DATE"

    @property
    def arrow(self) -> pa.DataType:
        return pa.date32()


class _Precise(AtomicType):
    """A time with so many digits of a second."""

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
    """A time of day. Flink computes with milliseconds, whatever the precision."""

    name = "TIME"

    def __init__(self, precision: int = 0, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def arrow(self) -> pa.DataType:
        return pa.time32("ms")


class TimestampType(_Precise):
    """A moment as a clock on a wall shows it."""

    name = "TIMESTAMP"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp(_UNITS[self.precision])


class LocalZonedTimestampType(_Precise):
    """A moment, which the session's zone shows as a clock does."""

    name = "TIMESTAMP_LTZ"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp(_UNITS[self.precision], "UTC")


class ZonedTimestampType(_Precise):
    """TIMESTAMP WITH TIME ZONE: parsed and named; Flink computes with none, nor do we."""

    name = "TIMESTAMP_TZ"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


class YearMonthIntervalType(AtomicType):
    """A number of months."""

    name = "INTERVAL"
    DEFAULT_PRECISION = 2

    class YearMonthResolution(Enum):
        YEAR = "YEAR"
        MONTH = "MONTH"
        YEAR_TO_MONTH = "YEAR TO MONTH"

    def __init__(
        self, resolution: YearMonthResolution = YearMonthResolution.MONTH, precision: int = 2, nullable: bool = True
    ) -> None:
        super().__init__(nullable)
        self.resolution = resolution
        self.precision = precision

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.resolution, self.precision

    @property
    def sql(self) -> str:
        words = self.resolution.value.split(" ", 1)
        digits = f"({self.precision})" if words[0] == "YEAR" else ""
        return " ".join(["INTERVAL", words[0] + digits, *words[1:]])

    @property
    def arrow(self) -> pa.DataType:
        return pa.int32()


class DayTimeIntervalType(AtomicType):
    """A stretch of time in milliseconds."""

    name = "INTERVAL"
    DEFAULT_DAY_PRECISION = 2
    DEFAULT_FRACTIONAL_PRECISION = 6

    class DayTimeResolution(Enum):
        DAY = "DAY"
        DAY_TO_HOUR = "DAY TO HOUR"
        DAY_TO_MINUTE = "DAY TO MINUTE"
        DAY_TO_SECOND = "DAY TO SECOND"
        HOUR = "HOUR"
        HOUR_TO_MINUTE = "HOUR TO MINUTE"
        HOUR_TO_SECOND = "HOUR TO SECOND"
        MINUTE = "MINUTE"
        MINUTE_TO_SECOND = "MINUTE TO SECOND"
        SECOND = "SECOND"

    def __init__(
        self,
        resolution: DayTimeResolution = DayTimeResolution.DAY_TO_SECOND,
        day_precision: int = 2,
        fractional_precision: int = 6,
        nullable: bool = True,
    ) -> None:
        super().__init__(nullable)
        self.resolution = resolution
        self.day_precision = day_precision
        self.fractional_precision = fractional_precision

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.resolution, self.day_precision, self.fractional_precision

    @property
    def sql(self) -> str:
        digits = {"DAY": f"({self.day_precision})", "SECOND": f"({self.fractional_precision})"}
        units = self.resolution.value.split(" TO ")
        return "INTERVAL " + " TO ".join(unit + digits.get(unit, "") for unit in units)

    @property
    def arrow(self) -> pa.DataType:
        return pa.duration("ms")


def is_text(type_: DataType) -> bool:
    """Whether its values are text."""
    return isinstance(type_, CharType | VarCharType)
