"""The range of nanosecond timestamps: TIMESTAMP(7) to (9) and TIMESTAMP_LTZ(7) to (9) are 64-bit nanoseconds since
1970.

Types of up to 6 digits cover all SQL years. All conversions to nanoseconds reject times beyond the range with the
message of this module.
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
    """Whether nanoseconds since 1970 fit 64 bits."""
    return -(1 << 63) <= nanoseconds < 1 << 63


def beyond_range(subject: str, type_: DataType) -> str:
    """The error message for a time outside the range of a type.

    >>> print(beyond_range("the result", TimestampType(9)))
    the result is beyond TIMESTAMP(9) (nanoseconds, from 1677-09-21 00:12:43.145224192 to \
2262-04-11 23:47:16.854775807 in UTC; TIMESTAMP(6) covers more)
    """
    words = f"{subject} is beyond {type_.nullable()}"
    if not isinstance(type_, TimestampType | LocalZonedTimestampType) or not has_nanoseconds(type_):
        return words
    wider = type(type_)(6)
    return f"{words} (nanoseconds, from {FIRST} to {LAST} in UTC; {wider} covers more)"


def uncast_times(types: Sequence[DataType], common: DataType) -> list[DataType] | None:
    """The types in which to compare times if their common type has nanoseconds but some of the types do not: each keeps
    its digits, so that no time is out of range. None if all have nanoseconds."""
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
