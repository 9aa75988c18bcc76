"""PyFlink's `DataTypes`: factories for all types by their SQL names. All SQL types can be imported from here."""

# ruff: noqa: N802 (the names are PyFlink's)
from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from millstream.errors import ProgramError
from millstream.expressions.arrow_types import create_arrow_schema, from_arrow_type, to_arrow_type
from millstream.expressions.data_type import AtomicType, DataType
from millstream.expressions.nested_types import (
    ArrayType,
    ListViewType,
    MapType,
    MapViewType,
    MultisetType,
    RawType,
    RowField,
    RowType,
)
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
    ZonedTimestampType,
)
from millstream.expressions.user_types import UserDefinedType

__all__ = [
    "ArrayType",
    "AtomicType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "CharType",
    "DataType",
    "DataTypes",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "FractionalType",
    "IntType",
    "IntegralType",
    "ListViewType",
    "LocalZonedTimestampType",
    "MapType",
    "MapViewType",
    "MultisetType",
    "NullType",
    "NumericType",
    "RawType",
    "Resolution",
    "RowField",
    "RowType",
    "SmallIntType",
    "TimeType",
    "TimestampType",
    "TinyIntType",
    "UserDefinedType",
    "VarBinaryType",
    "VarCharType",
    "YearMonthIntervalType",
    "ZonedTimestampType",
    "create_arrow_schema",
    "from_arrow_type",
    "to_arrow_type",
]


class Resolution:
    """A unit of an interval with its number of digits."""

    class IntervalUnit(Enum):
        SECOND = 0
        MINUTE = 1
        HOUR = 2
        DAY = 3
        MONTH = 4
        YEAR = 5

    def __init__(self, unit: IntervalUnit, precision: int = -1) -> None:
        self._unit = unit
        self._precision = precision

    @property
    def unit(self) -> IntervalUnit:
        """The unit."""
        return self._unit

    @property
    def precision(self) -> int:
        """The number of digits; -1 means the unit's default."""
        return self._precision

    def __str__(self) -> str:
        return self._unit.name


class DataTypes:
    """Creates data types.

    >>> price = DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2))
    >>> str(DataTypes.ROW([price, DataTypes.FIELD("day", DataTypes.DATE())]))
    'ROW<`price` DECIMAL(10, 2), `day` DATE>'
    """

    @staticmethod
    def NULL() -> NullType:
        """The type of the NULL literal."""
        return NullType()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> CharType:
        """Strings of exactly `length` characters."""
        return CharType(length, nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> VarCharType:
        """Strings of at most `length` characters."""
        return VarCharType(length, nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:
        """Strings of any length."""
        return VarCharType(LENGTH_MAX, nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> BooleanType:
        """TRUE, FALSE, and NULL for unknown."""
        return BooleanType(nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> BinaryType:
        """Byte strings of exactly `length` bytes."""
        return BinaryType(length, nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> VarBinaryType:
        """Byte strings of at most `length` bytes."""
        return VarBinaryType(length, nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:
        """Byte strings of any length."""
        return VarBinaryType(LENGTH_MAX, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DecimalType:
        """Exact numbers of `precision` digits, `scale` of them after the point."""
        return DecimalType(precision, scale, nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TinyIntType:
        """Integers of 1 byte."""
        return TinyIntType(nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> SmallIntType:
        """Integers of 2 bytes."""
        return SmallIntType(nullable)

    @staticmethod
    def INT(nullable: bool = True) -> IntType:
        """Integers of 4 bytes."""
        return IntType(nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> BigIntType:
        """Integers of 8 bytes."""
        return BigIntType(nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> FloatType:
        """Floating-point numbers of 4 bytes."""
        return FloatType(nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DoubleType:
        """Floating-point numbers of 8 bytes."""
        return DoubleType(nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DateType:
        """Dates."""
        return DateType(nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TimeType:
        """Times of day."""
        return TimeType(precision, nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TimestampType:
        """Timestamps without time zone."""
        return TimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Moments, displayed in the session's zone."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Moments, displayed in the session's zone."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Arrays of elements of one type."""
        return ArrayType(element_type, nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> ListViewType:
        """A list in an accumulator, stored in state."""
        return ListViewType(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """Maps of keys to values."""
        return MapType(key_type, value_type, nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> MapViewType:
        """A map in an accumulator, stored in state."""
        return MapViewType(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> MultisetType:
        """Multisets: values with their number of occurrences."""
        return MultisetType(element_type, nullable)

    @staticmethod
    def ROW(row_fields: Sequence[RowField | tuple[Any, ...] | DataType] = (), nullable: bool = True) -> RowType:
        """Rows of named fields, each a DataTypes.FIELD(name, type) or a tuple of both; types without names become
        fields f0, f1, …"""
        fields = [RowField(f"f{i}", f) if isinstance(f, DataType) else f for i, f in enumerate(row_fields)]
        return RowType(fields, nullable)

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """One field of a row."""
        return RowField(name, data_type, description)

    @staticmethod
    def SECOND(precision: int = DayTimeIntervalType.DEFAULT_FRACTIONAL_PRECISION) -> Resolution:
        """Seconds of an interval, with `precision` fractional digits."""
        return Resolution(Resolution.IntervalUnit.SECOND, precision)

    @staticmethod
    def MINUTE() -> Resolution:
        """Minutes of an interval."""
        return Resolution(Resolution.IntervalUnit.MINUTE)

    @staticmethod
    def HOUR() -> Resolution:
        """Hours of an interval."""
        return Resolution(Resolution.IntervalUnit.HOUR)

    @staticmethod
    def DAY(precision: int = DayTimeIntervalType.DEFAULT_DAY_PRECISION) -> Resolution:
        """Days of an interval, with `precision` digits."""
        return Resolution(Resolution.IntervalUnit.DAY, precision)

    @staticmethod
    def MONTH() -> Resolution:
        """Months of an interval."""
        return Resolution(Resolution.IntervalUnit.MONTH)

    @staticmethod
    def YEAR(precision: int = YearMonthIntervalType.DEFAULT_PRECISION) -> Resolution:
        """Years of an interval, with `precision` digits."""
        return Resolution(Resolution.IntervalUnit.YEAR, precision)

    @staticmethod
    def INTERVAL(upper_resolution: Resolution, lower_resolution: Resolution | None = None) -> DataType:
        """Intervals of one unit, or from a larger unit to a smaller one.

        >>> str(DataTypes.INTERVAL(DataTypes.DAY(3), DataTypes.SECOND(3)))
        'INTERVAL DAY(3) TO SECOND(3)'
        """
        lower = lower_resolution or upper_resolution
        words = str(upper_resolution) if lower is upper_resolution else f"{upper_resolution} TO {lower}"
        months = YearMonthIntervalType.YearMonthResolution
        days = DayTimeIntervalType.DayTimeResolution
        for resolution in months:
            if resolution.value == words:
                digits = upper_resolution.precision if str(upper_resolution) == "YEAR" else 2
                return YearMonthIntervalType(resolution, digits)
        for part in days:
            if part.value == words:
                day_digits = upper_resolution.precision if str(upper_resolution) == "DAY" else 2
                return DayTimeIntervalType(part, day_digits, lower.precision if str(lower) == "SECOND" else 6)
        raise ProgramError(
            f"there is no interval {words}; it ranges from a larger unit to a smaller one, "
            "of YEAR and MONTH, or of DAY, HOUR, MINUTE and SECOND"
        )
