"""Visits of a keyed operator to its keys, and the states and timers that participate in them.

A stateful operator gathers the batches of an epoch and processes them in *visits*: each covers some keys and all their
gathered records. Few records, or records of few keys, are one visit, in arrival order. Otherwise they are split by
ranges of key order, so that each key is visited once: its state is read once, in segment order, stays in the CPU cache
while it is used, and is written once. So a million keys cost little more than a hundred.

Invariants: every record is in one visit; the visits of one gathering have no key in common; the records of a key are in
arrival order; the keys of a visit are in segment order.

The *backend* holds the states and timers of one operator's keys in one subtask. All handles of its scope are visited
together: each gets the keys of a visit, and writes its changes at the end. Handles of places
(`runtime.windows.window_store`) are in the same store, but take no part in visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.state_store import StateGetters, StateStore
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.keyed.timers import KeyedTimerService
from millstream.state.keys.hashing import Int64s, UInt64s
from millstream.state.keys.key_columns import KeyColumn, key_column, key_group_range, key_groups, same
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import EVENT_TIMERS, PROCESSING_TIMERS
from millstream.state.tables.layout import order_of_group, orders_of
from millstream.state.tables.state_table import StateTable, TableSetting

__all__ = ["VISIT_RECORDS_MAX", "GatheredKeys", "KeyRange", "KeyedBackend", "Visit", "visits"]

VISIT_RECORDS_MAX = 32_768
"""The records of one visit. Larger inputs are split into visits of about half this size, or visited at once if keys are
few."""


@dataclass(frozen=True)
class KeyRange:
    """The key groups of a subtask, and their total number."""

    groups: range
    max_parallelism: int

    def orders(self, hashes: Int64s) -> UInt64s:
        """The positions of keys in segments."""
        return orders_of(hashes, self.max_parallelism)

    def holds(self, hashes: Int64s) -> Any:
        """Mask of the keys that the subtask owns."""
        groups = key_groups(hashes, self.max_parallelism)
        return (groups >= self.groups.start) & (groups < self.groups.stop)

    def parts(self, orders: UInt64s, count: int) -> Any:
        """Splits the owned orders into `count` even ranges and returns the index of the range of each order."""
        start, stop = order_of_group(self.groups.start), order_of_group(self.groups.stop)
        width = np.uint64(-(-(stop - start) // count))
        return ((orders - np.uint64(start)) // width).astype(np.uint16)


class _KeyNumbers(dict[Any, int]):
    """Numbers keys in first-seen order; a known key is looked up without Python code."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


@dataclass(frozen=True)
class GatheredKeys:
    """The keys of gathered records: a column with a key for each, or numbers into a list of distinct keys."""

    column: KeyColumn
    codes: Int64s | None = None
    values: list[Any] | None = None

    @classmethod
    def of_values(cls, keys: list[Any], key_type: Any) -> GatheredKeys:
        """Keys as Python values, settled so that equal keys are the same dictionary key."""
        numbers = _KeyNumbers()
        codes = np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))
        distinct = list(numbers)
        return cls(key_column(distinct, key_type), codes, distinct)


@dataclass(frozen=True)
class Visit:
    """Some records and their distinct keys. `codes[i]` is the index in `keys` of record i's key; `values` has the keys
    as Python values, if available."""

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
    """The dictionary-encoded keys, if at most `few` are distinct. A sample is checked first, which usually suffices."""
    if pa.types.is_nested(keys.type) or len(keys.slice(0, 2 * few).unique()) > few // 2:
        return None
    encoded = keys.dictionary_encode(null_encoding="encode")
    return encoded if len(encoded.dictionary) <= few else None


def _by_codes(records: Batch, keys: GatheredKeys, owned: KeyRange, parts: int) -> Iterator[Visit]:
    """Visits for keys that are already numbered: they are sorted by their order, so a part is a slice."""
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
    """The rows sorted by key: a key's state is then used while it is cached."""
    # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
    return np.argsort(codes.astype(np.uint16) if keys <= 1 << 16 else codes, kind="stable")


def _rows_by_part(part_of: Any, parts: int) -> Iterator[Int64s]:
    """The rows of each non-empty part, in order."""
    rows = np.argsort(part_of, kind="stable")  # by radix: the parts are 16-bit numbers
    ends = np.cumsum(np.bincount(part_of, minlength=parts)).tolist()
    start = 0
    for end in ends:
        if end > start:
            yield rows[start:end]
        start = end


