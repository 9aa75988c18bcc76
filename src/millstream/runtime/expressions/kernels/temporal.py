"""Kernels that extract fields of times, round them, and add intervals.

All computation is in integer ticks (`time_columns`). TIMESTAMP_LTZ is converted to local time in the session's zone to
extract or round to years, months, days or hours, and converted back if the result is an instant.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import beyond_range
from millstream.expressions.types import (
    DateType,
    DayTimeIntervalType,
    LocalZonedTimestampType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.runtime.expressions.calendar_days import (
    civil,
    days_of_civil,
    dense,
    iso_week,
    iso_year,
    month_days,
    weekday,
)
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.time_columns import (
    DAY_S,
    Ticks,
    both_valid,
    check_added,
    check_times,
    column,
    day_and_rest,
    is_stamp,
    local_ticks,
    moment_ticks,
    rate_of,
    ticks,
)

__all__ = ["days_with_months", "extract_field", "months_between", "round_ticks"]

Int64s = npt.NDArray[np.int64]
_DAY_MS = 86_400_000
UNIT_SECONDS = {"WEEK": 7 * DAY_S, "DAY": DAY_S, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}
UNIT_MONTHS = {"MILLENNIUM": 12_000, "CENTURY": 1_200, "DECADE": 120, "YEAR": 12, "QUARTER": 3, "MONTH": 1}
FRACTIONS = {"MILLISECOND": 1_000, "MICROSECOND": 1_000_000, "NANOSECOND": 1_000_000_000}
UNIT_OF_FUNCTION = {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEK", "DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY",
    "DAYOFWEEK": "DOW", "HOUR": "HOUR", "MINUTE": "MINUTE", "SECOND": "SECOND",
}  # fmt: skip


# --- parts --------------------------------------------------------------------------------------------------------


@kernel("EXTRACT", *UNIT_OF_FUNCTION)
def extract(context: CallContext, value: Value) -> Value:
    """EXTRACT and the functions named after units."""
    unit = context.option("unit") or UNIT_OF_FUNCTION[context.call.function]
    type_ = context.argument_types[0]
    source = ticks(value)
    if isinstance(type_, DayTimeIntervalType):
        result = _of_interval(unit, source.values)
    elif isinstance(type_, YearMonthIntervalType):
        result = _of_months(unit, source.values)
    elif unit == "EPOCH" and isinstance(type_, LocalZonedTimestampType):
        result = source.values // rate_of(type_)
    else:
        result = extract_field(unit, local_ticks(type_, source.values, context.session), rate_of(type_))
    return column(context.type, result, source.valid, context.rows)


def extract_field(unit: str, local: Int64s, rate: int) -> Int64s:
    """A field of local time, in ticks with `rate` per second."""
    if unit in FRACTIONS:
        fraction = local % rate
        return fraction * FRACTIONS[unit] // rate
    if unit == "EPOCH":
        return local // rate
    if unit in ("HOUR", "MINUTE", "SECOND"):
        seconds = local // rate
        return seconds % {"HOUR": DAY_S, "MINUTE": 3600, "SECOND": 60}[unit] // UNIT_SECONDS[unit]
    return dense(local // (rate * DAY_S), lambda days: _of_days(unit, days))


def _of_days(unit: str, days: Int64s) -> Int64s:
    if unit == "DOW":
        return weekday(days) % 7 + 1
    if unit == "ISODOW":
        return weekday(days)
    if unit == "WEEK":
        return iso_week(days)
    if unit == "ISOYEAR":
        return iso_year(days)
    year, month, day = civil(days)
    if unit == "DOY":
        return days - days_of_civil(year, np.ones_like(year), np.ones_like(year)) + 1
    if unit in ("CENTURY", "MILLENNIUM"):
        # The first century covers the years 1 to 100; the preceding one, the first BC, the years -99 to 0.
        length = 100 if unit == "CENTURY" else 1000
        return np.where(year > 0, (year + length - 1) // length, -((-year + length) // length))
    return {
        "YEAR": year, "QUARTER": (month + 2) // 3, "MONTH": month, "DAY": day, "DECADE": year // 10,
    }[unit]  # fmt: skip


def _of_interval(unit: str, values: Int64s) -> Int64s:
    """A field of an interval, with the interval's sign."""
    size, sign = np.abs(values), np.sign(values)
    lengths = {"DAY": (None, _DAY_MS), "HOUR": (_DAY_MS, 3_600_000), "MINUTE": (3_600_000, 60_000)}
    lengths |= {"SECOND": (60_000, 1_000), "MILLISECOND": (1_000, 1), "EPOCH": (None, 1_000)}
    whole, length = lengths[unit]
    part = (size if whole is None else size % whole) // length
    return np.asarray(sign * part, np.int64)


