"""MIN and MAX of groups over a changelog: the group's row holds the first values, spilled rows hold the others.

When the minimum is deleted, the next value must be known, so every value is stored. The cost of a group must not grow
with its size: the row of a large group holds its **head**, the first values with their multiplicities. A table holds
the others in order (descending for MAX), so that the head can be refilled from them.

The order of a table is a 64-bit number, the **place** of a value. It is computed from the value; values that agree in
their first eight bytes (strings) or digits (large decimals) share a place and its row. Invariant: all values of the
head have smaller places than the group's other values, and the head of a non-empty group is not empty. So the place of
a change decides whether it applies to the head or to one row of the table. An emptied head is refilled from where it
ended; smaller places are not searched again.

A value may have a negative multiplicity: in stores of older versions, a measure added to a query received deletes of
rows that it never saw. The value is stored until it is inserted, and is never a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import spilled_counts
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.rolling_columns import order_numbers
from millstream.runtime.tables.spilled_values import ValueTables, lists_of, measures_at, totals
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.table_names import GROUP_EXTREMES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["HEAD_VALUES", "HEAD_VALUES_MAX", "GroupExtremes", "has_head", "places_of"]

HEAD_VALUES, HEAD_VALUES_MAX = 64, 256
"""A head with more values than the second number is truncated to the first; an empty head is filled up to the first."""

_NOWHERE, _EVERYWHERE = -(2**63), 2**63 - 1
_TEXT_BYTES = 8


def has_head(measure: BoundAggregate) -> bool:
    """Whether it is a MIN or MAX over a changelog, of values that have a place."""
    if measure.kind != "signed_values" or measure.inner is None or measure.inner.kind not in ("min", "max"):
        return False
    return value_kind(measure) is not None


def places_of(values: pa.Array, *, descending: bool) -> Int64s:
    """Numbers that are monotonic in the values (decreasing with `descending`), each computed from its value alone.
    Equal values have equal numbers; different values nearly always have different ones.

    >>> places_of(pa.array(["a", "b", "ab"]), descending=False).argsort().tolist()
    [0, 2, 1]
    """
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        places = _first_bytes(values)
    else:
        places = order_numbers(values.cast(pa.float64()) if pa.types.is_decimal(kind) else values)
    return ~places if descending else places


def _first_bytes(values: pa.Array) -> Int64s:
    """The first bytes of each string as a big-endian number, padded with 0."""
    if not len(values):
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    data = values.buffers()[2]
    letters = np.zeros(int(offsets[-1]) + _TEXT_BYTES, dtype=np.uint8)
    if data is not None and data.size:
        letters[: int(offsets[-1])] = np.frombuffer(data, np.uint8, int(offsets[-1]))
    places = np.zeros(len(values), dtype=np.uint64)
    for number in range(_TEXT_BYTES):
        at = offsets[:-1] + number
        places = (places << np.uint64(8)) | np.where(at < offsets[1:], letters[at], 0).astype(np.uint64)
    return (places ^ np.uint64(1 << 63)).view(np.int64)


@dataclass(frozen=True)
class _Extreme:
    """A measure with a head: the position of its columns in the accumulator, and the table of its spilled values."""

    at: int
    kernel: Kernel
    descending: bool
    table: StateTable

    def places(self, rows: pa.Array) -> Int64s:
        return places_of(rows.field(0), descending=self.descending)


@dataclass(frozen=True)
class _Values:
    """Values with their multiplicities: the group and the place of each."""

    codes: Int64s
    places: Int64s
    rows: pa.Array

    def chosen(self, mask: Bools) -> _Values:
        return _Values(self.codes[mask], self.places[mask], self.rows.filter(pa.array(mask)))


class GroupExtremes:
    """The spilled values of one subtask: a table for each measure."""

    def __init__(self, stored_measures: Sequence[BoundAggregate], tables: ValueTables) -> None:
        self._extremes: list[_Extreme] = []
        for at, measure in measures_at(stored_measures, "headed_values"):
            assert measure.inner is not None and measure.inner.inner is not None
            table = tables.table(f"{GROUP_EXTREMES} of {measure.name}", measure.inner.parts[0][1], pa.int64())
            is_max = measure.inner.inner.kind == "max"
            self._extremes.append(_Extreme(at, kernels_of([measure.inner])[0], is_max, table))

    def absorb(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """An epoch's input as it is stored: values beyond the head of their group go to the table and change the count
        of spilled values. `was_stored` masks the stored groups, `stored` has their accumulators."""
        parts = list(parts)
        for extreme in self._extremes:
            ends = _head_ends(extreme, len(keys), was_stored, stored)
            if (ends < _EVERYWHERE).any():
                values = _values_of(extreme, parts[extreme.at])
                beyond = values.places > ends[values.codes]
                if beyond.any():
                    changes = _apply(extreme, keys, values.chosen(beyond))
                    _remove_spilled(extreme, parts, values, beyond, changes)
        return parts

    def spill(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """The accumulators to store: heads that are too large are truncated, and empty ones refilled from spilled
        values."""
        parts = list(parts)
        for extreme in self._extremes:
            if (flat(parts[extreme.at])[1] > HEAD_VALUES_MAX).any():
                _cut(extreme, keys, parts)
            ends: Int64s | None = None
            while (empty := _empty(parts, extreme.at)).any():
                ends = _head_ends(extreme, len(keys), was_stored, stored) if ends is None else ends
                _fill(extreme, keys, parts, np.flatnonzero(empty), ends)
        return parts


def _empty(parts: Parts, at: int) -> Bools:
    """Mask of the groups with an empty head and spilled values."""
    rows, lengths = flat(parts[at])
    codes = np.repeat(np.arange(len(lengths)), lengths)
    is_present = rows.field(1).to_numpy() > 0
    has_none: Bools = np.bincount(codes[is_present], minlength=len(lengths)) == 0
    return has_none & (spilled_counts(parts[at + 1]) > 0)


def _values_of(extreme: _Extreme, lists: pa.Array) -> _Values:
    rows, lengths = flat(lists)
    return _Values(np.repeat(np.arange(len(lists)), lengths), extreme.places(rows), rows)


def _head_ends(extreme: _Extreme, groups: int, was_stored: Bools, stored: Parts) -> Int64s:
    """The largest place in every group's stored head; for a group without spilled values, the largest place of all."""
    ends = np.full(groups, _EVERYWHERE)
    large = np.flatnonzero(was_stored)[spilled_counts(stored[extreme.at + 1]) > 0]
    if len(large):
        head = _values_of(extreme, stored[extreme.at])
        last = np.full(groups, _NOWHERE)
        np.maximum.at(last, np.flatnonzero(was_stored)[head.codes], head.places)
        ends[large] = last[large]
    return ends