def _numbered(keys: KeyColumn, owned: KeyRange, encoded: pa.DictionaryArray | None = None) -> tuple[Int64s, KeyColumn]:
    """A number for every record's key, and the distinct keys by number, in segment order."""
    array = keys.array
    if pa.types.is_nested(array.type):
        codes, first = _numbered_by_hash(keys)
    else:
        encoded = encoded if encoded is not None else array.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        first = np.empty(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
        # The last assignment to an index wins: in reverse order, this is the first record of each key.
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    sorting = np.argsort(owned.orders(keys.hashes[first]))
    rank = np.empty_like(sorting)
    rank[sorting] = np.arange(len(sorting))
    first = first[sorting]
    return rank[codes], KeyColumn(keys.hashes[first], array.take(pa.array(first)))


def _numbered_by_hash(keys: KeyColumn) -> tuple[Int64s, Int64s]:
    """The number of every key and the first record of each number, for keys that Arrow cannot dictionary-encode.

    Equal hashes mean equal keys, except for rare collisions; colliding keys are numbered one by one.
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


# The stored size of a state's single values that one visit reads.
_VISIT_BYTES_MAX = 64 << 20


class KeyedBackend(StateGetters):
    """The states and timers of one operator. `operator` is its name, for errors."""

    def __init__(
        self, operator: str, key_type: TypeInformation | None, parallelism: int, max_parallelism: int, subtask: int
    ) -> None:
        self._operator = operator
        self.groups = key_group_range(subtask, parallelism, max_parallelism)
        self.store = StateStore(operator, key_type, max_parallelism, self.groups)
        self.scope = Scope()
        self._visited: dict[str, StateHandle] = {}
        self.event_timers = self.store.timers(EVENT_TIMERS)
        self.processing_timers = self.store.timers(PROCESSING_TIMERS)
        self.timers = KeyedTimerService(self.scope, self.event_timers, self.processing_timers)

    def state(self, descriptor: Any, kind: type[StateHandle]) -> Any:
        name = descriptor.get_name()
        handle = self.store.state(name, kind, descriptor, self.scope)
        if name not in self._visited:
            self._visited[name] = handle
            if self.scope.column is not None:  # requested while an epoch runs, not in open()
                handle.visit(self.scope.column)
        return handle

    # --- tables of columnar operators ---------------------------------------------------------------------------

    def table(self, name: str, type_info: TypeInformation | None) -> StateTable:
        """A table with one value per key, for a handle of the operator."""
        return self.store.table(name, task_codec(type_info, f"state '{name}' of '{self._operator}'"))

    def keep(self, name: str, handle: StateHandle) -> None:
        """Register a handle: its table is opened, visited and written with the others, under `name`."""
        self.store.keep(name, handle)
        self._visited[name] = handle

    @property
    def names(self) -> set[str]:
        """The names in use: those of its states and timers."""
        return self.store.names

    # --- an epoch ---------------------------------------------------------------------------------------------

    def begin(self, setting: TableSetting, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open all tables at the last version. `accounts`: the acknowledged accounts of these key groups."""
        self.store.begin(setting, accounts)

    def column(self, keys: list[Any]) -> KeyColumn:
        """Keys in their stored form."""
        return self.event_timers.table.column(keys)

    @property
    def visit_keys_max(self) -> int:
        """The number of keys that may be visited together, so that a visit's reads of single values stay bounded.
        (Lists and maps bound theirs themselves.)"""
        tables = (handle.table for handle in self._visited.values())
        largest = max((table.row_bytes for table in tables if table.layout.sub_type is None), default=0)
        return max(1, min(VISIT_RECORDS_MAX, _VISIT_BYTES_MAX // largest)) if largest else VISIT_RECORDS_MAX

    def settle(self) -> None:
        """Make the changes so far in this epoch visible to reads."""
        for handle in self._visited.values():
            handle.table.settle()

    def visit(self, keys: KeyColumn, values: list[Any] | None = None) -> None:
        """Start a visit to these keys, before the function gets their records or timers; `values` are the keys as
        Python values."""
        self.scope.visit(keys, values, self.event_timers.table.keys_of)
        for handle in self._visited.values():
            handle.visit(keys)

    def leave(self) -> None:
        """End the visit: its changes go to the tables."""
        self.scope.leave()
        for handle in self._visited.values():
            handle.leave()

    def keys_with(self, descriptor: Any) -> Iterator[tuple[Any, StateHandle]]:
        """Every key of this subtask that has the state, one by one, with the state of that key."""
        handle = self.store.declared(descriptor)
        if handle is None:
            raise ProgramError(
                f"'{self._operator}' has no state as {descriptor!r} describes; it has {sorted(self._visited)}. "
                "Request it in open() with the same descriptor"
            )
        self.settle()
        keys = handle.table.distinct_keys()
        keys_max = self.visit_keys_max
        for start in range(0, len(keys), keys_max):
            group = keys[start : start + keys_max]
            self.visit(self.column(group), group)
            for number, key in enumerate(group):
                self.scope.enter(number)
                yield key, handle
            self.leave()

    def end(self, now_ms: int) -> SubtaskAccount:
        """Write the changes; return the account for the next epoch."""
        self.scope.leave()
        account = self.store.end()
        return replace(account, wake_ms=self.processing_timers.earliest(after=now_ms))
