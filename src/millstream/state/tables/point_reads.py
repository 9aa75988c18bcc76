"""Reads one key at a time from a view that stays open, for query servers.

The same search as `lookup`, without arrays: it computes the hash in plain integers (the arithmetic of
`hashing_reference` for short keys, inlined), locates the chunk by `bisect` over the fences, and the row by `bisect`
over a memory view of its orders (`searchsorted` would convert the target to a numpy number). Values of plain columns
are read from numpy, because Arrow's scalars cost several times the search. Invariant: `get(key)` equals `TableView.get`
for a column of only that key, and `get_subs(key)` equals `TableView.scan_keys`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.state.keys.canonical import canonical_bytes, canonical_hash
from millstream.state.keys.hashing_reference import PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5, hash_bytes, hash_int
from millstream.state.segments.lookup import Layer
from millstream.state.segments.segment import Chunk
from millstream.state.tables.layout import CLEAR, PUT, TableLayout

__all__ = ["Locate", "PointReader", "locator", "reads_points", "value_at"]

Locate: TypeAlias = Callable[[Any], tuple[int, Any]]
"""Maps a key to the bits of its hash, signed or not, and to its stored form."""

_MASK, _TWO_64, _SEED = 2**64 - 1, 2**64, 42
_START = _SEED + PRIME_5
_SHORT_BYTES = 32
_GROUP_SHIFT = 48
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def reads_points(kind: pa.DataType | None) -> bool:
    """Whether keys of this type support point reads: untyped keys, whole numbers, strings, bytes."""
    t = pa.types
    return kind is None or t.is_signed_integer(kind) or t.is_string(kind) or t.is_binary(kind)


class PointReader:
    """Reads single keys of a table."""

    def __init__(self, layout: TableLayout, layers: Sequence[Layer], now_ms: int) -> None:
        self._layout = layout
        self._now_ms = now_ms
        self._layers = [(layer.segment, layer.order_start, layer.order_stop) for layer in reversed(layers)]
        self._parallelism = layout.max_parallelism
        self._locate = locator(layout.key_type)

    def get(self, key: Any) -> Any:
        """The value of the key in a table without subs, as a Python value; None if there is none."""
        order, stored_key = self._find_order(key)
        for segment, start, stop in self._layers:
            if not start <= order < stop:
                continue
            number = bisect_right(segment.fence_list, order) - 1
            if number < 0:
                continue
            chunk = segment.chunk(number)
            orders = chunk.order_view
            row = bisect_left(orders, order)
            while row < chunk.rows and orders[row] == order:
                if _has_key(chunk, row, stored_key):
                    return self._value(chunk, row)
                row += 1
        return None

    def get_subs(self, key: Any) -> list[tuple[int, Any]]:
        """The subs of the key, in order, with their values, in a table whose subs are 64-bit numbers."""
        order, stored_key = self._find_order(key)
        values: dict[int, Any] = {}
        for segment, start, stop in self._layers:
            number = bisect_right(segment.fence_list, order) - 1 if start <= order < stop else -1
            if number >= 0 and self._take_subs(segment.chunk(number), order, stored_key, values):
                break  # older layers were cleared
        return sorted(((sub, value) for sub, value in values.items() if value is not None), key=itemgetter(0))

    def group(self, key: Any) -> int:
        """The key group of the key."""
        return self._find_order(key)[0] >> _GROUP_SHIFT

    def _find_order(self, key: Any) -> tuple[int, Any]:
        """The order of the key in a segment, and its stored form."""
        hash_bits, stored_key = self._locate(key)
        # The bits may be signed or not: key groups use the signed hash.
        hash_bits &= _MASK
        signed = hash_bits - _TWO_64 if hash_bits >> 63 else hash_bits
        return (signed % self._parallelism) << _GROUP_SHIFT | hash_bits >> 16, stored_key

    def _take_subs(self, chunk: Chunk, order: int, stored_key: Any, values: dict[int, Any]) -> bool:
        """Add the subs absent from newer layers (None: deleted). Returns whether this layer clears the key."""
        orders, subs, is_cleared = chunk.order_view, chunk.sub_orders, False
        assert subs is not None
        row = bisect_left(orders, order)
        while row < chunk.rows and orders[row] == order:
            if _has_key(chunk, row, stored_key):
                if chunk.kinds.item(row) == CLEAR:
                    is_cleared = True
                else:
                    sub = subs.item(row)
                    if sub not in values:
                        values[sub] = self._value(chunk, row)
            row += 1
        return is_cleared

    def _value(self, chunk: Chunk, row: int) -> Any:
        if chunk.kinds.item(row) != PUT or chunk.values is None:
            return None
        if chunk.expires_ms is not None and chunk.expires_ms.item(row) <= self._now_ms:
            return None
        return value_at(chunk, row)


def value_at(chunk: Chunk, row: int) -> Any:
    """The value of a row as returned by Arrow's `as_py`."""
    if chunk.value_reader is None:
        assert chunk.values is not None
        chunk.value_reader = _reader_of(chunk.values)
    return chunk.value_reader(row)