def _remove_spilled(extreme: _Extreme, parts: Parts, values: _Values, moved: Bools, changes: Int64s) -> None:
    """Remove spilled values from the lists, and count them."""
    count, kind = len(parts[extreme.at]), parts[extreme.at].type
    parts[extreme.at] = lists_of(
        values.rows.filter(pa.array(~moved)), np.bincount(values.codes[~moved], minlength=count), kind
    )
    parts[extreme.at + 1] = pa.array(spilled_counts(parts[extreme.at + 1]) + changes)


def _by_place(extreme: _Extreme, values: _Values) -> tuple[Int64s, Parts]:
    """The values as rows of the table: for each row the index of one of its values, and the list of all of them."""
    pairs = pair_groups(groups_of(pa.array(values.codes)), groups_of(pa.array(values.places)))
    singles = lists_of(values.rows, np.ones(len(values.rows), dtype=np.int64), extreme.kernel.part_kinds[0])
    return pairs.firsts(), extreme.kernel.combine([singles], pairs)


def _apply(extreme: _Extreme, keys: KeyColumn, values: _Values) -> Int64s:
    """Apply changes of values to the table; returns the change of each group's count of spilled values."""
    firsts, fresh = _by_place(extreme, values)
    codes, count, table = values.codes[firsts], len(firsts), extreme.table
    pairs, subs = keys.take(codes), pa.array(values.places[firsts])
    was_stored, old = np.zeros(count, dtype=np.bool_), pa.nulls(0, fresh[0].type)
    if not table.view.is_empty:
        lookup = table.view.get_pairs(pairs, subs)
        assert lookup.values is not None
        was_stored, old = lookup.mask, lookup.values
    groups = Groups(np.concatenate([np.flatnonzero(was_stored), np.arange(count)]), count)
    lists = extreme.kernel.combine([pa.concat_arrays([old, fresh[0]])], groups)[0]
    lengths = flat(lists)[1]
    before = np.zeros(count, dtype=np.int64)
    before[was_stored] = flat(old)[1]
    put = np.flatnonzero((lengths > 0) & (flat(fresh[0])[1] > 0))
    removed = np.flatnonzero((lengths == 0) & was_stored)
    if len(put):
        table.changes.put(pairs.take(put), lists.take(pa.array(put)), subs=subs.take(pa.array(put)))
    if len(removed):
        table.changes.delete(pairs.take(removed), subs=subs.take(pa.array(removed)))
    return totals(codes, lengths - before, len(keys))


