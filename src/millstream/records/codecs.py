"""Codecs: convert the values of one type to one Arrow array and back.

A codec converts a whole list at once: one check of the set of its Python types, one call into Arrow. It handles only
values of exactly the expected types (and None). Anything else raises `Doubt`: the caller then converts value by value
with `conform`, which either converts the values exactly or names the one that does not fit.

`encode` also returns whether it is *lossless*: reading the array back then returns equal values of the same Python
types, so the caller may continue to use its objects. Codecs never change a value except as `conform` defines.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.common.time import Instant
from millstream.errors import PickledValueError
from millstream.records.pickling import PicklingError, pickled

NoneType = type(None)
_LONG = pa.int64()

_REFUSALS = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


OpenPickle: TypeAlias = Callable[[Any], Any]
"""A function that opens a stored pickle: `records.unpickling.unpickled` in a task, `reject_pickle` elsewhere."""


def reject_pickle(data: Any) -> NoReturn:
    """The `OpenPickle` of readers outside the job: opens none."""
    raise PickledValueError(
        f"a value without a declared type is stored as a pickle ({len(data)} bytes). Opening it runs the code in "
        "it, so only the job does. Declare a type; or read the bytes, and open them yourself if you trust all that can "
        "write the store"
    )


class Doubt(Exception):
    """The fast path cannot convert a value; the slow path decides."""


class Codec:
    """Values of one exact Python type that Arrow converts natively. `None` is null."""

    metadata: ClassVar[dict[str, str]] = {}

    def __init__(self, arrow: pa.DataType, exact: type) -> None:
        self.arrow = arrow
        self._exact = exact
        self._allowed_types = frozenset({exact, NoneType})

    def field(self, name: str) -> pa.Field:
        """The Arrow field of this column; metadata marks encodings without an Arrow type."""
        return pa.field(name, self.arrow, metadata=self.metadata or None)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        """The array, and whether it is lossless. Raises Doubt."""
        # Counting in a list of types takes two thirds of the time of building a set.
        kinds = list(map(type, values))
        exact = kinds.count(self._exact)
        if exact == len(values):
            return self._full_array(values), True
        if exact + kinds.count(NoneType) != len(values):
            raise Doubt
        return self._array(values), True

    def decode(self, array: pa.Array) -> list[Any]:
        """The values; None where the array is null."""
        return array.to_pylist()  # type: ignore[no-any-return]

    def _array(self, values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, self.arrow)
        except _REFUSALS:
            raise Doubt from None

    def _full_array(self, values: list[Any]) -> pa.Array:
        """The array of values that all have the exact type, without None."""
        if self.arrow != _LONG:
            return self._array(values)
        try:
            return pa.array(np.fromiter(values, dtype=np.int64, count=len(values)))
        except OverflowError:
            raise Doubt from None


class DoubleCodec(Codec):
    """Floats; ints become floats."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), float)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        kinds = set(map(type, values))
        if kinds <= self._allowed_types:
            return self._array(values), True
        if kinds == {int, float} or kinds == {int}:
            try:
                return self._array(list(map(float, values))), False
            except OverflowError:
                raise Doubt from None
        raise Doubt


class FloatCodec(Codec):
    """Floats rounded to 32 bits, as in Flink; lossless only if rounding changes nothing."""

    def __init__(self) -> None:
        super().__init__(pa.float32(), float)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        exact, is_lossless = DoubleCodec().encode(values)
        wide = exact.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN would warn
            narrow = wide.astype(np.float32)
        if np.any(np.isinf(narrow) & np.isfinite(wide)):
            raise Doubt
        is_lossless = is_lossless and np.array_equal(narrow.astype(np.float64), wide, equal_nan=True)
        nulls = np.asarray(exact.is_null()) if exact.null_count else None
        return pa.array(narrow, self.arrow, mask=nulls), is_lossless