def _of_months(unit: str, values: Int64s) -> Int64s:
    size, sign = np.abs(values), np.sign(values)
    if unit in ("MONTH", "QUARTER"):
        part: Int64s = size % 12 if unit == "MONTH" else size % 12 // 3 + 1
    else:
        part = size // UNIT_MONTHS[unit]
    return np.asarray(sign * part, np.int64)


# --- rounding -----------------------------------------------------------------------------------------------------


@kernel("TEMPORAL FLOOR", "TEMPORAL CEIL")
def round_to_unit(context: CallContext, value: Value) -> Value:
    """FLOOR and CEIL of a time to a unit."""
    type_ = context.argument_types[0]
    source = ticks(value)
    unit = context.option("unit")
    if isinstance(type_, TimeType) and (unit in UNIT_MONTHS or unit in ("WEEK", "DAY")):
        raise EvaluationError(f"a time of day cannot be rounded to {unit}")
    upwards = context.call.function.endswith(("CEIL", "CEILING"))
    local = local_ticks(type_, source.values, context.session)
    result = round_ticks(unit, local, rate_of(type_), upwards)
    is_beyond = result < local if upwards else result > local  # the sum wrapped around at 64 bits
    if is_beyond.any():
        raise EvaluationError(beyond_range("the result", context.type), int(np.argmax(is_beyond)))
    if isinstance(type_, TimeType):
        result %= _DAY_MS
    return column(context.type, moment_ticks(type_, result, context.session), source.valid, context.rows)


