"""References of the kernels in `temporal`, with Python's calendar and zones.

Values are dates, times, datetimes (UTC for TIMESTAMP_LTZ), timedeltas, and numbers of months.
"""

from __future__ import annotations

import datetime as dt
from calendar import monthrange
from typing import Any
from zoneinfo import ZoneInfo

from millstream.expressions.types import DateType, DayTimeIntervalType, TimeType, YearMonthIntervalType
from millstream.runtime.expressions.kernel import CallContext, reference

__all__: list[str] = []

_EPOCH = dt.datetime(1970, 1, 1)
_UNITS = {"DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY", "DAYOFWEEK": "DOW"}
_STEPS = {
    "WEEK": dt.timedelta(weeks=1), "DAY": dt.timedelta(days=1), "HOUR": dt.timedelta(hours=1),
    "MINUTE": dt.timedelta(minutes=1), "SECOND": dt.timedelta(seconds=1), "MILLISECOND": dt.timedelta(milliseconds=1),
    "MICROSECOND": dt.timedelta(microseconds=1),
}  # fmt: skip
_MONTHS = {"MILLENNIUM": 12_000, "CENTURY": 1_200, "DECADE": 120, "YEAR": 12, "QUARTER": 3, "MONTH": 1}


def _clock(value: Any, context: CallContext) -> dt.datetime:
    """Local time: a date's midnight, a time on 1 January 1970, an instant in the session's zone."""
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else value.astimezone(ZoneInfo(context.session.zone)).replace(tzinfo=None)
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    return dt.datetime.combine(_EPOCH.date(), value)


