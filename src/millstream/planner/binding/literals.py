"""Literals with Flink's types: 1 is INT, 0.908 DECIMAL(4, 3), 'abc' CHAR(3), all NOT NULL."""

from __future__ import annotations

import datetime
import decimal
import re

from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, Literal, RowExpression
from millstream.expressions.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from millstream.planner.binding.python_values import check_range, python_literal
from millstream.records.bounded_numbers import bounded_decimal, whole_part
from millstream.runtime.expressions.zones import zone_of
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["bind_interval", "bind_literal"]

_STAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?)?\Z")
_CLOCK = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\Z")
_WHOLE_CHARS_MAX = 1_000
_UNIT_MS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000, "WEEK": 604_800_000}
_UNIT_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}


def bind_literal(written: syntax.Literal, zone: str = "UTC") -> RowExpression:
    """The typed constant. Timestamps with a zone are read as local times of `zone`. A timestamp with nanoseconds
    becomes a cast of its text, because Python values lack nanoseconds."""
    kind, value = written.kind, written.value
    if kind == "NULL":
        return Literal(NullType(), None)
    if kind == "BOOLEAN":
        return Literal(
            BooleanType(value is None),
            value if isinstance(value, bool) or value is None else str(value).upper() == "TRUE",
        )
    if kind == "NUMBER":
        return _number(str(value), written)
    if kind == "TEXT":
        return Literal(CharType(max(1, len(value)), False), value)
    if kind == "BYTES":
        return Literal(BinaryType(max(1, len(value)), False), value)
    if kind == "VALUE":
        return python_literal(value, written.type, written)
    if kind == "DATE":
        return Literal(DateType(False), _stamp(value, written).date())
    if kind == "TIME":
        return _clock(value, written)
    fraction = value.strip().partition(".")[2]
    precision = len(fraction)
    stamp = _stamp(value, written)
    if kind == "TIMESTAMP_LTZ":
        bound = Literal(LocalZonedTimestampType(precision, False), _moment(stamp, zone, written))
    else:
        bound = Literal(TimestampType(precision, False), stamp)
    # Python's datetime drops up to 999 nanoseconds, which matter in the last microsecond of the range.
    check_range(bound, f"the constant '{value}'", written, int(fraction.ljust(9, "0")[6:9]))
    if fraction[6:].strip("0"):
        text = f"{stamp.replace(microsecond=0)}.{fraction}"
        site = None if written.span is None else written.span.text
        return Call(bound.type, "CAST", (Literal(CharType(len(text), False), text),), (), site)
    return bound


def _moment(stamp: datetime.datetime, zone: str, written: syntax.Literal) -> datetime.datetime:
    """Converts a zone's local time to UTC."""
    rules = zone_of(zone)
    if rules is None:
        words = f"there is no time zone '{zone}' ('table.local-time-zone')"
        raise problem(f"{words}. Use a region such as 'Europe/Berlin' or an offset such as 'GMT+02:00'", written)
    return stamp.replace(tzinfo=rules.rules).astimezone(datetime.UTC)


def _number(text: str, node: syntax.Literal) -> Literal:
    if "e" in text.lower():
        return Literal(DoubleType(False), float(text))
    if "." not in text:
        whole = int(text) if len(text) <= _WHOLE_CHARS_MAX else 2**63
        if -(2**31) <= whole < 2**31:
            return Literal(IntType(False), whole)
        if -(2**63) <= whole < 2**63:
            return Literal(BigIntType(False), whole)
        raise problem(
            f"Numeric literal '{text}' out of range: an integer literal is at most a BIGINT. Write {text}.0", node
        )
    # The precision is the number of digits: 0.908 has four.
    written = text.lstrip("+-")
    scale = len(written.partition(".")[2])
    precision = max(1, len(written.replace(".", "")))
    if precision > 38:
        raise problem(f"Numeric literal '{text}' out of range: DECIMAL has at most 38 digits", node)
    return Literal(DecimalType(precision, scale, False), decimal.Decimal(text))


def _stamp(text: str, node: syntax.Node) -> datetime.datetime:
    match = _STAMP.match(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        micros = int((match.group(7) or "").ljust(6, "0")[:6])
        return datetime.datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        shape = "'yyyy-MM-dd HH:mm:ss', with up to 9 digits after a point"
        raise problem(f"'{text}' is not a date or timestamp: write {shape}", node) from None


def _clock(text: str, node: syntax.Node) -> Literal:
    match = _CLOCK.match(text.strip())
    try:
        if match is None:
            raise ValueError
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        fraction = match.group(4) or ""
        moment = datetime.time(hour, minute, second, int(fraction.ljust(6, "0")[:6]))
    except ValueError:
        raise problem(f"'{text}' is not a time: write 'HH:mm:ss'", node) from None
    return Literal(TimeType(len(fraction), False), moment)


# --- intervals --------------------------------------------------------------------------------------------------------


def bind_interval(written: syntax.Interval) -> Literal:
    """INTERVAL '…' unit [TO unit]: months, or milliseconds."""
    first, last = written.unit.upper().rstrip("S"), (written.unit_to or written.unit).upper().rstrip("S")
    text = written.value.strip()
    sign = -1 if written.negative != text.startswith("-") else 1
    text = text.lstrip("+-")
    try:
        if first in _UNIT_MONTHS:
            return Literal(_month_type(first, last, written), sign * _months(text, first, last))
        if first not in _UNIT_MS or last not in _UNIT_MS:
            raise ValueError
        span = datetime.timedelta(milliseconds=sign * _milliseconds(text, first, last))
        return Literal(_day_type(first, last, written), span)
    except (ValueError, OverflowError):  # not a number, or beyond Python's range of days
        units = first if first == last else f"{first} TO {last}"
        raise problem(f"Illegal interval literal format '{written.value}' for INTERVAL {units}", written) from None


def _months(text: str, first: str, last: str) -> int:
    if first == last:
        return int(text) * _UNIT_MONTHS[first]
    years, months = text.split("-")
    return int(years) * 12 + int(months)


def _milliseconds(text: str, first: str, last: str) -> int:
    """Parses '1 02:03:04.5' for DAY TO SECOND: the units are separated by blanks and colons."""
    units = ["WEEK", "DAY", "HOUR", "MINUTE", "SECOND"]
    wanted = units[units.index(first) : units.index(last) + 1]
    if first == last:
        return _unit_ms(text, first) if first == "SECOND" else int(text) * _UNIT_MS[first]
    parts = re.split(r"[ :]", text)
    if len(parts) != len(wanted):
        raise ValueError
    return sum(_unit_ms(part, unit) for part, unit in zip(parts, wanted, strict=True))


def _unit_ms(text: str, unit: str) -> int:
    return whole_part(bounded_decimal(text) * _UNIT_MS[unit])


def _month_type(first: str, last: str, written: syntax.Interval) -> DataType:
    resolutions = YearMonthIntervalType.YearMonthResolution
    name = first if first == last else f"{first} TO {last}"
    chosen = resolutions.MONTH if first == "QUARTER" else resolutions(name)
    return YearMonthIntervalType(chosen, written.precision or 2, False)


def _day_type(first: str, last: str, written: syntax.Interval) -> DataType:
    resolutions = DayTimeIntervalType.DayTimeResolution
    first = "DAY" if first == "WEEK" else first
    last = "DAY" if last == "WEEK" else last
    name = first if first == last else f"{first} TO {last}"
    fraction = 6 if written.fraction is None else written.fraction
    return DayTimeIntervalType(resolutions(name), written.precision or 2, fraction, False)
