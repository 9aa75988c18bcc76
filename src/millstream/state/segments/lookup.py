"""Looks up many keys at once in one segment.

A `Probe` holds the keys to look up, sorted as segments are. For each segment, the probe is divided at the chunks'
fences, and one `searchsorted` per chunk locates all its keys; then the keys themselves are compared, because a prefix
of a hash does not identify the key. In a table with subs, a key is a run of rows, and a second binary search locates
the sub. The cost is keys × log(rows), without a Python loop over keys. Two exceptions are bounded: keys that share 55
bits of their hash are compared one by one; and a key with very many subs in the probe, such as a large group with its
values, is located once for all of them, which are sorted and searched in its run with one call.

This module returns changes; `tables.table` determines whether a change is a value, and which segment counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s, UInt64s
from millstream.state.keys.key_columns import Bools, KeyColumn, same
from millstream.state.segments.segment import Chunk, PlainKeys, Segment, key_view
from millstream.state.segments.sorting import ascending
from millstream.state.tables.layout import CLEAR, TableLayout, orders_in, orders_of, sub_orders_in

__all__ = ["Hits", "Layer", "Probe", "Runs", "expanded", "find_rows", "find_runs", "first_not_below"]


def expanded(starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
    """All rows of all runs, one run after another, and the run of each.

    >>> [part.tolist() for part in expanded(np.array([5, 1]), np.array([7, 2]))]
    [[5, 6, 1], [0, 0, 1]]
    """
    lengths = stops - starts
    ends = np.cumsum(lengths)
    run = np.repeat(np.arange(len(starts)), lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths), run


_NONE = np.empty(0, dtype=np.int64)
MANY_SUBS = 64
"""A key with this many subs in one probe gets a separate search."""


@dataclass(frozen=True)
class Probe:
    """Keys (and subs) to look up, sorted by order; `positions` are their positions in the caller's column. The subs of
    a key with many subs are sorted too."""

    orders: UInt64s
    keys: pa.Array
    view: PlainKeys | None
    positions: Int64s
    subs: pa.Array | None = None
    sub_orders: Int64s | None = None

    @classmethod
    def of(cls, keys: KeyColumn, layout: TableLayout, subs: pa.Array | None = None) -> Probe:
        """The probe for a column of keys, with one sub per key if `subs` is passed."""
        orders = orders_of(keys.hashes, layout.max_parallelism)
        positions = ascending(orders)
        sorted_orders = orders[positions]
        sub_orders = None
        if subs is not None:
            sub_orders = layout.sub_orders(subs)
            for start, stop in _long_runs(sorted_orders[1:] != sorted_orders[:-1]):
                members = positions[start:stop]
                positions[start:stop] = members[np.argsort(sub_orders[members])]
            sub_orders = sub_orders[positions]
        at = pa.array(positions)
        sorted_keys = keys.array.take(at)
        sorted_subs = None if subs is None else subs.take(at)
        return cls(sorted_orders, sorted_keys, key_view(sorted_keys), positions, sorted_subs, sub_orders)

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, layout: TableLayout) -> Probe:
        """The probe for other changes of these sorted rows."""
        keys = rows.column("key")
        subs, sub_orders = None, None
        if layout.sub_type is not None:
            subs, sub_orders = rows.column("sub"), sub_orders_in(rows, layout)
        return cls(orders_in(rows), keys, key_view(keys), np.arange(rows.num_rows), subs, sub_orders)

    def __len__(self) -> int:
        return len(self.orders)

    @cached_property
    def key_numbers(self) -> Int64s:
        """Ascending numbers that are equal for neighbours with the same key."""
        numbers = np.zeros(len(self), dtype=np.int64)
        if len(self) > 1:
            is_other = self.orders[1:] != self.orders[:-1]
            if self.view is not None:
                is_other |= self.view[1:] != self.view[:-1]
            else:
                is_other |= ~same(self.keys.slice(1), self.keys.slice(0, len(self) - 1))
            np.cumsum(is_other, out=numbers[1:])
        return numbers

    def has_key_of(self, at: Int64s, chunk: Chunk, rows: Int64s) -> Bools:
        """For each pair, whether the probe's key at `at` equals the key of the chunk's row."""
        if self.view is not None and chunk.key_view is not None:
            equal: Bools = self.view[at] == chunk.key_view[rows]
            return equal
        return same(self.keys.take(pa.array(at)), chunk.keys.take(pa.array(rows)))


@dataclass(frozen=True)
class Layer:
    """A segment, and the range of orders for which it is live."""

    segment: Segment
    order_start: int
    order_stop: int

    def among(self, orders: UInt64s) -> slice:
        """The slice of sorted orders within the range."""
        start, stop = orders.searchsorted(np.array([self.order_start, self.order_stop], dtype=np.uint64)).tolist()
        return slice(start, stop)


@dataclass(frozen=True)
class Hits:
    """The matches of a probe in one chunk: row `rows[i]` is a change of the row requested by `at[i]`; the key of
    `cleared_at[i]` was cleared, and the requested row was not written since."""

    chunk: Chunk
    at: Int64s
    rows: Int64s
    cleared_at: Int64s


@dataclass(frozen=True)
class Runs:
    """The rows [starts[i], stops[i]) of a chunk are all rows of the key of `at[i]`, without its CLEAR."""

    chunk: Chunk
    at: Int64s
    starts: Int64s
    stops: Int64s
    is_cleared: Bools


def _spans(segment: Segment, orders: UInt64s) -> Iterator[tuple[Chunk, int, int]]:
    """The chunks that may contain some of the sorted orders, each with the range of these orders."""
    if not len(segment.fences):
        return
    bounds = orders.searchsorted(segment.fences)
    stops = np.empty_like(bounds)  # not np.append, nor np.flatnonzero below: this runs for every segment of every read
    stops[:-1], stops[-1] = bounds[1:], len(orders)
    for number in (stops > bounds).nonzero()[0].tolist():
        if orders[bounds[number]] <= segment.entries[number].last_order:
            yield segment.chunk(number), int(bounds[number]), int(stops[number])


def find_rows(segment: Segment, probe: Probe, at: Int64s) -> Iterator[Hits]:
    """The changes of the rows at the probe's positions `at` (ascending)."""
    if probe.subs is None:
        orders = probe.orders[at]
        for chunk, start, stop in _spans(segment, orders):
            yield _find_keys(chunk, probe, at[start:stop], orders[start:stop])
        return
    for runs in find_runs(segment, probe, at):
        yield _find_subs(runs, probe)


