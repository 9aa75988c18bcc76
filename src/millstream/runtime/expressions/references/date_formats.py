"""References of date formatting and parsing."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from millstream.expressions.types import is_text
from millstream.runtime.expressions.java_date_parsing import read_leniently, read_strictly
from millstream.runtime.expressions.java_dates import Moment, PatternError, Reader, format_moment, pattern_parts
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.standard_dates import (
    check_precision,
    parse_date,
    parse_sql_time,
    parse_timestamp,
)
from millstream.runtime.expressions.zones import Zone, zone_of

__all__: list[str] = []

_EPOCH = dt.datetime(1970, 1, 1)
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND


def _known_zone(name: str) -> Zone:
    zone = None if name[:1] in ("+", "-") else zone_of(name)
    zone = zone or zone_of("UTC")
    assert zone is not None
    return zone


def _write(pattern: str, moment: Moment, reader: Reader) -> str:
    try:
        return format_moment(pattern_parts(pattern, reader), moment, reader)
    except PatternError as error:
        raise EvaluationError(str(error)) from None


def _simple_text(moment_ms: int, pattern: str, zone: Zone) -> str:
    offset = int(zone.simple_offsets(np.array([moment_ms // 1000]))[0])
    day, rest_ms = divmod(moment_ms + offset * 1000, 86_400_000)
    return _write(pattern, Moment(day, rest_ms * 1_000_000, zone, offset, is_julian=True), Reader.SIMPLE)


def _lenient_ms(text: str, pattern: str, zone: Zone, context: CallContext) -> int | None:
    this_year = 1970 + context.session.now_us // (31_556_952 * 1_000_000)
    try:
        clock = read_leniently(pattern_parts(pattern, Reader.SIMPLE), text, this_year)
    except PatternError as error:
        raise EvaluationError(str(error)) from None
    if clock is None:
        return None
    local_ms = clock.nano // 1_000_000
    offset = clock.offset
    if offset is None:
        offset = int(zone.simple_local_offsets(np.array([local_ms // 1000]))[0])
    return local_ms - offset * 1000


def _since_epoch_ns(value: dt.datetime) -> int:
    micros: int = (value - _EPOCH) // dt.timedelta(microseconds=1)
    return micros * 1000


@reference("DATE_FORMAT")
def format_date(context: CallContext, value: Any, pattern: str | None) -> str | None:
    if value is None or pattern is None:
        return None
    if is_text(context.argument_types[0]):
        moment_ms = _lenient_ms(value, _DEFAULT_PATTERN, _known_zone("UTC"), context)
        return None if moment_ms is None else _simple_text(moment_ms, pattern, _known_zone("UTC"))
    if value.tzinfo is not None:
        value = value.astimezone(ZoneInfo(context.session.zone)).replace(tzinfo=None)
    day, rest = divmod(_since_epoch_ns(value), _DAY)
    return _write(pattern, Moment(day, rest), Reader.FORMATTER)


@reference("FROM_UNIXTIME")
def write_seconds(context: CallContext, seconds: int | None, pattern: str | None = _DEFAULT_PATTERN) -> str | None:
    if seconds is None or pattern is None:
        return None
    return _simple_text(seconds * 1000, pattern, _known_zone(context.session.zone))


@reference("CONVERT_TZ")
def convert_zone(context: CallContext, text: str | None, from_: str | None, to: str | None) -> str | None:
    if text is None or from_ is None or to is None:
        return None
    moment_ms = _lenient_ms(text, _DEFAULT_PATTERN, _known_zone(from_), context)
    return None if moment_ms is None else _simple_text(moment_ms, _DEFAULT_PATTERN, _known_zone(to))


@reference("TO_DATE")
def read_date(context: CallContext, text: str | None, *pattern: str | None) -> dt.date | None:
    if text is None or None in pattern:
        return None
    if pattern:
        moment_ms = _lenient_ms(text, str(pattern[0]), _known_zone("UTC"), context)
        day = None if moment_ms is None else moment_ms // 86_400_000
    else:
        day = parse_date(text)
    return None if day is None else _EPOCH.date() + dt.timedelta(days=day)


def _strict_ns(text: str, pattern: str) -> int | None:
    try:
        clock = read_strictly(pattern_parts(pattern, Reader.FORMATTER), text)
    except PatternError as error:
        raise EvaluationError(str(error)) from None
    return parse_sql_time(text) if clock is None else clock.nano


def _datetime(nano: int, step: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=nano // step * step // 1000)


@reference("TO_TIMESTAMP")
def read_timestamp(context: CallContext, text: str | None, *pattern: str | None) -> dt.datetime | None:
    if text is None or None in pattern:
        return None
    nano = _strict_ns(text, str(pattern[0])) if pattern else parse_timestamp(text)
    return None if nano is None else _datetime(nano, 1_000_000)


@reference("TO_TIMESTAMP_LTZ")
def read_moment(context: CallContext, value: Any, *rest: Any) -> dt.datetime | None:
    if value is None or None in rest:
        return None
    step = {"ms": 1_000_000, "us": 1_000, "ns": 1}[context.type.arrow.unit]
    if is_text(context.argument_types[0]):
        zone = zone_of(rest[1]) if len(rest) > 1 else zone_of("UTC")
        nano = _strict_ns(value, rest[0]) if rest else parse_timestamp(value)
        if nano is None and not rest:
            raise EvaluationError(f"the text {value!r} is not a timestamp like '2020-02-29 12:34:56'")
        if nano is None or zone is None:
            return None
        nano -= zone.local_offset(nano // _SECOND) * _SECOND
    else:
        digits = rest[0] if rest else 3
        check_precision(digits)
        nano = int(value) * 10 ** (9 - digits) if not isinstance(value, float) else value * 10 ** (9 - digits)
        if not -62_167_219_200 * _SECOND <= nano < 253_402_300_800 * _SECOND:
            return None
        nano = int(nano)
    return _datetime(nano, step).replace(tzinfo=dt.UTC)


@reference("UNIX_TIMESTAMP")
def read_seconds(context: CallContext, *arguments: str | None) -> int | None:
    if not arguments:
        return context.session.now_us // 1_000_000
    if None in arguments:
        return None
    pattern = str(arguments[1]) if len(arguments) > 1 else _DEFAULT_PATTERN
    moment_ms = _lenient_ms(str(arguments[0]), pattern, _known_zone(context.session.zone), context)
    return -(2**63) if moment_ms is None else int(moment_ms / 1000)