def round_ticks(unit: str, local: Int64s, rate: int, upwards: bool) -> Int64s:
    """Local time at the current (or next) start of a unit. Weeks start on Sunday."""
    if unit in FRACTIONS:
        step = rate // FRACTIONS[unit] or 1
        return -(-local // step) * step if upwards else local // step * step
    if unit in UNIT_SECONDS and unit != "WEEK":
        step = UNIT_SECONDS[unit] * rate
        return (-(-local // step) if upwards else local // step) * step
    day, rest = day_and_rest(local, rate)
    floor = dense(day, lambda days: _unit_start(unit, days))
    if not upwards:
        return floor * DAY_S * rate
    is_floor = (floor == day) & (rest == 0)
    following = dense(day, lambda days: _unit_start(unit, days, later=1))
    return np.where(is_floor, floor, following) * (DAY_S * rate)


def _unit_start(unit: str, days: Int64s, later: int = 0) -> Int64s:
    """The first day of the unit that contains each day, or of a later unit."""
    if unit == "WEEK":
        return ((days + 4) // 7 + later) * 7 - 4  # 1970 began on a Thursday
    year, month, _ = civil(days)
    length = UNIT_MONTHS[unit]
    # Centuries and millennia start with a year 1.
    begin = 12 if unit in ("CENTURY", "MILLENNIUM") else 0
    months = ((year * 12 + month - 1 - begin) // length + later) * length + begin
    return days_of_civil(months // 12, months % 12 + 1, np.ones_like(months))


# --- arithmetic ---------------------------------------------------------------------------------------------------


@kernel("TEMPORAL +", "TEMPORAL -")
def add_interval(context: CallContext, left: Value, right: Value) -> Value:
    """Adds or subtracts a time and an interval, or two intervals."""
    types = context.argument_types
    sign = -1 if context.call.function.endswith("-") else 1
    first, second = ticks(left), ticks(right)
    valid = both_valid(first, second)
    intervals = (YearMonthIntervalType, DayTimeIntervalType)
    if isinstance(types[0], intervals) and isinstance(types[1], intervals):
        return column(context.type, first.values + sign * second.values, valid, context.rows)
    if isinstance(types[0], intervals):
        types, first, second = (types[1], types[0]), second, first
    moved = _move(context, types[0], types[1], first.values, sign * second.values)
    return column(context.type, moved, valid, context.rows)


def _move(context: CallContext, type_: DataType, interval: DataType, values: Int64s, amount: Int64s) -> Int64s:
    """Times moved by an interval. Adding months keeps the time of day, and the day of month if the month has it."""
    if isinstance(interval, YearMonthIntervalType):
        if isinstance(type_, TimeType):
            return values + 0 * amount
        if isinstance(type_, DateType):
            return days_with_months(values, amount)
        # Months of an instant are added in UTC, regardless of the session's zone, as in Flink.
        rate = rate_of(type_)
        day, rest = day_and_rest(values, rate)
        moved = days_with_months(day, amount)
        check_added(type_, rest, moved, DAY_S * rate)
        return moved * (DAY_S * rate) + rest
    if isinstance(type_, DateType):
        return values + np.trunc(amount / _DAY_MS).astype(np.int64)
    if isinstance(type_, TimeType):
        return (values + amount) % _DAY_MS
    rate = rate_of(type_)
    if rate < 1_000:
        return values + amount // (1_000 // rate)
    check_added(type_, values, amount, rate // 1_000)
    return values + amount * (rate // 1_000)


def days_with_months(days: Int64s, months: Int64s) -> Int64s:
    """Adds months to days; a day beyond its month becomes the month's last day."""
    if len(months) == 1 < len(days):
        return dense(days, lambda some: _with_months(some, months))
    return _with_months(*np.broadcast_arrays(days, months))


def _with_months(days: Int64s, months: Int64s) -> Int64s:
    year, month, day = civil(days)
    whole = year * 12 + month - 1 + months
    year, month = whole // 12, whole % 12 + 1
    return days_of_civil(year, month, np.minimum(day, month_days(year, month)))


@kernel("TEMPORAL *")
def multiply_interval(context: CallContext, left: Value, right: Value) -> Value:
    """An interval multiplied by an integer."""
    first, second = ticks(left), ticks(right)
    return column(context.type, first.values * second.values, both_valid(first, second), context.rows)


@kernel("TEMPORAL NEGATE")
def negate_interval(context: CallContext, value: Value) -> Value:
    """The negated interval."""
    source = ticks(value)
    return column(context.type, -source.values, source.valid, context.rows)


@kernel("TEMPORAL DIFFERENCE")
def subtract_times(context: CallContext, left: Value, right: Value) -> Value:
    """The interval between two times of one type, in months or milliseconds."""
    types = context.argument_types
    first, second = ticks(left), ticks(right)
    if isinstance(context.type, YearMonthIntervalType):
        result = months_between(_milliseconds(types[0], first), _milliseconds(types[1], second))
    else:
        result = _milliseconds(types[0], first) - _milliseconds(types[1], second)
    return column(context.type, result, both_valid(first, second), context.rows)


def _milliseconds(type_: DataType, source: Ticks) -> Int64s:
    """Milliseconds since 1970, in UTC for an instant."""
    values = source.values * DAY_S if isinstance(type_, DateType) else source.values
    rate = rate_of(type_)
    return values * (1_000 // rate) if rate <= 1_000 else values // (rate // 1_000)


def months_between(later: Int64s, earlier: Int64s) -> Int64s:
    """Whole months between two local times in milliseconds; negative if `later` is the earlier."""
    later, earlier = np.broadcast_arrays(later, earlier)
    first_day, first_rest = day_and_rest(later, 1_000)
    second_day, second_rest = day_and_rest(earlier, 1_000)
    is_turned = first_day < second_day
    low, high = np.where(is_turned, first_day, second_day), np.where(is_turned, second_day, first_day)
    low_year, low_month, _ = civil(low)
    high_year, high_month, _ = civil(high)
    months = (high_year - low_year) * 12 + high_month - low_month
    months = months - (days_with_months(low, months) > high)
    months = np.where(is_turned, -months, months)
    # A month is complete only if the time of day is also reached.
    is_same_day = days_with_months(second_day, months) == first_day
    return np.asarray(months - (is_same_day & (first_rest < second_rest)), np.int64)


@kernel("TIMESTAMPADD")
def add_units(context: CallContext, amount: Value, time: Value) -> Value:
    """TIMESTAMPADD: a time moved by a number of units."""
    unit = context.option("unit")
    count, source = ticks(amount), ticks(time)
    type_ = context.argument_types[1]
    values = source.values
    if isinstance(type_, DateType) and not isinstance(context.type, DateType):
        check_times(context.type, values, DAY_S * rate_of(context.type))
        values, type_ = values * (DAY_S * rate_of(context.type)), context.type
    elif is_stamp(type_):
        check_times(context.type, values, rate_of(context.type) // rate_of(type_))
        values, type_ = values * (rate_of(context.type) // rate_of(type_)), context.type
    if unit == "MICROSECOND":
        check_added(type_, values, count.values, rate_of(type_) // 1_000_000)
        moved = values + count.values * (rate_of(type_) // 1_000_000)
        return column(context.type, moved, both_valid(count, source), context.rows)
    if unit in UNIT_MONTHS:
        interval: DataType = YearMonthIntervalType()
        factor = UNIT_MONTHS[unit]
    else:
        interval = DayTimeIntervalType()
        factor = UNIT_SECONDS[unit] * 1_000 if unit in UNIT_SECONDS else 1
    check_times(type_, count.values, factor)
    step = count.values * factor
    moved = _move(context, type_, interval, values, step)
    return column(context.type, moved, both_valid(count, source), context.rows)


@kernel("TIMESTAMPDIFF")
def count_units(context: CallContext, start: Value, stop: Value) -> Value:
    """The number of whole units between two times."""
    unit = context.option("unit")
    types = context.argument_types
    first, second = ticks(start), ticks(stop)
    from_ms, to_ms = _milliseconds(types[0], first), _milliseconds(types[1], second)
    if unit in UNIT_MONTHS:
        months = months_between(to_ms, from_ms)
        result = np.sign(months) * (np.abs(months) // UNIT_MONTHS[unit])
    else:
        gap = (to_ms - from_ms) * (1_000 if unit == "MICROSECOND" else 1)
        step = UNIT_SECONDS[unit] * 1_000 if unit in UNIT_SECONDS else 1
        result = np.sign(gap) * (np.abs(gap) // step)
    return column(context.type, result, both_valid(first, second), context.rows)


@kernel("MINUS_DATE")
def interval_between(context: CallContext, later: Value, earlier: Value) -> Value:
    """The interval between two times, in months or milliseconds."""
    types = context.argument_types
    first, second = ticks(later), ticks(earlier)
    later_ms, earlier_ms = _milliseconds(types[0], first), _milliseconds(types[1], second)
    in_months = isinstance(context.type, YearMonthIntervalType)
    gap = months_between(later_ms, earlier_ms) if in_months else later_ms - earlier_ms
    return column(context.type, gap, both_valid(first, second), context.rows)


@kernel("OVERLAPS")
def overlap(context: CallContext, *arguments: Value) -> Value:
    """Whether two periods have an instant in common, ends included."""
    fields = _periods(arguments)
    types = context.argument_types
    if len(arguments) == 2:
        types = tuple(field.data_type for type_ in types for field in type_.fields)  # type: ignore[attr-defined]
    bounds: list[tuple[Int64s, Int64s]] = []
    sources = [ticks(field) for field in fields]
    for begin, end in ((0, 1), (2, 3)):
        low = sources[begin].values
        if isinstance(types[end], YearMonthIntervalType | DayTimeIntervalType):
            high = _move(context, types[begin], types[end], low, sources[end].values)
        else:
            high = sources[end].values
        bounds.append((np.minimum(low, high), np.maximum(low, high)))
    (low, high), (other_low, other_high) = bounds
    result = np.broadcast_to((high >= other_low) & (other_high >= low), (context.rows,))
    valid = both_valid(*sources)
    return pa.array(result, mask=None if valid is None else ~np.broadcast_to(valid, (context.rows,)))


def _periods(arguments: tuple[Value, ...]) -> list[Value]:
    """Four columns: start and end of the first period, start and end of the second."""
    if len(arguments) == 4:
        return list(arguments)
    columns: list[Value] = []
    for argument in arguments:
        rows = pa.repeat(argument, 1) if isinstance(argument, pa.Scalar) else argument
        columns += rows.flatten()
    return columns
