"""How a keyed operator goes through its records: in visits, each to some keys and all their records at hand.

An operator that keeps state gathers the batches of an epoch and works on them together. Few records, or records of few
keys, are one visit, in arrival order. Many are parted by ranges of their keys' order, so that each key is visited once:
its state is read once, in the order of the segments, stays in the processor's cache while it is used, and is written
once. That is why a million keys cost little more than a hundred.

Invariants: every record is in one visit; the visits of one gathering have no key in common; the records of a key stand
in arrival order; the keys of a visit stand in the order of segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.records.batch import Batch
from millstream.state.keys.equality import same
from millstream.state.keys.key_columns import KeyColumn, key_column
from millstream.state.keys.key_groups import key_groups
from millstream.state.keys.xxh64 import Int64s, UInt64s
from millstream.state.tables.layout import order_of_group, orders_of

__all__ = ["VISIT_RECORDS_MAX", "GatheredKeys", "KeyRange", "Visit", "visits"]

VISIT_RECORDS_MAX = 32_768
"""So many records are visited together. Of more, about half as many at a time, or all if they have few keys."""


@dataclass(frozen=True)
class KeyRange:
    """The key groups a subtask owns, of how many."""

    groups: range
    max_parallelism: int

    def orders(self, hashes: Int64s) -> UInt64s:
        """Where keys stand in segments."""
        return orders_of(hashes, self.max_parallelism)

    def holds(self, hashes: Int64s) -> Any:
        """Which of these keys the subtask owns, as booleans."""
        groups = key_groups(hashes, self.max_parallelism)
        return (groups >= self.groups.start) & (groups < self.groups.stop)

    def parts(self, orders: UInt64s, count: int) -> Any:
        """Which of `count` even ranges of the owned orders each order is in, as small integers."""
        start, stop = order_of_group(self.groups.start), order_of_group(self.groups.stop)
        width = np.uint64(-(-(stop - start) // count))
        return ((orders - np.uint64(start)) // width).astype(np.uint16)


class _KeyNumbers(dict[Any, int]):
    """Keys by number, in the order they are met; a key that was met before is looked up without a line of Python."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


@dataclass(frozen=True)
class GatheredKeys:
    """The keys of gathered records: a column as long as they are, or numbers into a list of distinct keys."""

    column: KeyColumn
    codes: Int64s | None = None
    values: list[Any] | None = None

    @classmethod
    def of_values(cls, keys: list[Any], key_type: Any) -> GatheredKeys:
        """Keys as Python values, settled so that equal ones are one dictionary key."""
        numbers = _KeyNumbers()
        codes = np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))
        distinct = list(numbers)
        return cls(key_column(distinct, key_type), codes, distinct)


@dataclass(frozen=True)
class Visit:
    """Some records and their distinct keys. `codes[i]` says which of `keys` record i has; `values` are the keys as
    Python values where they are at hand."""

    records: Batch
    keys: KeyColumn
    codes: Int64s
    values: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.records)


