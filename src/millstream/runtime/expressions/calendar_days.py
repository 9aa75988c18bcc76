"""Calendar arithmetic over columns: days since 1970 to years, months and weeks, and back.

The calendar is proleptic Gregorian, as in Java's newer classes; `julian_days` is the calendar of the older classes,
which are Julian before 15 October 1582. In formatting, weeks start on Sunday and are counted from the week of 1 January
(United States); EXTRACT(WEEK) follows ISO 8601.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = [
    "Int64s",
    "civil",
    "days_of_civil",
    "dense",
    "iso_week",
    "iso_year",
    "julian_civil",
    "julian_days",
    "month_days",
    "weekday",
]

Int64s = npt.NDArray[np.int64]
JULIAN_END = -141_427
"""15 October 1582, the first day of the Gregorian calendar."""


def civil(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Year, month and day of month of each day.

    >>> [int(part[0]) for part in civil(np.array([18321]))]
    [2020, 2, 29]
    """
    # Years begin in March, so that the leap day is the last day of a year.
    shifted = np.asarray(days, np.int64) + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * of_year + 2) // 153
    day = of_year - (153 * month_index + 2) // 5 + 1
    month = np.where(month_index < 10, month_index + 3, month_index - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_of_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Days since 1970 of dates; a day beyond its month carries over into the next.

    >>> int(days_of_civil(np.array([2020]), np.array([2]), np.array([29]))[0])
    18321
    """
    year, month, day = (np.asarray(part, np.int64) for part in (year, month, day))
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    return np.asarray(era * 146_097 + of_era - 719_468, np.int64)


def month_days(year: Int64s, month: Int64s) -> Int64s:
    """The number of days of each month."""
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    usual = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)[np.asarray(month) - 1]
    return np.where((np.asarray(month) == 2) & is_leap, 29, usual)


def weekday(days: Int64s) -> Int64s:
    """1 for Monday to 7 for Sunday."""
    result: Int64s = (np.asarray(days, np.int64) + 3) % 7 + 1
    return result


def iso_year(days: Int64s) -> Int64s:
    """The year of the day's ISO week, which is the year of its Thursday."""
    return civil(days - weekday(days) + 4)[0]


def iso_week(days: Int64s) -> Int64s:
    """The ISO week, 1 to 53."""
    thursday = days - weekday(days) + 4
    year = civil(thursday)[0]
    return (thursday - days_of_civil(year, np.ones_like(year), np.ones_like(year))) // 7 + 1


def julian_civil(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Year, month and day in the Julian calendar until 4 October 1582, and in the Gregorian calendar afterwards."""
    gregorian = civil(days)
    # Four years are a cycle of 1461 days; as above, years begin in March.
    shifted = np.asarray(days, np.int64) + 719_470
    cycle = shifted // 1_461
    of_cycle = shifted - cycle * 1_461
    year_of_cycle = np.minimum(of_cycle // 365, 3)
    of_year = of_cycle - year_of_cycle * 365
    month_index = (5 * of_year + 2) // 153
    day = of_year - (153 * month_index + 2) // 5 + 1
    month = np.where(month_index < 10, month_index + 3, month_index - 9)
    julian = (cycle * 4 + year_of_cycle + (month <= 2), month, day)
    is_julian = np.asarray(days) < JULIAN_END
    year, month, day = (np.where(is_julian, old, new) for old, new in zip(julian, gregorian, strict=True))
    return year, month, day


def julian_days(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Days since 1970 of dates in the calendar then in use (Julian or Gregorian)."""
    gregorian = days_of_civil(year, month, day)
    shifted_year = np.asarray(year, np.int64) - (np.asarray(month) <= 2)
    of_year = (153 * (np.asarray(month) + np.where(np.asarray(month) > 2, -3, 9)) + 2) // 5 + np.asarray(day) - 1
    julian = shifted_year * 365 + shifted_year // 4 + of_year - 719_470
    return np.where(gregorian < JULIAN_END, julian, gregorian)


def dense(keys: Int64s, function: Callable[[Int64s], Int64s]) -> Int64s:
    """`function` of each key, evaluated once over the range of the keys if the range is shorter."""
    if len(keys) < 256:
        return function(keys)
    low, high = int(keys.min()), int(keys.max())
    if high - low >= len(keys):
        return function(keys)
    return function(np.arange(low, high + 1, dtype=np.int64))[keys - low]