class DecimalCodec(Codec):
    """Decimals of a fixed precision and scale; lossless if they have exactly the digits after the point that are read
    back."""

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(pa.decimal128(precision, scale), decimal.Decimal)
        self._exponent = -scale

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        if not set(map(type, values)) <= self._allowed_types:
            raise Doubt
        exponents = [value.as_tuple().exponent for value in values if value is not None]
        # Arrow rejects excess digits, except far after the decimal point: it converts 1E-57 to zero, and crashes at
        # 1E-999999999.
        if any(not isinstance(exponent, int) or exponent < self._exponent for exponent in exponents):
            raise Doubt
        array, _ = super().encode(values)
        has_negative_zeros = any([value is not None and not value and value.is_signed() for value in values])  # noqa: C419
        return array, not has_negative_zeros and exponents.count(self._exponent) == len(exponents)


class CharCodec(Codec):
    """Strings of one character each."""

    def __init__(self) -> None:
        super().__init__(pa.string(), str)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = super().encode(values)
        if any(value is not None and len(value) != 1 for value in values):
            raise Doubt
        return array, is_lossless


class DateCodec(Codec):
    """Days; numpy builds the date objects, an order of magnitude faster than Arrow's scalars."""

    def __init__(self) -> None:
        super().__init__(pa.date32(), dt.date)

    def decode(self, array: pa.Array) -> list[Any]:
        return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


class TimestampCodec(DateCodec):
    """Wall-clock microseconds; values with a zone use the slow path, to become UTC."""

    def __init__(self) -> None:
        Codec.__init__(self, pa.timestamp("us"), dt.datetime)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = super().encode(values)
        if any(value is not None and value.tzinfo is not None for value in values):
            raise Doubt
        return array, is_lossless


class TimeCodec(Codec):
    """Microseconds since midnight, without a zone."""

    def __init__(self) -> None:
        super().__init__(pa.time64("us"), dt.time)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        array, is_lossless = super().encode(values)
        if any(value is not None and value.tzinfo is not None for value in values):
            raise Doubt
        return array, is_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        micros = array.cast(pa.int64()).to_pylist()
        return [None if m is None else _time_of_day(m) for m in micros]


def _time_of_day(micros: int) -> dt.time:
    seconds, micros = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return dt.time(hours, minutes, seconds, micros)


class EncodedCodec(Codec):
    """Values for which Arrow has no lossless type, written one by one as strings or bytes and marked in the
    metadata."""

    def __init__(
        self,
        mark: str,
        arrow: pa.DataType,
        exact: type | None,
        write: Callable[[Any], Any],
        read: Callable[[Any], Any],
    ) -> None:
        super().__init__(arrow, exact or object)
        self._takes_any_type = exact is None
        self.metadata = {"millstream.type": mark}  # type: ignore[misc]  # one per encoding, not per class
        self._write = write
        self._read = read

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        if not self._takes_any_type and not self._allowed_types.issuperset(map(type, values)):
            raise Doubt
        write = self._write
        try:
            return self._array([None if value is None else write(value) for value in values]), True
        except (*_REFUSALS, PicklingError, AttributeError, RecursionError):
            raise Doubt from None

    def decode(self, array: pa.Array) -> list[Any]:
        read = self._read
        return [None if stored is None else read(stored) for stored in array.to_pylist()]


def big_int_codec() -> Codec:
    """Integers of any size, encoded like Java's BigInteger: big-endian two's complement."""
    return EncodedCodec(
        "BIG_INT",
        pa.binary(),
        int,
        lambda value: value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True),
        lambda stored: int.from_bytes(stored, "big", signed=True),
    )


def big_dec_codec() -> Codec:
    """Decimals as strings, which preserve digits, exponent and sign."""
    return EncodedCodec("BIG_DEC", pa.string(), decimal.Decimal, str, decimal.Decimal)


def pickled_codec(open_pickle: OpenPickle) -> Codec:
    """Any value as a pickle; on encoding, the object itself remains in use."""
    return EncodedCodec("PICKLED", pa.binary(), None, pickled, open_pickle)


