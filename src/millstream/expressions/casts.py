"""Flink's table of casts: implicit (lossless, cannot fail) or explicit.

Nested types follow the rules of their element types. Every type can be cast to itself and, explicitly, to a string.
VARIANT is an exception, as in Flink: JSON_STRING writes it as JSON, and JSON_VALUE extracts typed values.
"""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RawType, RowType
from millstream.expressions.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
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
    VariantType,
    YearMonthIntervalType,
    ZonedTimestampType,
)

__all__ = ["can_cast"]

_TEXT = (CharType, VarCharType)
_BYTES = (BinaryType, VarBinaryType)
_INTEGERS = (TinyIntType, SmallIntType, IntType, BigIntType)
_NUMBERS = (*_INTEGERS, DecimalType, FloatType, DoubleType)
_STAMPS = (TimestampType, LocalZonedTimestampType)
_INTERVALS = (YearMonthIntervalType, DayTimeIntervalType)

_Types = tuple[type[DataType], ...]
_IMPLICIT: dict[type[DataType], _Types] = {
    CharType: (CharType,),
    VarCharType: _TEXT,
    BinaryType: (BinaryType,),
    VarBinaryType: _BYTES,
    BooleanType: (BooleanType,),
    DecimalType: _NUMBERS,
    TinyIntType: (TinyIntType,),
    SmallIntType: (TinyIntType, SmallIntType),
    IntType: (TinyIntType, SmallIntType, IntType),
    BigIntType: _INTEGERS,
    FloatType: (*_INTEGERS, FloatType, DecimalType),
    DoubleType: _NUMBERS,
    DateType: (DateType, TimestampType),
    TimeType: (TimeType, TimestampType),
    TimestampType: (DateType, *_STAMPS),
    LocalZonedTimestampType: (DateType, *_STAMPS),
    ZonedTimestampType: (ZonedTimestampType, *_STAMPS),
    YearMonthIntervalType: (YearMonthIntervalType,),
    DayTimeIntervalType: (DayTimeIntervalType,),
}
_NUMBER_FROM = (*_NUMBERS, *_TEXT, BooleanType)
_EXPLICIT: dict[type[DataType], _Types] = {
    BinaryType: (*_TEXT, *_BYTES, RawType),
    VarBinaryType: (*_TEXT, *_BYTES, RawType),
    BooleanType: (*_TEXT, *_NUMBERS),
    DecimalType: (*_NUMBER_FROM, *_INTERVALS),
    TinyIntType: (*_NUMBER_FROM, *_INTERVALS),
    SmallIntType: (*_NUMBER_FROM, *_INTERVALS),
    IntType: (*_NUMBER_FROM, *_INTERVALS),
    BigIntType: (*_NUMBER_FROM, *_INTERVALS),
    FloatType: _NUMBER_FROM,
    DoubleType: _NUMBER_FROM,
    DateType: (*_TEXT, *_STAMPS),
    TimeType: (*_TEXT, *_STAMPS),
    TimestampType: (*_TEXT, DateType, TimeType),
    LocalZonedTimestampType: (*_TEXT, DateType, TimeType),
    YearMonthIntervalType: (*_INTEGERS, DecimalType),
    DayTimeIntervalType: (*_INTEGERS, DecimalType),
}


def can_cast(from_: DataType, to: DataType, explicit: bool = True) -> bool:
    """Whether a type can be cast to another, by CAST (`explicit`) or implicitly.

    >>> can_cast(IntType(), BigIntType(), explicit=False), can_cast(BigIntType(), IntType(), explicit=False)
    (True, False)
    >>> can_cast(DateType(), IntType())
    False
    """
    if isinstance(from_, NullType):
        return to.is_nullable or explicit
    if not explicit and from_.is_nullable and not to.is_nullable:
        return False
    if from_.is_like(to):
        return True
    if explicit and isinstance(to, _TEXT) and not isinstance(from_, VariantType):
        return True
    if isinstance(from_, ArrayType | MultisetType) and type(from_) is type(to):
        return can_cast(from_.element_type, to.element_type, explicit)
    if isinstance(from_, MapType) and isinstance(to, MapType):
        return can_cast(from_.key_type, to.key_type, explicit) and can_cast(from_.value_type, to.value_type, explicit)
    if isinstance(from_, RowType) and isinstance(to, RowType):
        pairs = zip(from_.types, to.types, strict=False)
        return len(from_.fields) == len(to.fields) and all(can_cast(a, b, explicit) for a, b in pairs)
    if type(from_) in _IMPLICIT.get(type(to), ()):
        return True
    return explicit and type(from_) in _EXPLICIT.get(type(to), ())
