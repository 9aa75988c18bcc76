"""The range of times in nanoseconds: TIMESTAMP(7) to (9) and TIMESTAMP_LTZ(7) to (9) are 64 bits since 1970.

Types of up to 6 digits reach all years that SQL writes. A time beyond the range is refused with these words, wherever
nanoseconds are made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.expressions.data_type import DataType
from millstream.expressions.types import DateType, LocalZonedTimestampType, TimestampType

__all__ = ["FIRST", "LAST", "beyond_range", "has_nanoseconds", "is_within_range", "uncast_times"]

FIRST, LAST = "1677-09-21 00:12:43.145224192", "2262-04-11 23:47:16.854775807"


def has_nanoseconds(type_: DataType) -> bool:
    """Whether values of the type are stored as nanoseconds."""
    return isinstance(type_, TimestampType | LocalZonedTimestampType) and type_.precision > 6


def is_within_range(nanoseconds: int) -> bool:
    """Whether 64 bits hold so many nanoseconds since 1970."""
    return -(1 << 63) <= nanoseconds < 1 << 63


def beyond_range(subject: str, type_: DataType) -> str:
    """What is told of a time that a type does not hold.

    >>> print(beyond_range("the result", TimestampType(9)))
    the result is beyond TIMESTAMP(9) (nanoseconds, from 1677-09-21 00:12:43.145224192 to \
2262-04-11 23:47:16.854775807 in UTC; TIMESTAMP(6) reaches further)
    """
    words = f"{subject} is beyond {type_.nullable()}"
    if not isinstance(type_, TimestampType | LocalZonedTimestampType) or not has_nanoseconds(type_):
        return words
    wider = type(type_)(6)
    return f"{words} (nanoseconds, from {FIRST} to {LAST} in UTC; {wider} reaches further)"


def uncast_times(types: Sequence[DataType], common: DataType) -> list[DataType] | None:
    """The types in which times are compared whose common type has nanoseconds, where some reach further: each keeps its
    digits, and no time is beyond the range of another. None where all are of the common type."""
    if not isinstance(common, TimestampType | LocalZonedTimestampType) or not has_nanoseconds(common):
        return None
    result: list[DataType] = []
    for type_ in types:
        precision = common.precision
        if isinstance(type_, DateType):
            precision = 0
        elif isinstance(type_, TimestampType | LocalZonedTimestampType):
            precision = type_.precision
        result.append(type(common)(precision))
    return None if all(map(has_nanoseconds, result)) else result
