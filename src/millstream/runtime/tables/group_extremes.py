"""MIN and MAX of groups whose rows go, too: the first values are in the group's row, the others have rows of their own.

When the smallest value goes, the next one must be known, so every value is kept. What a group costs must not grow with
it: a large group has its **head** in its row, the first values with how often each is there. The others are in a table
in their order (for MAX the other way round), so that the head can be filled again with the ones that follow.

The order of a table is a 64-bit number, the **place** of a value. It follows from the value; values that agree in their
first eight bytes (text) or digits (large decimals) share a place and its row. Invariant: all values of the head have
smaller places than all others of the group, and a group that has values has some of them in its head. So a change is
looked at where its place says: in the head, or in one row of the table. A head that has run empty begins where the last
one ended: places before that are not searched again.

A value may be there less than no times: in stores of earlier versions a measure that was added to a query saw rows go
that had never come. It is kept like any other, until it comes, and is no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import elsewhere
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
"""A head of more values than the second number is cut to the first, and an empty one is filled up to it."""

_NOWHERE, _EVERYWHERE = -(2**63), 2**63 - 1
_TEXT_BYTES = 8


def has_head(measure: BoundAggregate) -> bool:
    """Whether it is a MIN or MAX of rows that are taken away, too, of values that have a place."""
    if measure.kind != "signed_values" or measure.inner is None or measure.inner.kind not in ("min", "max"):
        return False
    return value_kind(measure) is not None


def places_of(values: pa.Array, *, descending: bool) -> Int64s:
    """Numbers that never fall where values rise, of each value whatever others there are; for `descending` ones, that
    never rise. Equal values have one number, different ones nearly always two.

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
    """The first bytes of each text as a number, the first weighing most; where a text has ended, 0."""
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
    """A measure with a head: where its parts stand in what is kept, and the table of the values that are elsewhere."""

    at: int
    kernel: Kernel
    descending: bool
    table: StateTable

    def places(self, rows: pa.Array) -> Int64s:
        return places_of(rows.field(0), descending=self.descending)


@dataclass(frozen=True)
class _Values:
    """Values, with how often each is there: the group of each, and its place."""

    codes: Int64s
    places: Int64s
    rows: pa.Array

    def chosen(self, mask: Bools) -> _Values:
        return _Values(self.codes[mask], self.places[mask], self.rows.filter(pa.array(mask)))


class GroupExtremes:
    """The values of large groups in one subtask that are not in their heads: a table for each measure."""

    def __init__(self, stored_measures: Sequence[BoundAggregate], tables: ValueTables) -> None:
        self._extremes: list[_Extreme] = []
        for at, measure in measures_at(stored_measures, "headed_values"):
            assert measure.inner is not None and measure.inner.inner is not None
            table = tables.table(f"{GROUP_EXTREMES} of {measure.name}", measure.inner.parts[0][1], pa.int64())
            is_max = measure.inner.inner.kind == "max"
            self._extremes.append(_Extreme(at, kernels_of([measure.inner])[0], is_max, table))

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What an epoch brought, as it is kept: what lies behind the head of its group goes to the table, and becomes a
        change of the number of values there. `had`: which groups are stored, `stored`: what of those."""
        parts = list(parts)
        for extreme in self._extremes:
            ends = _head_ends(extreme, len(keys), had, stored)
            if (ends < _EVERYWHERE).any():
                values = _values_of(extreme, parts[extreme.at])
                behind = values.places > ends[values.codes]
                if behind.any():
                    changes = _changed(extreme, keys, values.chosen(behind))
                    _keep_apart(extreme, parts, values, behind, changes)
        return parts

    def settled(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What is kept of groups: heads that are neither too large, nor without a value while there are some
        elsewhere."""
        parts = list(parts)
        for extreme in self._extremes:
            if (flat(parts[extreme.at])[1] > HEAD_VALUES_MAX).any():
                _cut(extreme, keys, parts)
            ends: Int64s | None = None
            while (empty := _empty(parts, extreme.at)).any():
                ends = _head_ends(extreme, len(keys), had, stored) if ends is None else ends
                _fill(extreme, keys, parts, np.flatnonzero(empty), ends)
        return parts


def _empty(parts: Parts, at: int) -> Bools:
    """Which groups have no value in their heads, and some elsewhere."""
    rows, lengths = flat(parts[at])
    codes = np.repeat(np.arange(len(lengths)), lengths)
    is_there = rows.field(1).to_numpy() > 0
    has_none: Bools = np.bincount(codes[is_there], minlength=len(lengths)) == 0
    return has_none & (elsewhere(parts[at + 1]) > 0)


def _values_of(extreme: _Extreme, lists: pa.Array) -> _Values:
    rows, lengths = flat(lists)
    return _Values(np.repeat(np.arange(len(lists)), lengths), extreme.places(rows), rows)


def _head_ends(extreme: _Extreme, groups: int, had: Bools, stored: Parts) -> Int64s:
    """The largest place of every group's head, as stored; of groups that have all their values in it, the last of all
    places."""
    ends = np.full(groups, _EVERYWHERE)
    large = np.flatnonzero(had)[elsewhere(stored[extreme.at + 1]) > 0]
    if len(large):
        head = _values_of(extreme, stored[extreme.at])
        last = np.full(groups, _NOWHERE)
        np.maximum.at(last, np.flatnonzero(had)[head.codes], head.places)
        ends[large] = last[large]
    return ends


