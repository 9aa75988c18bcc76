"""Formatting and parsing of times: DATE_FORMAT, TO_DATE, TO_TIMESTAMP, FROM_UNIXTIME, UNIX_TIMESTAMP, CONVERT_TZ.

Each distinct string is parsed once. Malformed strings become NULL, as in Flink (UNIX_TIMESTAMP: the least BIGINT).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.nanosecond_range import beyond_range
from millstream.expressions.types import LocalZonedTimestampType, is_text
from millstream.runtime.expressions.date_formatting import format_column
from millstream.runtime.expressions.fixed_date_parsing import fixed_clocks, standard_clocks
from millstream.runtime.expressions.java_date_parsing import DAY_NS, SECOND_NS, read_leniently, read_strictly
from millstream.runtime.expressions.java_dates import PatternError, Reader, pattern_parts
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.standard_dates import check_precision, parse_date, parse_sql_time, parse_timestamp
from millstream.runtime.expressions.time_columns import column, local_ticks, rate_of, ticks
from millstream.runtime.expressions.zones import Zone, zone_of

__all__ = ["read_texts"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
SECONDS_PATTERN = "yyyy-MM-dd HH:mm:ss"
_LEAST = -(2**63)
_FAST_ROWS_MIN = 16
# From the year 0 to the end of 9999: the range of TO_TIMESTAMP_LTZ.
_LTZ_FIRST_S, _LTZ_END_S = -62_167_219_200, 253_402_300_800


# --- shared -------------------------------------------------------------------------------------------------------


def read_texts(rows: int, function: Callable[..., int | None], *arguments: Value) -> tuple[Int64s, Bools]:
    """`function` of strings, called once per distinct combination; invalid where it returns None or a string is
    NULL."""
    columns: list[tuple[npt.NDArray[np.int64], list[Any]]] = []
    for argument in arguments:
        if isinstance(argument, pa.Scalar):
            columns.append((np.zeros(1, np.int64), [argument.as_py()]))
            continue
        encoded = argument.dictionary_encode(null_encoding="encode")
        columns.append(
            (encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist())
        )
    # The code of a combination is a mixed-radix number of the columns' indexes.
    codes = np.zeros(1, np.int64)
    for places, values in columns:
        codes = codes * len(values) + places
    distinct, inverse = np.unique(np.broadcast_to(codes, (rows,)), return_inverse=True)
    results = np.zeros(len(distinct), np.int64)
    valid = np.zeros(len(distinct), np.bool_)
    for place, code in enumerate(distinct.tolist()):
        combination = []
        for _, values in reversed(columns):
            code, at = divmod(code, len(values))
            combination.append(values[at])
        if None in combination:
            continue
        try:
            result = function(*reversed(combination))
        except (PatternError, EvaluationError) as error:
            raise EvaluationError(str(error), int(np.argmax(inverse == place))) from None
        if result is not None and not -(2**63) <= result < 2**63:
            row = int(np.argmax(inverse == place))
            raise EvaluationError("the result is outside the range of nanoseconds (years 1678 to 2261)", row)
        if result is not None:
            results[place], valid[place] = result, True
    return results[inverse], valid[inverse]


def _read_fast(
    rows: int,
    texts: Value,
    pattern: tuple[str, Reader] | None,
    finish: Callable[[Int64s], Int64s],
    by_reference: Callable[[str], int | None],
) -> tuple[Int64s, Bools]:
    """Parses plain strings all at once; `finish` converts local times in nanoseconds. Else `by_reference`."""
    if isinstance(texts, pa.Scalar) or rows < _FAST_ROWS_MIN:
        return read_texts(rows, by_reference, texts)
    try:
        parts = None if pattern is None else pattern_parts(*pattern)
    except PatternError:
        return read_texts(rows, by_reference, texts)  # raises for the first row with a string
    if (
        pattern is not None
        and pattern[1] is Reader.SIMPLE
        and any(p.letter == "S" and p.width != 3 for p in parts or ())
    ):
        return read_texts(rows, by_reference, texts)  # here S is a number of milliseconds, not a fraction
    clocks, valid = standard_clocks(texts) if parts is None else fixed_clocks(parts, texts)
    values = finish(clocks)
    unread = np.flatnonzero(~valid & np.asarray(texts.is_valid()))
    if len(unread):
        rest, rest_valid = read_texts(len(unread), by_reference, texts.take(pa.array(unread)))
        values[unread], valid[unread] = rest, rest_valid
    return values, valid


def _broadcast(value: Value, rows: int) -> tuple[Int64s, Bools | None]:
    source = ticks(value)
    valid = None if source.valid is None else np.broadcast_to(source.valid, (rows,))
    return np.ascontiguousarray(np.broadcast_to(source.values, (rows,))), valid


Write = Callable[[str, Int64s, Bools | None], pa.Array]
"""(pattern, numbers, validity) → strings."""


def _by_pattern(pattern: Value, numbers: Int64s, valid: Bools | None, write: Write) -> Value:
    """Formats each number by its row's pattern; rows with the same pattern are formatted together."""
    rows = len(numbers)
    if isinstance(pattern, pa.Scalar):
        text = pattern.as_py()
        return pa.nulls(rows, pa.string()) if text is None else _write_texts(write, text, numbers, valid, None)
    encoded = pattern.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    pieces: list[pa.Array] = []
    for text, start, stop in zip(
        encoded.dictionary.to_pylist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        places = order[start:stop]
        if text is None:
            pieces.append(pa.nulls(len(places), pa.string()))
        else:
            valid_rows = None if valid is None else valid[places]
            pieces.append(_write_texts(write, text, numbers[places], valid_rows, places))
    back = np.empty(rows, np.int64)
    back[order] = np.arange(rows)
    return pa.concat_arrays(pieces).take(pa.array(back))


def _write_texts(
    write: Write, pattern: str, numbers: Int64s, valid: Bools | None, places: npt.NDArray[Any] | None
) -> pa.Array:
    """Formats numbers; an invalid pattern is reported for the first row that needs it."""
    if valid is not None and not valid.any():
        return pa.nulls(len(numbers), pa.string())
    try:
        return write(pattern, numbers, valid)
    except PatternError as error:
        first = 0 if valid is None else int(np.argmax(valid))
        raise EvaluationError(str(error), first if places is None else int(places[first])) from None


def _zone(name: str) -> Zone:
    """A zone by Java's older classes; unknown names are UTC."""
    is_bare_offset = name[:1] in ("+", "-")
    return (None if is_bare_offset else zone_of(name)) or zone_of("UTC")  # type: ignore[return-value]


def _this_year(context: CallContext) -> int:
    return 1970 + int(context.session.now_us // (31_556_952 * 1_000_000))


def _lenient_ms(text: str, pattern: str, zone: Zone, this_year: int) -> int | None:
    """Milliseconds since 1970 of strings parsed by `SimpleDateFormat` in a zone."""
    clock = read_leniently(pattern_parts(pattern, Reader.SIMPLE), text, this_year)
    if clock is None:
        return None
    local_ms = clock.nano // 1_000_000
    if clock.offset is not None:
        return local_ms - clock.offset * 1_000
    return local_ms - int(zone.simple_local_offsets(np.array([local_ms // 1_000]))[0]) * 1_000


# --- to text ------------------------------------------------------------------------------------------------------


@kernel("DATE_FORMAT")
def format_date(context: CallContext, value: Value, pattern: Value) -> Value:
    """Formats a timestamp by a `DateTimeFormatter` pattern, or a string in SQL format by a `SimpleDateFormat`
    pattern."""
    type_ = context.argument_types[0]
    if is_text(type_):
        year = _this_year(context)
        utc = _zone("UTC")
        moments, is_parsed = read_texts(context.rows, lambda text: _lenient_ms(text, SECONDS_PATTERN, utc, year), value)

        return _by_pattern(pattern, moments, is_parsed, partial(_simple_column, zone=utc))
    values, valid = _broadcast(value, context.rows)
    local, rate = local_ticks(type_, values, context.session), rate_of(type_)

    def write(text: str, clocks: Int64s, is_set: Bools | None) -> pa.Array:
        return format_column(pattern_parts(text, Reader.FORMATTER), clocks, rate, Reader.FORMATTER, is_set)

    return _by_pattern(pattern, local, valid, write)


def _simple_column(pattern: str, moments_ms: Int64s, valid: Bools | None, zone: Zone) -> pa.Array:
    """Formats instants by a pattern of `SimpleDateFormat`; with zone letters, each instant separately."""
    parts = pattern_parts(pattern, Reader.SIMPLE)
    if any(part.letter and part.letter in "zZX" for part in parts):
        return format_column(parts, moments_ms, 1_000, Reader.SIMPLE, valid, zone)
    local = moments_ms + zone.simple_offsets(moments_ms // 1_000) * 1_000
    return format_column(parts, local, 1_000, Reader.SIMPLE, valid)


@kernel("FROM_UNIXTIME")
def write_seconds(context: CallContext, seconds: Value, pattern: Value | None = None) -> Value:
    """Formats seconds since 1970 in the session's zone."""
    values, valid = _broadcast(seconds, context.rows)
    with np.errstate(over="ignore"):
        moments = values * 1_000
    zone = _zone(context.session.zone)
    by = pa.scalar(SECONDS_PATTERN) if pattern is None else pattern
    return _by_pattern(by, moments, valid, partial(_simple_column, zone=zone))


@kernel("CONVERT_TZ")
def convert_zone(context: CallContext, text: Value, from_: Value, to: Value) -> Value:
    """Converts local time of one zone, as a string, to local time of another zone."""
    year = _this_year(context)
    usual = pattern_parts(SECONDS_PATTERN, Reader.SIMPLE)

    def convert(clock: str, source: str, target: str) -> int | None:
        moment = _lenient_ms(clock, SECONDS_PATTERN, _zone(source), year)
        if moment is None:
            return None
        return moment + int(_zone(target).simple_offsets(np.array([moment // 1_000]))[0]) * 1_000

    local, valid = read_texts(context.rows, convert, text, from_, to)
    return format_column(usual, local, 1_000, Reader.SIMPLE, valid)


# --- from text ----------------------------------------------------------------------------------------------------


@kernel("TO_DATE")
def read_date(context: CallContext, text: Value, pattern: Value | None = None) -> Value:
    """Parses a date."""
    if pattern is None:
        days, valid = _read_fast(context.rows, text, ("yyyy-MM-dd", Reader.FORMATTER), _days_of, parse_date)
    else:
        year, utc = _this_year(context), _zone("UTC")

        def read(source: str, by: str) -> int | None:
            moment = _lenient_ms(source, by, utc, year)
            return None if moment is None else moment // 86_400_000

        if isinstance(pattern, pa.Scalar) and pattern.is_valid:
            format_ = pattern.as_py()
            days, valid = _read_fast(
                context.rows, text, (format_, Reader.SIMPLE), _days_of, lambda source: read(source, format_)
            )
        else:
            days, valid = read_texts(context.rows, read, text, pattern)
    return column(context.type, days, valid, context.rows)


def _days_of(clocks: Int64s) -> Int64s:
    return np.asarray(clocks // DAY_NS, np.int64)


def _strict_nano(text: str, pattern: str) -> int | None:
    """Nanoseconds of local time by the pattern, or by the JDBC format, which is Flink's fallback."""
    clock = read_strictly(pattern_parts(pattern, Reader.FORMATTER), text)
    return parse_sql_time(text) if clock is None else clock.nano


@kernel("TO_TIMESTAMP")
def read_timestamp(context: CallContext, text: Value, pattern: Value | None = None) -> Value:
    """Parses a timestamp."""
    step = SECOND_NS // rate_of(context.type)

    def finish(clocks: Int64s) -> Int64s:
        return clocks // step

    if pattern is None:
        values, valid = _read_fast(
            context.rows, text, None, finish, lambda source: _in_steps(parse_timestamp(source), step)
        )
    elif isinstance(pattern, pa.Scalar) and pattern.is_valid:
        by = pattern.as_py()
        values, valid = _read_fast(
            context.rows,
            text,
            (by, Reader.FORMATTER),
            finish,
            lambda source: _in_steps(_strict_nano(source, by), step),
        )
    else:
        values, valid = read_texts(
            context.rows, lambda source, by: _in_steps(_strict_nano(source, by), step), text, pattern
        )
    return column(context.type, values, valid, context.rows)


def _in_steps(nano: int | None, step: int) -> int | None:
    return None if nano is None else nano // step


@kernel("TO_TIMESTAMP_LTZ")
def read_moment(context: CallContext, value: Value, *rest: Value) -> Value:
    """An instant from a string, or from a number since 1970 and its count of fractional digits."""
    type_ = context.argument_types[0]
    if is_text(type_):
        return _moment_of_text(context, value, *rest)
    source = value if not isinstance(value, pa.Scalar) else pa.repeat(value, context.rows)
    digits = np.broadcast_to(ticks(rest[0]).values, (context.rows,)) if rest else np.full(context.rows, 3)
    valid = np.asarray(source.is_valid())
    if rest:
        known = ticks(rest[0]).valid
        valid = valid if known is None else valid & np.broadcast_to(known, (context.rows,))
        for row in np.flatnonzero(valid & ((digits < 0) | (digits > 9)))[:1]:
            check_precision(int(digits[row]), int(row))
        digits = np.clip(digits, 0, 9)
    rate = rate_of(context.type)
    values, fits = _scale_ticks(source, digits, rate)
    return column(context.type, np.where(fits, values, 0), valid & fits, context.rows)


def _scale_ticks(source: pa.Array, digits: npt.NDArray[Any], rate: int) -> tuple[Int64s, Bools]:
    """Converts numbers of 10^-digits seconds to ticks, and checks that they are in the years 0 to 9999."""
    if pa.types.is_floating(source.type):
        numbers = pc.fill_null(source, 0).to_numpy(zero_copy_only=False).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = numbers * rate / 10.0**digits
        fits = (scaled >= _LTZ_FIRST_S * rate) & (scaled < _LTZ_END_S * rate)
        return np.where(fits, scaled, 0.0).astype(np.int64), fits
    if pa.types.is_decimal(source.type):
        source = pc.trunc(source).cast(pa.decimal128(38, 0))
        # Numbers beyond 64 bits are beyond these years, as is 2^62.
        is_far = pc.fill_null(pc.greater_equal(pc.abs(source), pa.scalar(2**62, pa.decimal128(38, 0))), False)
        source = pc.if_else(is_far, pa.scalar(None, source.type), source).cast(pa.int64()).fill_null(2**62)
    numbers = pc.fill_null(source, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    per_second = 10 ** digits.astype(np.int64)
    seconds = numbers // per_second
    fits = (seconds >= _LTZ_FIRST_S) & (seconds < _LTZ_END_S)
    if rate == SECOND_NS and (is_beyond := fits & (np.abs(seconds) > 9_223_372_035)).any():
        raise EvaluationError(beyond_range("the moment", LocalZonedTimestampType(9)), int(np.argmax(is_beyond)))
    part = (numbers - seconds * per_second) * rate // per_second
    return np.where(fits, seconds, 0) * rate + part, fits


def _moment_of_text(
    context: CallContext, text: Value, pattern: Value | None = None, zone: Value | None = None
) -> Value:
    rate = rate_of(context.type)
    utc = zone_of("UTC")
    assert utc is not None

    def moment(nano: int | None, of: Zone) -> int | None:
        if nano is None:
            return None
        return nano // (SECOND_NS // rate) - of.local_offset(nano // SECOND_NS) * rate

    def read(source: str, by: str | None = None, name: str | None = None) -> int | None:
        of = utc if name is None else zone_of(name)
        if by is None:
            nano = parse_timestamp(source)
            if nano is None:
                raise EvaluationError(f"the text {source!r} is not a timestamp like '2020-02-29 12:34:56'")
            return moment(nano, utc)
        return None if of is None else moment(_strict_nano(source, by), of)

    if isinstance(zone, pa.Scalar) and zone.is_valid and zone_of(zone.as_py()) is None:
        raise EvaluationError(f"there is no zone {zone.as_py()!r}")
    arguments = [text, *(each for each in (pattern, zone) if each is not None)]
    values, valid = read_texts(context.rows, read, *arguments)
    return column(context.type, values, valid, context.rows)


@kernel("UNIX_TIMESTAMP")
def read_seconds(context: CallContext, text: Value | None = None, pattern: Value | None = None) -> Value:
    """Seconds since 1970: of the current time, or of a string as local time in the session's zone."""
    if text is None:
        return pa.repeat(pa.scalar(context.session.now_us // 1_000_000, pa.int64()), context.rows)
    zone, year = _zone(context.session.zone), _this_year(context)

    def read(source: str, by: str = SECONDS_PATTERN) -> int:
        moment = _lenient_ms(source, by, zone, year)
        return _LEAST if moment is None else int(moment / 1_000)

    if pattern is not None and not (isinstance(pattern, pa.Scalar) and pattern.is_valid):
        values, valid = read_texts(context.rows, read, text, pattern)
        return column(context.type, values, valid, context.rows)
    by = SECONDS_PATTERN if pattern is None else pattern.as_py()

    def finish(clocks: Int64s) -> Int64s:
        moments = clocks // 1_000_000
        moments -= zone.simple_local_offsets(moments // 1_000) * 1_000
        return np.asarray(np.sign(moments) * (np.abs(moments) // 1_000), np.int64)

    values, valid = _read_fast(context.rows, text, (by, Reader.SIMPLE), finish, lambda source: read(source, by))
    return column(context.type, values, valid, context.rows)