def _find_keys(chunk: Chunk, probe: Probe, at: Int64s, orders: UInt64s) -> Hits:
    # Lookups of few keys call this often, so steps are skipped where possible.
    rows = chunk.orders.searchsorted(orders)
    if rows[-1] == chunk.rows:
        np.minimum(rows, chunk.rows - 1, out=rows)
    is_near = chunk.orders[rows] == orders
    if np.count_nonzero(is_near) < is_near.size:
        near = is_near.nonzero()[0]
        at, rows = at[near], rows[near]
    is_match = probe.has_key_of(at, chunk, rows)
    if np.count_nonzero(is_match) == is_match.size:
        return Hits(chunk, at, rows, _NONE)
    # Another key with the same order precedes; the requested key may follow it.
    matching_at, matching_rows = [at[is_match]], [rows[is_match]]
    while True:
        at, rows = at[~is_match], rows[~is_match] + 1
        near = np.flatnonzero(rows < chunk.rows)
        near = near[chunk.orders[rows[near]] == probe.orders[at[near]]]
        if not near.size:
            break
        at, rows = at[near], rows[near]
        is_match = probe.has_key_of(at, chunk, rows)
        matching_at.append(at[is_match])
        matching_rows.append(rows[is_match])
    return Hits(chunk, np.concatenate(matching_at), np.concatenate(matching_rows), _NONE)


def find_runs(segment: Segment, probe: Probe, at: Int64s) -> Iterator[Runs]:
    """All rows of the keys at the probe's positions `at` (ascending)."""
    orders = probe.orders[at]
    for chunk, start, stop in _spans(segment, orders):
        if probe.subs is None:
            runs = _find_runs(chunk, probe, at[start:stop], orders[start:stop])
        else:
            runs = _find_shared_runs(chunk, probe, at[start:stop], orders[start:stop])
        if runs.at.size:
            yield runs