@reference(
    "EXTRACT", "YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND"
)
def extract(context: CallContext, value: Any) -> int | None:
    if value is None:
        return None
    unit = context.option("unit") or _UNITS.get(context.call.function, context.call.function)
    type_ = context.argument_types[0]
    if isinstance(type_, YearMonthIntervalType):
        sign = 1 if value >= 0 else -1
        part: int = abs(value)
        number: int = {"MONTH": part % 12, "QUARTER": part % 12 // 3 + 1}.get(unit, part // _MONTHS.get(unit, 1))
        return sign * number
    if isinstance(type_, DayTimeIntervalType):
        return _of_interval(unit, value)
    if unit == "EPOCH" and isinstance(value, dt.datetime) and value.tzinfo is not None:
        return int((value - _EPOCH.replace(tzinfo=dt.UTC)) // dt.timedelta(seconds=1))
    clock = _clock(value, context)
    year = clock.year
    parts = {
        "YEAR": year, "QUARTER": (clock.month + 2) // 3, "MONTH": clock.month, "WEEK": clock.isocalendar()[1],
        "DAY": clock.day, "DOY": clock.timetuple().tm_yday, "DOW": clock.isoweekday() % 7 + 1,
        "ISODOW": clock.isoweekday(), "ISOYEAR": clock.isocalendar()[0], "DECADE": year // 10,
        "CENTURY": (year + 99) // 100, "MILLENNIUM": (year + 999) // 1000, "HOUR": clock.hour,
        "MINUTE": clock.minute, "SECOND": clock.second, "MILLISECOND": clock.microsecond // 1000,
        "MICROSECOND": clock.microsecond, "NANOSECOND": clock.microsecond * 1000,
        "EPOCH": (clock - _EPOCH) // dt.timedelta(seconds=1),
    }  # fmt: skip
    return parts[unit]


def _of_interval(unit: str, value: dt.timedelta) -> int:
    sign = -1 if value < dt.timedelta() else 1
    size = abs(value)
    seconds, millis = size.seconds, size.microseconds // 1000
    parts = {
        "DAY": size.days, "HOUR": seconds // 3600, "MINUTE": seconds // 60 % 60, "SECOND": seconds % 60,
        "MILLISECOND": millis, "EPOCH": size // dt.timedelta(seconds=1),
    }  # fmt: skip
    return sign * parts[unit]


def _of_type(clock: dt.datetime, value: Any, context: CallContext) -> Any:
    """Converts local time back to the type of the original value."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return clock
        return clock.replace(tzinfo=ZoneInfo(context.session.zone)).astimezone(dt.UTC)
    return clock.date() if isinstance(value, dt.date) else clock.time()


@reference("TEMPORAL FLOOR", "TEMPORAL CEIL")
def round_to_unit(context: CallContext, value: Any) -> Any:
    if value is None:
        return None
    unit = context.option("unit")
    clock = _clock(value, context)
    if unit in _STEPS:
        start = dt.datetime(1969, 12, 28) if unit == "WEEK" else _EPOCH
        floor = start + (clock - start) // _STEPS[unit] * _STEPS[unit]
        following = floor + _STEPS[unit]
    elif unit in ("CENTURY", "MILLENNIUM", "DECADE"):
        years, first = {"CENTURY": (100, 1), "MILLENNIUM": (1000, 1), "DECADE": (10, 0)}[unit]
        year = (clock.year - first) // years * years + first
        floor, following = dt.datetime(max(year, 1), 1, 1), dt.datetime(year + years, 1, 1)
    else:
        month = (clock.month - 1) // _MONTHS[unit] * _MONTHS[unit] + 1
        floor = dt.datetime(clock.year, month, 1)
        following = _plus_months(floor, _MONTHS[unit])
    is_upwards = "CEIL" in context.call.function
    return _of_type(following if is_upwards and floor != clock else floor, value, context)


def _plus_months(clock: dt.datetime, months: int) -> dt.datetime:
    whole = clock.year * 12 + clock.month - 1 + months
    year, month = whole // 12, whole % 12 + 1
    return clock.replace(year=year, month=month, day=min(clock.day, monthrange(year, month)[1]))


@reference("TEMPORAL +", "TEMPORAL -")
def add_interval(context: CallContext, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    types = context.argument_types
    intervals = (YearMonthIntervalType, DayTimeIntervalType)
    sign = -1 if context.call.function.endswith("-") else 1
    if isinstance(types[0], intervals) and isinstance(types[1], intervals):
        return left + sign * right
    if isinstance(types[0], intervals):
        return _move(right, left, types[1])
    return _move(left, sign * right, types[0])


def _move(value: Any, amount: Any, type_: Any) -> Any:
    if isinstance(amount, int):
        if isinstance(type_, TimeType):
            return value
        if isinstance(type_, DateType):
            return _plus_months(dt.datetime.combine(value, dt.time()), amount).date()
        return _plus_months(value, amount)
    if isinstance(type_, DateType):
        days = abs(amount) // dt.timedelta(days=1)
        return value + dt.timedelta(days=days if amount >= dt.timedelta() else -days)
    if isinstance(type_, TimeType):
        return (dt.datetime.combine(dt.date(1970, 1, 2), value) + amount).time()
    return value + amount


@reference("TEMPORAL *")
def multiply_interval(context: CallContext, left: Any, right: Any) -> Any:
    return None if left is None or right is None else left * right


@reference("TEMPORAL NEGATE")
def negate_interval(context: CallContext, value: Any) -> Any:
    return None if value is None else -value


@reference("TIMESTAMPADD")
def add_units(context: CallContext, count: Any, value: Any) -> Any:
    if count is None or value is None:
        return None
    unit = context.option("unit")
    type_ = context.argument_types[1]
    if isinstance(type_, DateType) and not isinstance(context.type, DateType):
        value, type_ = dt.datetime.combine(value, dt.time()), context.type
    amount = count * _MONTHS[unit] if unit in _MONTHS else count * _STEPS[unit]
    return _move(value, amount, type_)


@reference("TIMESTAMPDIFF")
def count_units(context: CallContext, start: Any, stop: Any) -> int | None:
    if start is None or stop is None:
        return None
    unit = context.option("unit")
    first, second = (_plain(value) for value in (start, stop))
    first, second = (value - dt.timedelta(microseconds=value.microsecond % 1000) for value in (first, second))
    if unit in _STEPS:
        count = abs(second - first) // _STEPS[unit]
        return count if second >= first else -count
    months = _months_between(second, first)
    count = abs(months) // _MONTHS[unit]
    return count if months >= 0 else -count


@reference("MINUS_DATE")
def interval_between(context: CallContext, later: Any, earlier: Any) -> Any:
    """The interval in months, or as a timedelta truncated to milliseconds."""
    if later is None or earlier is None:
        return None
    first, second = (_plain(value) for value in (later, earlier))
    if isinstance(context.type, YearMonthIntervalType):
        return _months_between(first, second)
    first, second = (value - dt.timedelta(microseconds=value.microsecond % 1000) for value in (first, second))
    return first - second


def _plain(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    return dt.datetime.combine(_EPOCH.date(), value)


def _months_between(later: dt.datetime, earlier: dt.datetime) -> int:
    """Whole months; compares dates first, then the time of day on the last date."""
    low, high = sorted((later.date(), earlier.date()))
    months = 0
    while _plus_months(dt.datetime.combine(low, dt.time()), months + 1).date() <= high:
        months += 1
    if later.date() < earlier.date():
        months = -months
    if _plus_months(earlier, months).date() == later.date() and later.time() < earlier.time():
        months -= 1
    return months


@reference("OVERLAPS")
def overlap(context: CallContext, *values: Any) -> bool | None:
    if None in values:
        return None
    types = context.argument_types
    if len(values) == 2:
        types = tuple(field.data_type for type_ in types for field in type_.fields)  # type: ignore[attr-defined]
        values = tuple(part for row in values for part in (row.values() if isinstance(row, dict) else row))
        if None in values:
            return None
    bounds = []
    for begin, end in ((0, 1), (2, 3)):
        is_interval = isinstance(types[end], YearMonthIntervalType | DayTimeIntervalType)
        last = _move(values[begin], values[end], types[begin]) if is_interval else values[end]
        bounds.append(sorted((values[begin], last)))
    return bool(bounds[0][1] >= bounds[1][0] and bounds[1][1] >= bounds[0][0])