def _has_key(chunk: Chunk, row: int, stored_key: Any) -> bool:
    if chunk.key_view is not None:
        return bool(chunk.key_view.item(row) == stored_key)
    return bool(chunk.keys[row].as_py() == stored_key)


def locator(kind: pa.DataType | None) -> Locate:
    """The function that locates keys of this type."""
    if kind is None:
        return _locate_canonical
    if pa.types.is_int64(kind):
        return lambda key: (_SEED if key is None else _hash_long(key), key)
    if pa.types.is_signed_integer(kind):
        return lambda key: (_SEED if key is None else hash_int(key, _SEED), key)
    if pa.types.is_string(kind):
        return lambda key: (_SEED if key is None else _hash_bytes(key.encode()), key)
    return lambda key: (_SEED if key is None else _hash_bytes(key), key)


def _locate_canonical(key: Any) -> tuple[int, bytes]:
    if type(key) is str:
        text = key.encode()
        return _hash_bytes(text), b"s" + text
    if type(key) is int and _INT64_MIN <= key <= _INT64_MAX:
        return _hash_long(key), b"i" + key.to_bytes(8, "big", signed=True)
    return canonical_hash(key), canonical_bytes(key)


def _hash_long(value: int) -> int:
    """The hash of a 64-bit integer, as unsigned bits."""
    word = value * PRIME_2 & _MASK
    word = ((word << 31 | word >> 33) & _MASK) * PRIME_1 & _MASK
    h = (_START + 8 & _MASK) ^ word
    h = ((h << 27 | h >> 37) & _MASK) * PRIME_1 + PRIME_4 & _MASK
    h = (h ^ h >> 33) * PRIME_2 & _MASK
    h = (h ^ h >> 29) * PRIME_3 & _MASK
    return h ^ h >> 32


def _hash_bytes(data: bytes) -> int:
    """The hash of bytes, as unsigned bits; long ones use the reference implementation."""
    length = len(data)
    if length >= _SHORT_BYTES:
        return hash_bytes(data, _SEED)
    h, at = _START + length & _MASK, 0
    while at + 8 <= length:
        word = int.from_bytes(data[at : at + 8], "little") * PRIME_2 & _MASK
        h ^= ((word << 31 | word >> 33) & _MASK) * PRIME_1 & _MASK
        h = ((h << 27 | h >> 37) & _MASK) * PRIME_1 + PRIME_4 & _MASK
        at += 8
    if at + 4 <= length:
        h ^= int.from_bytes(data[at : at + 4], "little") * PRIME_1 & _MASK
        h = ((h << 23 | h >> 41) & _MASK) * PRIME_2 + PRIME_3 & _MASK
        at += 4
    for byte in data[at:]:
        h ^= byte * PRIME_5 & _MASK
        h = ((h << 11 | h >> 53) & _MASK) * PRIME_1 & _MASK
    h = (h ^ h >> 33) * PRIME_2 & _MASK
    h = (h ^ h >> 29) * PRIME_3 & _MASK
    return h ^ h >> 32


def _reader_of(values: pa.Array) -> Callable[[int], Any]:
    """A function from a row to its value, equal to Arrow's `as_py`."""
    kind = values.type
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = [(kind.field(i).name, _reader_of(values.field(i))) for i in range(kind.num_fields)]
        reader: Callable[[int], Any] = lambda row: {name: read_field(row) for name, read_field in fields}  # noqa: E731
    elif pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        dtype = kind.to_pandas_dtype()
        width = np.dtype(dtype).itemsize
        view = np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * width)
        reader = view.item
    else:
        return lambda row: values[row].as_py()
    if not values.null_count:
        return reader
    valid = np.asarray(values.is_valid())
    return lambda row: reader(row) if valid[row] else None
