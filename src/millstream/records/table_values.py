"""Values of SQL types: the Python value of a column, and its conversion in both directions.

They are PyFlink's values: `decimal.Decimal`, `datetime.date`, `.time`, `.datetime`, `.timedelta`, an int of months,
`Row`, list, dict (for a MULTISET: multiplicities by value); for TIMESTAMP_LTZ a datetime in UTC. It also accepts a
datetime in any zone or without a zone (interpreted as UTC), and an `Instant`. Excess precision is handled as in Flink:
decimals round half up, times are truncated. Values too large for a type are rejected, and so is NULL for NOT NULL.

`conformed` defines it value by value, `codec_for` converts a column at a time, and both agree.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.time import Instant
from millstream.errors import TypeMismatchError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import FIRST, LAST
from millstream.expressions.nested_types import RowType
from millstream.records.codecs import Codec, DateCodec, DecimalCodec, Doubt, NoneType
from millstream.records.row_codec import RowCodec

__all__ = ["TableRowCodec", "UnfitValue", "codec_for", "conformed"]

_EPOCH = dt.datetime(1970, 1, 1)
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""The microseconds to which a Python value of the unit is truncated; Python has no finer resolution."""


class UnfitValue(Exception):
    """The value does not fit; the message describes one that would."""


def conformed(value: Any, data_type: DataType) -> Any:
    """The value as the column stores it, for types without a `table_type.plain_equivalent`."""
    return _CONFORMING[type(data_type)](value, data_type)


def _decimal(value: Any, data_type: DataType) -> decimal.Decimal:
    assert isinstance(data_type, types.DecimalType)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = decimal.Decimal(int(value))
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        raise UnfitValue("a decimal.Decimal")
    if not value:
        return decimal.Decimal((0, (0,), -data_type.scale))  # with any exponent
    # Enough digits for any number that fits after rounding; a number with more integer digits does not fit.
    wide = decimal.Context(prec=max(100, len(value.as_tuple().digits) + 50), rounding=decimal.ROUND_HALF_UP)
    if value.adjusted() <= data_type.precision - data_type.scale:
        rounded = value.quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=wide)
        if len(rounded.as_tuple().digits) <= data_type.precision:
            return rounded if rounded else abs(rounded)
    whole = data_type.precision - data_type.scale
    raise UnfitValue(f"a number with at most {whole} digits before the point")


