"""Parses dates and timestamps in the SQL format, Flink's default without a pattern.

`parse_date` implements CAST(text AS DATE), `parse_timestamp` CAST(text AS TIMESTAMP); both return None for malformed
strings. `parse_sql_time` parses as JDBC does, Flink's fallback for strings that do not match a pattern.
"""

from __future__ import annotations

import re

import numpy as np

from millstream.runtime.expressions.calendar_days import days_of_civil, julian_days, month_days
from millstream.runtime.expressions.kernel import EvaluationError

__all__ = ["check_precision", "parse_date", "parse_sql_time", "parse_timestamp"]

_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS
_STAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)
_JDBC = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (0*\d{1,9}):(0*\d{1,9}):(0*\d{1,9})(?:\.(\d{1,9}))?)?", re.ASCII)
_NUMBER = re.compile(r"\s*\d+\s*", re.ASCII)


def parse_date(text: str) -> int | None:
    """Days since 1970 of '2020-02-29'; month and day may be missing, a time of day may follow.

    >>> parse_date("2020-2-29 12:00:00"), parse_date("2021-02-29")
    (18321, None)
    """
    blank = text.find(" ")
    if blank > 0:
        text = text[:blank]
    numbers = text.split("-", 2)
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        return None
    year, month, day = (_small(number) for number in [*numbers, *["1"] * (3 - len(numbers))])
    if year > 9999 or not 1 <= month <= 12 or not 1 <= day <= _last(year, month):
        return None
    return _day(year, month, day)


def check_precision(digits: int, row: int = 0) -> None:
    """Checks the fractional digits of TO_TIMESTAMP_LTZ; a larger number would take unbounded time to compute."""
    if not 0 <= digits <= 9:
        raise EvaluationError(f"TO_TIMESTAMP_LTZ has a precision of {digits}, expected 0 to 9", row)


def _small(digits: str) -> int:
    """Parses a number; more than nine digits yield a ten-digit number, which exceeds every year, month and day."""
    return int(digits.strip().lstrip("0")[:10] or "0")


def parse_timestamp(text: str) -> int | None:
    """Nanoseconds since 1970 of '2020-02-29 12:34:56.789' as local time; a day beyond its month becomes the last day.

    >>> parse_timestamp("1970-1-1 0:0:1.5"), parse_timestamp("1970-01-01T00:00:00")
    (1500000000, None)
    """
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(number or 0) for number in match.groups()[:6])
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= 31 or hour > 24 or minute > 59 or second > 59:
        return None
    fraction = int((match.group(7) or "").ljust(9, "0"))
    if hour == 24 and (minute or second or fraction):
        return None
    whole_day = _day(year, month, min(day, _last(year, month)))
    return whole_day * _DAY_NS + (hour * 3600 + minute * 60 + second) * _SECOND_NS + fraction


def parse_sql_time(text: str) -> int | None:
    """Nanoseconds since 1970 of local time, parsed as in JDBC: days and hours beyond their range carry over."""
    match = _JDBC.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (_small(number or "0") for number in match.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    whole_day = int(julian_days(np.array([year]), np.array([month]), np.array([day]))[0])
    fraction = int((match.group(7) or "").ljust(9, "0"))
    return whole_day * _DAY_NS + (hour * 3600 + minute * 60 + second) * _SECOND_NS + fraction


def _last(year: int, month: int) -> int:
    return int(month_days(np.array([year]), np.array([month]))[0])


def _day(year: int, month: int, day: int) -> int:
    return int(days_of_civil(np.array([year]), np.array([month]), np.array([day]))[0])