def _cut(extreme: _Extreme, keys: KeyColumn, parts: Parts) -> None:
    """Truncate heads that are too large, and spill the other values. The table has no rows at their places."""
    values = _values_of(extreme, parts[extreme.at])
    sizes = np.bincount(values.codes, minlength=len(keys))
    large = np.flatnonzero(sizes > HEAD_VALUES_MAX)
    order = np.lexsort((values.places, values.codes))
    ends = np.full(len(keys), _EVERYWHERE)
    ends[large] = values.places[order[(np.cumsum(sizes) - sizes)[large] + HEAD_VALUES - 1]]
    # At least one present value stays in the head, possibly among absent ones.
    is_present = values.rows.field(1).to_numpy() > 0
    first = np.full(len(keys), _EVERYWHERE)
    np.minimum.at(first, values.codes[is_present], values.places[is_present])
    beyond = values.places > np.maximum(ends, first)[values.codes]
    if not beyond.any():  # all of them share a place
        return
    moved = values.chosen(beyond)
    firsts, lists = _by_place(extreme, moved)
    extreme.table.changes.put(keys.take(moved.codes[firsts]), lists[0], subs=pa.array(moved.places[firsts]))
    _remove_spilled(extreme, parts, values, beyond, np.bincount(moved.codes, minlength=len(keys)))


def _fill(extreme: _Extreme, keys: KeyColumn, parts: Parts, empty: Int64s, ends: Int64s) -> None:
    """Refill empty heads with the first spilled values; updates `ends`, the largest place of each head."""
    table = extreme.table
    table.settle()  # includes this epoch's changes
    following = table.view.first_rows(keys.take(empty), ends[empty], HEAD_VALUES)
    owners = empty[following.column("position").to_numpy()]
    assert len(np.unique(owners)) == len(empty), "a group has fewer values than its row counts"
    table.changes.delete(keys.take(owners), subs=following.column("sub"))
    np.maximum.at(ends, owners, following.column("sub").to_numpy())
    rows, lengths = flat(following.column("value"))
    codes = np.concatenate([_values_of(extreme, parts[extreme.at]).codes, np.repeat(owners, lengths)])
    order = np.argsort(codes, kind="stable")
    whole = pa.concat_arrays([flat(parts[extreme.at])[0], rows]).take(pa.array(order))
    parts[extreme.at] = lists_of(whole, np.bincount(codes, minlength=len(keys)), parts[extreme.at].type)
    parts[extreme.at + 1] = pa.array(spilled_counts(parts[extreme.at + 1]) - totals(owners, lengths, len(keys)))