def _find_shared_runs(chunk: Chunk, probe: Probe, at: Int64s, orders: UInt64s) -> Runs:
    """As `_find_runs`, with one search for consecutive requests of the same key."""
    numbers = probe.key_numbers[at]
    firsts = np.concatenate(([0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1))
    if len(firsts) * 2 > len(at):
        return _find_runs(chunk, probe, at, orders)
    runs = _find_runs(chunk, probe, at[firsts], orders[firsts])
    run_numbers = at[firsts].searchsorted(runs.at)
    members, run = expanded(firsts[run_numbers], np.append(firsts[1:], len(at))[run_numbers])
    return Runs(chunk, at[members], runs.starts[run], runs.stops[run], runs.is_cleared[run])


def _find_runs(chunk: Chunk, probe: Probe, at: Int64s, orders: UInt64s) -> Runs:
    starts, stops = chunk.orders.searchsorted(orders), chunk.orders.searchsorted(orders, "right")
    present = np.flatnonzero(stops > starts)
    at, starts, stops = at[present], starts[present], stops[present]
    # A key's rows are contiguous: if the first and the last belong to the key, all do.
    whole = probe.has_key_of(at, chunk, starts) & probe.has_key_of(at, chunk, stops - 1)
    for i in np.flatnonzero(~whole).tolist():
        rows = np.arange(starts[i], stops[i])
        key_rows = rows[probe.has_key_of(np.full(rows.size, at[i]), chunk, rows)]
        starts[i], stops[i] = (key_rows[0], key_rows[-1] + 1) if key_rows.size else (0, 0)
    if not whole.all():
        present = np.flatnonzero(stops > starts)
        at, starts, stops = at[present], starts[present], stops[present]
    cleared = chunk.kinds[starts] == CLEAR
    return Runs(chunk, at, starts + cleared, stops, cleared)


def _find_subs(runs: Runs, probe: Probe) -> Hits:
    chunk, at, stops = runs.chunk, runs.at, runs.stops
    assert probe.sub_orders is not None and chunk.sub_orders is not None
    sub_orders = probe.sub_orders[at]
    rows = first_not_below(chunk.sub_orders, sub_orders, runs.starts, stops)
    is_match = np.zeros(at.size, dtype=np.bool_)
    pending = np.arange(at.size)
    while True:
        pending = pending[rows[pending] < stops[pending]]
        pending = pending[chunk.sub_orders[rows[pending]] == sub_orders[pending]]
        if not pending.size:
            break
        is_match[pending] = _has_sub_of(probe, at[pending], chunk, rows[pending])
        pending = pending[~is_match[pending]]
        rows[pending] += 1
    return Hits(chunk, at[is_match], rows[is_match], at[runs.is_cleared & ~is_match])


def _has_sub_of(probe: Probe, at: Int64s, chunk: Chunk, rows: Int64s) -> Bools:
    subs = chunk.batch.column("sub")
    if "sub_order" not in chunk.batch.schema.names:
        return np.ones(at.size, dtype=np.bool_)  # the order is the sub
    assert probe.subs is not None
    return same(probe.subs.take(pa.array(at)), subs.take(pa.array(rows)))


def first_not_below(values: Int64s, targets: Int64s, starts: Int64s, stops: Int64s) -> Int64s:
    """In each run of sorted values, the first row whose value is not below the target.

    Runs shared by many consecutive targets are searched one by one in C, which is fastest if targets ascend; for the
    others all binary searches advance in lockstep.
    """
    rows = np.empty(len(targets), dtype=np.int64)
    is_left = np.ones(len(targets), dtype=np.bool_)
    for first, last in _long_runs((starts[1:] != starts[:-1]) | (stops[1:] != stops[:-1])):
        start, stop = int(starts[first]), int(stops[first])
        rows[first:last] = start + values[start:stop].searchsorted(targets[first:last])
        is_left[first:last] = False
    left = is_left.nonzero()[0]
    if left.size:
        rows[left] = _first_not_below_in_step(values, targets[left], starts[left], stops[left])
    return rows


def _first_not_below_in_step(values: Int64s, targets: Int64s, starts: Int64s, stops: Int64s) -> Int64s:
    low, high = starts.copy(), stops.copy()
    pending = np.flatnonzero(low < high)
    while pending.size:
        middle = (low[pending] + high[pending]) >> 1
        below = values[middle] < targets[pending]
        low[pending[below]] = middle[below] + 1
        high[pending[~below]] = middle[~below]
        pending = pending[low[pending] < high[pending]]
    return low


def _long_runs(is_other: Bools) -> list[tuple[int, int]]:
    """The runs of at least MANY_SUBS neighbours; `is_other` marks, for all but the first, the start of a new run.

    >>> _long_runs(np.array([False] * 63 + [True] + [False] * 62))
    [(0, 64)]
    """
    if len(is_other) + 1 < MANY_SUBS:
        return []
    edges = np.concatenate(([0], np.flatnonzero(is_other) + 1, [len(is_other) + 1]))
    long = np.flatnonzero(np.diff(edges) >= MANY_SUBS)
    return list(zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True))
