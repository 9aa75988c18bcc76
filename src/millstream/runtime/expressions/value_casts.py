"""Casts one value to another type: the reference of CAST, also used for pairs without a vectorised cast.

Values are Arrow's Python values. A value that cannot be cast raises `EvaluationError`. As in Flink, decimals with too
many digits become NULL, integers wrap around, and floating-point numbers saturate.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import beyond_range, has_nanoseconds, is_within_range
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType, StructuredType
from millstream.expressions.types import (
    BinaryType,
    BitmapType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
    is_text,
)
from millstream.runtime.expressions.bitmap_texts import bitmap_text
from millstream.runtime.expressions.decimal_operators import round_to_type
from millstream.runtime.expressions.kernel import EvaluationError, SessionFacts
from millstream.runtime.expressions.number_texts import (
    decimal_text,
    float_text,
    parse_decimal,
    parse_float,
    parse_integer,
)
from millstream.runtime.expressions.time_texts import (
    day_interval_text,
    month_interval_text,
    parse_day,
    parse_stamp,
    parse_time,
    time_text,
)
from millstream.runtime.expressions.zones import zone_of

__all__ = ["cast_value", "text_of"]

_TRUE = frozenset(("t", "true", "y", "yes", "1"))
_FALSE = frozenset(("f", "false", "n", "no", "0"))
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def cast_value(value: Any, from_: DataType, to: DataType, session: SessionFacts) -> Any:
    """Casts a value; NULL stays NULL."""
    if value is None:
        return None
    if isinstance(to, CharType | VarCharType):
        return sized_text(text_of(value, from_, session), to)
    if isinstance(to, BinaryType | VarBinaryType):
        return sized_bytes(value.encode() if isinstance(value, str) else value, to)
    if isinstance(to, BooleanType):
        return _boolean(value)
    if isinstance(to, NumericType):
        return _number(value, from_, to)
    if isinstance(to, DateType | TimeType | TimestampType | LocalZonedTimestampType):
        return _within_range(_time(value, from_, to, session), to)
    if isinstance(to, YearMonthIntervalType):
        return int(value)
    if isinstance(to, DayTimeIntervalType):
        return value if isinstance(value, dt.timedelta) else dt.timedelta(milliseconds=int(value))
    return _nested(value, from_, to, session)


def sized_text(text: str, type_: CharType | VarCharType) -> str:
    """Truncates a string to the length of its type; CHAR is padded with blanks."""
    cut = text[: type_.length]
    return cut.ljust(type_.length) if isinstance(type_, CharType) else cut


def sized_bytes(value: bytes, type_: BinaryType | VarBinaryType) -> bytes:
    """Truncates bytes to the length of their type; BINARY is padded with zeros."""
    cut = value[: type_.length]
    return cut.ljust(type_.length, b"\0") if isinstance(type_, BinaryType) else cut


def _boolean(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    word = value.lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise EvaluationError(f"the text {value!r} is not a BOOLEAN: expected true or false")


def _number(value: Any, from_: DataType, to: NumericType) -> Any:
    if is_text(from_):
        if isinstance(to, IntegralType):
            return parse_integer(value, to)
        return parse_decimal(value, to) if isinstance(to, DecimalType) else as_float(parse_float(value, to.name), to)
    if isinstance(value, dt.timedelta):
        value = value // dt.timedelta(milliseconds=1)
    if isinstance(to, IntegralType):
        return wrap_integer(value, to)
    if isinstance(to, DecimalType):
        if isinstance(value, float):
            if not math.isfinite(value):
                raise EvaluationError(f"{float_text(value)} is not a {to.nullable()}")
            value = decimal.Decimal(repr(value))
        return round_to_type(decimal.Decimal(int(value) if isinstance(value, bool) else value), to)
    # DECIMAL cannot represent negative zero.
    return as_float(float(value) + 0.0 if isinstance(value, decimal.Decimal) else float(value), to)


def as_float(number: float, type_: DataType) -> float:
    """Rounds to single precision if the type is FLOAT."""
    if isinstance(type_, DoubleType):
        return number
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def wrap_integer(value: Any, type_: IntegralType) -> int:
    """Narrows a number to the bits of an integer type, as Java narrows integers, decimals and floating point."""
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        # Java converts through 4 or 8 bytes and saturates there.
        bits = max(type_.bits, 32)
        limit = 1 << (bits - 1)
        value = max(
            -limit, min(limit - 1, math.trunc(value) if math.isfinite(value) else int(math.copysign(limit * 2, value)))
        )
    number = int(value) & ((1 << type_.bits) - 1)
    return number - (1 << type_.bits) if number >> (type_.bits - 1) else number


def _local(value: Any, from_: DataType, session: SessionFacts) -> dt.datetime:
    """The local time of a date, time or timestamp."""
    if isinstance(from_, DateType):
        return dt.datetime.combine(value, dt.time())
    if isinstance(from_, TimeType):
        return dt.datetime.combine(_EPOCH, value)
    if isinstance(from_, LocalZonedTimestampType):
        naive: dt.datetime = value.replace(tzinfo=None)
        zone = zone_of(session.zone)
        assert zone is not None
        return naive + dt.timedelta(seconds=zone.offset(math.floor((naive - _EPOCH) / dt.timedelta(seconds=1))))
    result: dt.datetime = value
    return result


def _time(value: Any, from_: DataType, to: DataType, session: SessionFacts) -> Any:
    if is_text(from_):
        return _parse_time(value, to, session)
    local = _local(value, from_, session)
    if isinstance(to, DateType):
        return local.date()
    precision: int = to.precision  # type: ignore[attr-defined]
    if isinstance(to, TimeType):
        return truncate(local, min(precision, 3)).time()
    if isinstance(to, LocalZonedTimestampType):
        if isinstance(from_, LocalZonedTimestampType):
            return truncate(value, precision)
        return _moment(truncate(local, precision), session)
    return truncate(local, precision)


def _within_range(moment: Any, to: DataType) -> Any:
    """Rejects an instant outside the range of nanoseconds if the type has them."""
    if has_nanoseconds(to) and not 1678 <= moment.year < 2262:
        since = moment.replace(tzinfo=None) - _EPOCH
        if not is_within_range(since // _MICROSECOND * 1_000):
            raise EvaluationError(beyond_range(str(moment.replace(tzinfo=None)), to))
    return moment


def _parse_time(text: str, to: DataType, session: SessionFacts) -> Any:
    if isinstance(to, DateType):
        return (_EPOCH + dt.timedelta(days=parse_day(text))).date()
    if isinstance(to, TimeType):
        return (_EPOCH + dt.timedelta(milliseconds=parse_time(text, to.precision))).time()
    precision: int = to.precision  # type: ignore[attr-defined]
    local = _EPOCH + dt.timedelta(microseconds=parse_stamp(text, precision, 1_000_000))
    return _moment(local, session) if isinstance(to, LocalZonedTimestampType) else local


def _moment(local: dt.datetime, session: SessionFacts) -> dt.datetime:
    """The instant of a local time in the session's zone."""
    zone = zone_of(session.zone)
    assert zone is not None
    offset = zone.local_offset(math.floor((local - _EPOCH) / dt.timedelta(seconds=1)))
    return (local - dt.timedelta(seconds=offset)).replace(tzinfo=dt.UTC)