def _keep_apart(extreme: _Extreme, parts: Parts, values: _Values, moved: Bools, changes: Int64s) -> None:
    """Take values that have moved out of the lists, and count them."""
    count, kind = len(parts[extreme.at]), parts[extreme.at].type
    parts[extreme.at] = lists_of(
        values.rows.filter(pa.array(~moved)), np.bincount(values.codes[~moved], minlength=count), kind
    )
    parts[extreme.at + 1] = pa.array(elsewhere(parts[extreme.at + 1]) + changes)


def _by_place(extreme: _Extreme, values: _Values) -> tuple[Int64s, Parts]:
    """The values as rows of the table: one of the values that each row has, and a list of all."""
    pairs = pair_groups(groups_of(pa.array(values.codes)), groups_of(pa.array(values.places)))
    singles = lists_of(values.rows, np.ones(len(values.rows), dtype=np.int64), extreme.kernel.part_kinds[0])
    return pairs.firsts(), extreme.kernel.combine([singles], pairs)


def _changed(extreme: _Extreme, keys: KeyColumn, values: _Values) -> Int64s:
    """Let the table follow changes of values; by how much the number of values of each group changes."""
    firsts, fresh = _by_place(extreme, values)
    codes, count, table = values.codes[firsts], len(firsts), extreme.table
    pairs, subs = keys.take(codes), pa.array(values.places[firsts])
    had, old = np.zeros(count, dtype=np.bool_), pa.nulls(0, fresh[0].type)
    if not table.view.is_empty:
        lookup = table.view.get_pairs(pairs, subs)
        assert lookup.values is not None
        had, old = lookup.mask, lookup.values
    groups = Groups(np.concatenate([np.flatnonzero(had), np.arange(count)]), count)
    lists = extreme.kernel.combine([pa.concat_arrays([old, fresh[0]])], groups)[0]
    lengths = flat(lists)[1]
    before = np.zeros(count, dtype=np.int64)
    before[had] = flat(old)[1]
    put = np.flatnonzero((lengths > 0) & (flat(fresh[0])[1] > 0))
    gone = np.flatnonzero((lengths == 0) & had)
    if len(put):
        table.changes.put(pairs.take(put), lists.take(pa.array(put)), subs=subs.take(pa.array(put)))
    if len(gone):
        table.changes.delete(pairs.take(gone), subs=subs.take(pa.array(gone)))
    return totals(codes, lengths - before, len(keys))


def _cut(extreme: _Extreme, keys: KeyColumn, parts: Parts) -> None:
    """Move all values behind the first ones of heads that are too large. The table has none at their places."""
    values = _values_of(extreme, parts[extreme.at])
    sizes = np.bincount(values.codes, minlength=len(keys))
    large = np.flatnonzero(sizes > HEAD_VALUES_MAX)
    order = np.lexsort((values.places, values.codes))
    ends = np.full(len(keys), _EVERYWHERE)
    ends[large] = values.places[order[(np.cumsum(sizes) - sizes)[large] + HEAD_VALUES - 1]]
    # One that is there stays, among those that only went so far.
    is_there = values.rows.field(1).to_numpy() > 0
    first = np.full(len(keys), _EVERYWHERE)
    np.minimum.at(first, values.codes[is_there], values.places[is_there])
    behind = values.places > np.maximum(ends, first)[values.codes]
    if not behind.any():  # all of them share a place
        return
    moved = values.chosen(behind)
    firsts, lists = _by_place(extreme, moved)
    extreme.table.changes.put(keys.take(moved.codes[firsts]), lists[0], subs=pa.array(moved.places[firsts]))
    _keep_apart(extreme, parts, values, behind, np.bincount(moved.codes, minlength=len(keys)))


def _fill(extreme: _Extreme, keys: KeyColumn, parts: Parts, empty: Int64s, ends: Int64s) -> None:
    """Give heads that have run empty the first of the values that follow; `ends`, where heads end, follows."""
    table = extreme.table
    table.settle()  # what this epoch changed counts
    found = table.view.first_rows(keys.take(empty), ends[empty], HEAD_VALUES)
    owners = empty[found.column("position").to_numpy()]
    assert len(np.unique(owners)) == len(empty), "a group has fewer values than its row says"
    table.changes.delete(keys.take(owners), subs=found.column("sub"))
    np.maximum.at(ends, owners, found.column("sub").to_numpy())
    rows, lengths = flat(found.column("value"))
    codes = np.concatenate([_values_of(extreme, parts[extreme.at]).codes, np.repeat(owners, lengths)])
    order = np.argsort(codes, kind="stable")
    whole = pa.concat_arrays([flat(parts[extreme.at])[0], rows]).take(pa.array(order))
    parts[extreme.at] = lists_of(whole, np.bincount(codes, minlength=len(keys)), parts[extreme.at].type)
    parts[extreme.at + 1] = pa.array(elsewhere(parts[extreme.at + 1]) - totals(owners, lengths, len(keys)))