def _time(value: Any, data_type: DataType) -> dt.time:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        raise UnfitValue("a datetime.time without a zone")
    return dt.time(value.hour, value.minute, value.second, value.microsecond // 1_000 * 1_000)


def _micros(value: Any, data_type: DataType) -> int:
    """Microseconds since 1970, truncated to the type's unit."""
    if isinstance(value, Instant):
        micros = value.seconds * 1_000_000 + value.nanos // 1_000
    elif isinstance(value, dt.datetime):
        try:
            wall = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        except OverflowError:
            raise UnfitValue("a datetime whose UTC time is within the years 1 to 9999") from None
        micros = (wall - _EPOCH) // dt.timedelta(microseconds=1)
    else:
        raise UnfitValue("a datetime.datetime")
    unit = _MICROS[data_type.arrow.unit]
    cut: int = micros - micros % unit
    if data_type.arrow.unit == "ns" and not -(1 << 63) <= cut * 1_000 < 1 << 63:
        raise UnfitValue(f"a time from {FIRST} to {LAST} (UTC), as nanoseconds reach no further")
    return cut


def _timestamp(value: Any, data_type: DataType) -> dt.datetime:
    if isinstance(value, Instant):
        raise UnfitValue("a datetime.datetime, as TIMESTAMP is not a point in time; use TIMESTAMP_LTZ")
    return _EPOCH + dt.timedelta(microseconds=_micros(value, data_type))


def _local_timestamp(value: Any, data_type: DataType) -> dt.datetime:
    try:
        wall = _EPOCH + dt.timedelta(microseconds=_micros(value, data_type))
    except OverflowError:
        raise UnfitValue("a time within the years 1 to 9999") from None
    return wall.replace(tzinfo=dt.UTC)


def _interval(value: Any, data_type: DataType) -> dt.timedelta:
    if not isinstance(value, dt.timedelta):
        raise UnfitValue("a datetime.timedelta")
    return dt.timedelta(milliseconds=value // dt.timedelta(milliseconds=1))


def _null(value: Any, data_type: DataType) -> Any:
    raise UnfitValue("None")


_CONFORMING: dict[type[DataType], Callable[[Any, DataType], Any]] = {
    types.DecimalType: _decimal,
    types.TimeType: _time,
    types.TimestampType: _timestamp,
    types.LocalZonedTimestampType: _local_timestamp,
    types.DayTimeIntervalType: _interval,
    types.NullType: _null,
}


class _TimeCodec(Codec):
    """Milliseconds since midnight."""

    def __init__(self, data_type: DataType) -> None:
        super().__init__(data_type.arrow, dt.time)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        if not set(map(type, values)) <= self._allowed_types:
            raise Doubt
        present = [value for value in values if value is not None]
        if any([value.tzinfo is not None or value.microsecond % 1_000 for value in present]):  # noqa: C419 - faster
            raise Doubt
        return self._array(values), True


class _TimestampCodec(DateCodec):
    """Timestamps of any unit; UTC timestamps are read back with that zone."""

    def __init__(self, data_type: DataType) -> None:
        Codec.__init__(self, data_type.arrow, dt.datetime)
        self._is_zoned = data_type.arrow.tz is not None
        self._cut_micros = _MICROS[data_type.arrow.unit]

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = super().encode(values)
        zone, cut = (dt.UTC if self._is_zoned else None), self._cut_micros
        present = [value for value in values if value is not None]
        if any([value.tzinfo is not zone or value.microsecond % cut for value in present]):  # noqa: C419 - faster
            raise Doubt
        return array, is_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        # Python has no nanoseconds: they are truncated to microseconds.
        micros = _floored(array) if self.arrow.unit == "ns" else array.cast(pa.timestamp("us", self.arrow.tz))
        moments = micros.to_numpy(zero_copy_only=False).tolist()
        if int in set(map(type, moments)):  # numpy returns ints for years outside datetime's range
            shown = str(micros[next(at for at, moment in enumerate(moments) if type(moment) is int)].cast(pa.string()))
            raise TypeMismatchError(
                f"the time {shown} is of a year outside the range of Python's datetime, 1 to 9999. Filter such "
                "rows out before, or CAST the column to STRING",
                value=shown,
            )
        if not self._is_zoned:
            return moments  # type: ignore[no-any-return]
        return [None if moment is None else moment.replace(tzinfo=dt.UTC) for moment in moments]


def _floored(nanoseconds: pa.Array) -> pa.Array:
    """Microseconds, rounded down. Arrow's cast would round towards 1970."""
    numbers = nanoseconds.view(pa.int64()).fill_null(0).to_numpy() // 1_000
    mask = np.asarray(nanoseconds.is_null()) if nanoseconds.null_count else None
    return pa.array(numbers, mask=mask).view(pa.timestamp("us", nanoseconds.type.tz))


class _IntervalCodec(Codec):
    def __init__(self, data_type: DataType) -> None:
        super().__init__(data_type.arrow, dt.timedelta)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = super().encode(values)
        if any([value is not None and value.microseconds % 1_000 for value in values]):  # noqa: C419 - faster
            raise Doubt
        return array, is_lossless


class _NullCodec(Codec):
    def __init__(self, data_type: DataType) -> None:
        super().__init__(pa.null(), NoneType)


def _decimal_codec(data_type: DataType) -> Codec:
    assert isinstance(data_type, types.DecimalType)
    return DecimalCodec(data_type.precision, data_type.scale)


_CODECS: dict[type[DataType], Callable[[DataType], Codec]] = {
    types.DecimalType: _decimal_codec,
    types.TimeType: _TimeCodec,
    types.TimestampType: _TimestampCodec,
    types.LocalZonedTimestampType: _TimestampCodec,
    types.DayTimeIntervalType: _IntervalCodec,
    types.NullType: _NullCodec,
}


class _PresentCodec(Codec):
    """A codec of a NOT NULL column."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner
        self.arrow = inner.arrow

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = self._inner.encode(values)
        if array.null_count:
            raise Doubt
        return array, is_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        return self._inner.decode(array)


class _ArrowCodec(Codec):
    """A codec of one column with exactly the Arrow type of the SQL type: without field metadata or different names."""

    def __init__(self, inner: Codec, arrow: pa.DataType) -> None:
        self._inner = inner
        self.arrow = arrow

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = self._inner.encode(values)
        return array if array.type == self.arrow else array.cast(self.arrow), is_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        return self._inner.decode(array)


class TableRowCodec(RowCodec):
    """Rows of a table, which are never None."""

    def encode_batch(self, values: list[Any]) -> tuple[pa.RecordBatch, bool]:
        if NoneType in set(map(type, values)):
            raise Doubt
        return super().encode_batch(values)


def codec_for(data_type: DataType, equivalent: Codec | None) -> Codec:
    """The codec of a column; `equivalent` is the codec of the type of `Types` with the same values, if it exists."""
    codec = _CODECS[type(data_type)](data_type) if equivalent is None else equivalent
    is_same = not codec.metadata and codec.arrow.equals(data_type.arrow, check_metadata=True)
    # A row value is one column, while a row record has a column for each field.
    if not is_same or isinstance(data_type, RowType):
        codec = _ArrowCodec(codec, data_type.arrow)
    return codec if data_type.is_nullable else _PresentCodec(codec)