def truncate(moment: dt.datetime, precision: int) -> dt.datetime:
    """Truncates the fraction of a second to a precision."""
    unit: int = 10 ** max(0, 6 - precision)
    return moment.replace(microsecond=moment.microsecond // unit * unit)


def text_of(value: Any, type_: DataType, session: SessionFacts) -> str:
    """Formats a value as CAST to a string does."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value
    if isinstance(type_, BooleanType):
        return "TRUE" if value else "FALSE"
    if isinstance(type_, DoubleType | FloatType):
        return float_text(value, isinstance(type_, FloatType))
    if isinstance(type_, DecimalType):
        return decimal_text(value)
    if isinstance(type_, BitmapType):
        return bitmap_text(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(type_, YearMonthIntervalType):
        return month_interval_text(value)
    if isinstance(type_, DayTimeIntervalType):
        return day_interval_text(value // dt.timedelta(milliseconds=1))
    if isinstance(type_, TimeType):
        since_midnight = dt.datetime.combine(_EPOCH, value) - _EPOCH
        return time_text(since_midnight // dt.timedelta(milliseconds=1), type_.precision)
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        local = _local(value, type_, session)
        digits = f"{local.microsecond:06d}{getattr(value, 'nanosecond', 0):03d}"[: type_.precision]
        return f"{local.year:04d}{local:-%m-%d %H:%M:%S}" + (f".{digits}" if digits else "")
    if isinstance(type_, DateType):
        return str(value.isoformat())
    return _nested_text(value, type_, session)


def _nested_text(value: Any, type_: DataType, session: SessionFacts) -> str:
    if isinstance(type_, ArrayType):
        return "[" + ", ".join(text_of(each, type_.element_type, session) for each in value) + "]"
    if isinstance(type_, MapType | MultisetType):
        pairs = value.items() if isinstance(value, dict) else value
        if isinstance(type_, MapType):
            texts = [(text_of(k, type_.key_type, session), text_of(v, type_.value_type, session)) for k, v in pairs]
        else:
            texts = [(text_of(k, type_.element_type, session), str(count)) for k, count in pairs]
        return "{" + ", ".join(f"{key}={item}" for key, item in texts) + "}"
    if isinstance(type_, RowType):
        values = value.values() if isinstance(value, dict) else value
        if isinstance(type_, StructuredType):
            fields = zip(type_.fields, values, strict=True)
            return "(" + ", ".join(f"{f.name}={text_of(v, f.data_type, session)}" for f, v in fields) + ")"
        return "(" + ", ".join(text_of(v, t, session) for v, t in zip(values, type_.types, strict=True)) + ")"
    return str(value)


def _nested(value: Any, from_: DataType, to: DataType, session: SessionFacts) -> Any:
    if isinstance(from_, ArrayType) and isinstance(to, ArrayType):
        return [cast_value(each, from_.element_type, to.element_type, session) for each in value]
    if isinstance(from_, MapType) and isinstance(to, MapType):
        return [
            (
                cast_value(k, from_.key_type, to.key_type, session),
                cast_value(v, from_.value_type, to.value_type, session),
            )
            for k, v in (value.items() if isinstance(value, dict) else value)
        ]
    if isinstance(from_, MultisetType) and isinstance(to, MultisetType):
        return [(cast_value(k, from_.element_type, to.element_type, session), count) for k, count in value]
    if isinstance(from_, RowType) and isinstance(to, RowType):
        values = value.values() if isinstance(value, dict) else value
        types = zip(values, from_.types, to.fields, strict=True)
        return {field.name: cast_value(each, type_, field.data_type, session) for each, type_, field in types}
    raise EvaluationError(f"{from_.nullable()} cannot become {to.nullable()}")