def visits(
    records: Batch, keys: GatheredKeys, owned: KeyRange, records_max: int = VISIT_RECORDS_MAX
) -> Iterator[Visit]:
    """All visits to gathered records.

    >>> from millstream.common.typeinfo import Types
    >>> numbers = Batch.of_values([7, 8, 7], Types.LONG())
    >>> (visit,) = visits(numbers, GatheredKeys.of_values(["a", "b", "a"], None), KeyRange(range(128), 128))
    >>> [(visit.values[code], value) for code, value in zip(visit.codes, visit.records.values())]
    [('a', 7), ('b', 8), ('a', 7)]
    """
    parts = 1 if len(records) <= records_max else min(-(-2 * len(records) // records_max), 1 << 16)
    if keys.codes is None:
        return _by_column(records, keys.column, owned, parts)
    return _by_codes(records, keys, owned, parts if len(keys.column) > records_max // 2 else 1)


def _by_column(records: Batch, keys: KeyColumn, owned: KeyRange, parts: int) -> Iterator[Visit]:
    few = _encoded_if_few(keys.array, len(records) // parts) if parts > 1 else None
    if parts == 1 or few is not None:
        codes, distinct = _numbered(keys, owned, few)
        yield Visit(records, distinct, codes)
        return
    for rows in _rows_by_part(owned.parts(owned.orders(keys.hashes), parts), parts):
        codes, distinct = _numbered(KeyColumn(keys.hashes[rows], keys.array.take(pa.array(rows))), owned)
        by_key = _by_key(codes, len(distinct))
        rows = rows[by_key]
        yield Visit(records.take(rows), distinct, codes[by_key])


def _encoded_if_few(keys: pa.Array, few: int) -> pa.DictionaryArray | None:
    """The keys with a number each, if at most `few` are distinct. A part of them is asked first: that mostly tells."""
    if pa.types.is_nested(keys.type) or len(keys.slice(0, 2 * few).unique()) > few // 2:
        return None
    encoded = keys.dictionary_encode(null_encoding="encode")
    return encoded if len(encoded.dictionary) <= few else None


def _by_codes(records: Batch, keys: GatheredKeys, owned: KeyRange, parts: int) -> Iterator[Visit]:
    """Keys that are numbered already: sorted by their order, a part of them is a slice."""
    assert keys.codes is not None and keys.values is not None
    orders = owned.orders(keys.column.hashes)
    sorting = np.argsort(orders)
    rank = np.empty_like(sorting)
    rank[sorting] = np.arange(len(sorting))
    codes, values = rank[keys.codes], [keys.values[i] for i in sorting.tolist()]
    distinct = KeyColumn(keys.column.hashes[sorting], keys.column.array.take(pa.array(sorting)))
    if parts == 1:
        yield Visit(records, distinct, codes, values)
        return
    part_of_key = owned.parts(orders[sorting], parts)
    bounds = np.searchsorted(part_of_key, np.arange(parts + 1)).tolist()
    for rows in _rows_by_part(part_of_key[codes], parts):
        part = int(part_of_key[codes[rows[0]]])
        start, stop = bounds[part], bounds[part + 1]
        part_keys = KeyColumn(distinct.hashes[start:stop], distinct.array.slice(start, stop - start))
        rows = rows[_by_key(codes[rows] - start, stop - start)]
        yield Visit(records.take(rows), part_keys, codes[rows] - start, values[start:stop])


def _by_key(codes: Int64s, keys: int) -> Int64s:
    """The rows one key after another: a key's state is then used while it is at hand."""
    # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
    return np.argsort(codes.astype(np.uint16) if keys <= 1 << 16 else codes, kind="stable")


def _rows_by_part(part_of: Any, parts: int) -> Iterator[Int64s]:
    """The rows of each part that has any, in order."""
    rows = np.argsort(part_of, kind="stable")  # by radix: the parts are 16-bit numbers
    ends = np.cumsum(np.bincount(part_of, minlength=parts)).tolist()
    start = 0
    for end in ends:
        if end > start:
            yield rows[start:end]
        start = end


def _numbered(keys: KeyColumn, owned: KeyRange, encoded: pa.DictionaryArray | None = None) -> tuple[Int64s, KeyColumn]:
    """A number for every record's key, and the distinct keys by number, in the order of segments."""
    array = keys.array
    if pa.types.is_nested(array.type):
        codes, first = _numbered_by_hash(keys)
    else:
        encoded = encoded if encoded is not None else array.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        first = np.empty(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
        # Of assignments to one place the last one stays: backwards, that is the first record of each key.
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    sorting = np.argsort(owned.orders(keys.hashes[first]))
    rank = np.empty_like(sorting)
    rank[sorting] = np.arange(len(sorting))
    first = first[sorting]
    return rank[codes], KeyColumn(keys.hashes[first], array.take(pa.array(first)))


def _numbered_by_hash(keys: KeyColumn) -> tuple[Int64s, Int64s]:
    """The number of every key and the first record of each number, for keys that Arrow cannot number itself.

    Equal hashes mean equal keys but for the odd collision; keys that lost their hash are numbered one by one.
    """
    _, first, codes = np.unique(keys.hashes, return_index=True, return_inverse=True)
    firsts: list[int] = first.tolist()
    collisions: list[int] = []
    for row in np.flatnonzero(~same(keys.array, keys.array.take(pa.array(first[codes])))).tolist():
        key = keys.array.slice(row, 1)
        number = next((n for n in collisions if same(keys.array.slice(firsts[n], 1), key)[0]), None)
        if number is None:
            number = len(firsts)
            firsts.append(row)
            collisions.append(number)
        codes[row] = number
    return codes, np.array(firsts, dtype=np.int64)