class InstantCodec(Codec):
    """Separate seconds and nanoseconds: Arrow's nanosecond timestamps are limited to the year 2262."""

    def __init__(self) -> None:
        super().__init__(pa.struct([pa.field("seconds", pa.int64()), pa.field("nanos", pa.int32())]), Instant)
        self.metadata = {"millstream.type": "INSTANT"}  # type: ignore[misc]

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        if not self._allowed_types.issuperset(map(type, values)):
            raise Doubt
        seconds, _ = _WHOLE.encode([None if value is None else value.seconds for value in values])
        nanos, _ = _SMALL.encode([None if value is None else value.nanos for value in values])
        nulls = seconds.is_null() if seconds.null_count else None
        return pa.StructArray.from_arrays([seconds, nanos], type=self.arrow, mask=nulls), True

    def decode(self, array: pa.Array) -> list[Any]:
        seconds, nanos = array.flatten()
        pairs = zip(seconds.to_pylist(), nanos.to_pylist(), strict=True)
        return [None if s is None else Instant(s, n) for s, n in pairs]


_WHOLE = Codec(pa.int64(), int)
_SMALL = Codec(pa.int32(), int)


def _offsets(lengths: list[int]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise Doubt  # conform finds no error, and after the second attempt columns.py reports it
    return pa.array(offsets.astype(np.int32))


def _nulls(values: list[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if None in map(_none_or_true, values) else None


def _none_or_true(value: Any) -> bool | None:
    # `None in values` would call a user's __eq__ on every value.
    return None if value is None else True


class ListCodec(Codec):
    """Lists: all elements are encoded in one call of the element's codec."""

    def __init__(self, element: Codec) -> None:
        super().__init__(pa.list_(element.field("item")), list)
        self._element = element

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        kinds = set(map(type, values))
        if not kinds <= self._allowed_types:
            raise Doubt
        lists = [value or () for value in values] if NoneType in kinds else values
        items, is_lossless = self._element.encode(list(itertools.chain.from_iterable(lists)))
        nulls = _nulls(values) if NoneType in kinds else None
        offsets = _offsets(list(map(len, lists)))
        return pa.ListArray.from_arrays(offsets, items, type=self.arrow, mask=nulls), is_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        start, stop, bounds = _bounds(array)
        items = self._element.decode(array.values.slice(start, stop - start))
        lists = [items[low:high] for low, high in itertools.pairwise(bounds)]
        return with_nulls(lists, array)


class MapCodec(Codec):
    """Dicts: keys and values each in one call, in the dict's order."""

    def __init__(self, key: Codec, item: Codec) -> None:
        key_field = key.field("key").with_nullable(False)
        super().__init__(pa.map_(key_field, item.field("value")), dict)
        self._key = key
        self._item = item

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        kinds = set(map(type, values))
        if not kinds <= self._allowed_types:
            raise Doubt
        dicts: list[dict[Any, Any]] = [value or {} for value in values] if NoneType in kinds else values
        chain = itertools.chain.from_iterable
        keys, are_keys_lossless = self._key.encode(list(chain(dicts)))
        if keys.null_count:
            raise Doubt
        items, are_items_lossless = self._item.encode(list(chain(d.values() for d in dicts)))
        nulls = _nulls(values) if NoneType in kinds else None
        offsets = _offsets(list(map(len, dicts)))
        array = pa.MapArray.from_arrays(offsets, keys, items, type=self.arrow, mask=nulls)
        return array, are_keys_lossless and are_items_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        start, stop, bounds = _bounds(array)
        keys = self._key.decode(array.keys.slice(start, stop - start))
        items = self._item.decode(array.items.slice(start, stop - start))
        dicts = [dict(zip(keys[low:high], items[low:high], strict=True)) for low, high in itertools.pairwise(bounds)]
        return with_nulls(dicts, array)


def _bounds(array: pa.Array) -> tuple[int, int, list[int]]:
    """The start and stop of the array's elements in its child, and each list's bounds relative to that start."""
    offsets = np.asarray(array.offsets)
    start, stop = int(offsets[0]), int(offsets[-1])
    return start, stop, (offsets - start).tolist()


def with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count:
        for position in np.flatnonzero(np.asarray(array.is_null())).tolist():
            values[position] = None
    return values
