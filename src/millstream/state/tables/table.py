"""A view of a table: one version, at one time, for one range of key groups.

The layers of a view are its segments, oldest first, and perhaps unwritten changes on top. The newest layer wins: a
lookup visits the layers from the newest, and the first layer with any change of a key (or of a key's sub) decides. This
includes deleted and expired rows: then there is no value, even if older layers have one.

A view never changes and never writes. It covers only its key groups, and the time is a parameter: `now_ms` determines
which rows have expired and is the same for the whole epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, key_column_of_arrow, of_bits
from millstream.state.segments.lookup import Layer, Probe, expanded, find_rows, find_runs
from millstream.state.segments.merging import BLOCK_ROWS, live_rows, merged_blocks, presented
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.resolution import newest_of_each
from millstream.state.segments.segment import PlainKeys, Segment
from millstream.state.segments.version import SegmentRef, order_of_place, refs_for
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.due_rows import due_changes, due_rows, earliest_due
from millstream.state.tables.first_rows import first_rows
from millstream.state.tables.key_rows import KeyRows
from millstream.state.tables.layout import TableLayout, order_of_group
from millstream.state.tables.point_reads import PointReader, reads_points

__all__ = ["LookupResult", "TableView"]


@dataclass(frozen=True)
class LookupResult:
    """A mask of the keys with a row, and these keys' values, in the order of the keys."""

    mask: Bools
    values: pa.Array | None


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


_Lookup = Callable[Concatenate["TableView", Arguments], Answer]


def _timed(lookup: _Lookup[Arguments, Answer]) -> _Lookup[Arguments, Answer]:
    """Adds the time of a (bulk) lookup to `OpenSegments.read_ns`."""

    @wraps(lookup)
    def timed(view: TableView, /, *args: Arguments.args, **options: Arguments.kwargs) -> Answer:
        start_ns = time.perf_counter_ns()
        try:
            return lookup(view, *args, **options)
        finally:
            view._segments.read_ns += time.perf_counter_ns() - start_ns

    return timed


class TableView:
    """One version of a table. Scans return record batches with the columns hash, key, sub, value, due_ms, expires_ms
    as far as the table has them.

    >>> from millstream.state.keys.key_columns import key_column
    >>> from millstream.storage import open_store
    >>> layout = TableLayout("total", None, value_type=pa.int64())
    >>> changes = TableChanges(layout)
    >>> changes.put(key_column(["a", "b"], None), pa.array([1, 2]))
    >>> view = TableView(OpenSegments(open_store("memory://doctest-table")), layout, (), range(128), now_ms=0)
    >>> result = view.with_changes(changes).get(key_column(["b", "c"], None))
    >>> result.mask.tolist(), result.values.to_pylist()
    ([True, False], [2])
    """

    def __init__(
        self,
        segments: OpenSegments,
        layout: TableLayout,
        refs: Sequence[SegmentRef],
        groups: range,
        now_ms: int,
        *,
        changes: tuple[Segment, ...] = (),
    ) -> None:
        self.layout = layout
        self.groups = layout.check_groups(groups)
        self.refs = refs_for(refs, groups)
        self.now_ms = now_ms
        self._segments = segments
        self._changes = changes

    @cached_property
    def layers(self) -> list[Layer]:
        """The segments, oldest first, opened on first use."""
        self._segments.fetch(self.refs)
        layers = [
            Layer(
                self._segments.segment(ref, self.layout),
                order_of_place(ref.places.start),
                order_of_place(ref.places.stop),
            )
            for ref in self.refs
        ]
        layers += [Layer(changes, *self._order_range(None)) for changes in self._changes]
        return layers

    @property
    def segments(self) -> OpenSegments:
        """The cache in which its segments are opened."""
        return self._segments

    def touch(self, bytes_max: int) -> None:
        """Check chunks before they are read, newest first, up to `bytes_max`."""
        for layer in reversed(self.layers):
            bytes_max -= layer.segment.touch(bytes_max)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows at all, live or not; does not open segments."""
        return not self.refs and not self._changes

    @property
    def has_changes(self) -> bool:
        """Whether there are unwritten changes."""
        return bool(self._changes)

    def with_changes(self, changes: TableChanges) -> TableView:
        """The table with the current `changes` applied, as if written."""
        return self.above(changes.rows())

    def above(self, rows: pa.RecordBatch) -> TableView:
        """The table with these changes, sorted as in a segment, on top."""
        changes = (*self._changes, Segment.of_rows(rows, self.layout))
        return TableView(self._segments, self.layout, self.refs, self.groups, self.now_ms, changes=changes)

    def get(self, keys: KeyColumn) -> LookupResult:
        """The values of many keys, in a table without subs."""
        if self.layout.sub_type is not None:
            raise ValueError(f"state {self.layout.state!r} has subs: use get_pairs or scan_keys")
        return self._get(Probe.of(keys, self.layout))

    def get_pairs(self, keys: KeyColumn, subs: pa.Array) -> LookupResult:
        """The values of many (key, sub) pairs."""
        if self.layout.sub_type is None:
            raise ValueError(f"state {self.layout.state!r} has no subs: use get")
        return self._get(Probe.of(keys, self.layout, subs))

    def get_value(self, key: object) -> object:
        """The value of one key, as a Python value; None if absent. For single reads from a view that stays open."""
        if self._points is not None:
            return self._points.get(key)
        result = self.get(key_column_of_arrow(pa.array([key], self.layout.stored_key_type)))
        return result.values[0].as_py() if result.values else None

    @cached_property
    def _points(self) -> PointReader | None:
        return self.points if self.layout.sub_type is None else None

    @cached_property
    def points(self) -> PointReader | None:
        """The reader of single keys; None if the key type does not support point reads."""
        return PointReader(self.layout, self.layers, self.now_ms) if reads_points(self.layout.key_type) else None

    @_timed
    def _get(self, probe: Probe) -> LookupResult:
        self._check_groups(probe)
        is_open = np.ones(len(probe), dtype=np.bool_)
        at: list[Int64s] = []
        values: list[pa.Array | PlainKeys] = []
        for layer in reversed(self.layers):
            span = layer.among(probe.orders)
            open_at = span.start + is_open[span].nonzero()[0]
            if not open_at.size:
                continue
            for hits in find_rows(layer.segment, probe, open_at):
                is_open[hits.at] = False
                is_open[hits.cleared_at] = False
                live, matching_at, rows = hits.chunk.are_live(hits.rows, self.now_ms), hits.at, hits.rows
                if np.count_nonzero(live) < live.size:
                    matching_at, rows = matching_at[live], rows[live]
                at.append(matching_at)
                if hits.chunk.values is not None and rows.size:
                    values.append(hits.chunk.values_at(rows))
        return self._in_key_order(probe, at, values)

    def _in_key_order(self, probe: Probe, at: list[Int64s], values: list[pa.Array | PlainKeys]) -> LookupResult:
        """Sort matches, gathered layer by layer, into the order of the keys."""
        mask = np.zeros(len(probe), dtype=np.bool_)
        if not values:
            if at:
                mask[probe.positions[np.concatenate(at)]] = True
            value_type = self.layout.value_type
            return LookupResult(mask, None if value_type is None else pa.nulls(0, value_type))
        positions = probe.positions[np.concatenate(at)]
        mask[positions] = True
        ranks = np.cumsum(mask) - 1
        order = np.empty(len(positions), dtype=np.int64)
        order[ranks[positions]] = np.arange(len(positions))
        kind = self.layout.value_type
        if all(isinstance(part, np.ndarray) for part in values):
            return LookupResult(mask, of_bits(np.concatenate(values)[order], kind))
        parts = [of_bits(part, kind) if isinstance(part, np.ndarray) else part for part in values]
        whole = pa.concat_arrays(parts)
        if (positions[1:] > positions[:-1]).all():  # keys sorted as in the store, all matched in one layer
            return LookupResult(mask, whole)
        return LookupResult(mask, whole.take(pa.array(order)))

    def row_counts(self, keys: KeyColumn) -> Int64s:
        """An upper bound of every key's number of rows, without reading them: two searches per segment, because the
        rows of a key are contiguous. Overwritten, deleted and expired rows are counted too."""
        counts = np.zeros(len(keys), dtype=np.int64)
        if not len(keys):
            return counts
        probe = Probe.of(keys, self.layout)
        for layer in self.layers:
            span = layer.among(probe.orders)
            at = np.arange(span.start, span.stop)
            for runs in find_runs(layer.segment, probe, at) if at.size else ():
                np.add.at(counts, probe.positions[runs.at], runs.stops - runs.starts)
        return counts

    def _check_groups(self, probe: Probe) -> None:
        if len(probe):
            start, stop = self._order_range(None)
            if not start <= int(probe.orders[0]) <= int(probe.orders[-1]) < stop:
                raise ValueError(
                    f"state {self.layout.state!r}: a key outside the key groups {self.groups} of this view"
                )

    @_timed
    def scan_keys(self, keys: KeyColumn) -> pa.RecordBatch:
        """All live rows of these keys, with the `position` of the key in `keys`, sorted by (position, sub order).

        Subs that are 64-bit numbers or times are in ascending order, others in a fixed order.
        """
        probe = Probe.of(keys, self.layout)
        self._check_groups(probe)
        is_open = np.ones(len(probe), dtype=np.bool_)
        pieces: list[pa.RecordBatch] = []
        positions: list[Int64s] = []
        for layer in reversed(self.layers):
            span = layer.among(probe.orders)
            open_at = span.start + is_open[span].nonzero()[0]
            for runs in find_runs(layer.segment, probe, open_at) if open_at.size else ():
                is_open[runs.at[runs.is_cleared]] = False
                rows, run = expanded(runs.starts, runs.stops)
                pieces.append(runs.chunk.batch.take(pa.array(rows)))
                positions.append(probe.positions[runs.at][run])
        if not pieces:
            return presented(_no_rows(self.layout), self.layout, np.empty(0, dtype=np.int64))
        changes, of_key = pa.concat_batches(pieces[::-1]), np.concatenate(positions[::-1])
        newest = newest_of_each(changes, self.layout, of_key)
        surviving_rows = changes.take(pa.array(newest))
        live = live_rows(surviving_rows, self.layout, self.now_ms)
        return presented(surviving_rows.filter(pa.array(live)), self.layout, of_key[newest][live])

    @_timed
    def key_rows(self, key: KeyColumn) -> KeyRows:
        """The rows of the one key in `key`, read on demand, in a table with subs."""
        self._check_groups(Probe.of(key, self.layout))
        return KeyRows(self.layers, self.layout, key, self.now_ms)

    @_timed
    def first_rows(self, keys: KeyColumn, begins: Int64s, count: int) -> pa.RecordBatch:
        """As `scan_keys`, limited to the first `count` rows of each key whose sub is not below the key's `begins`. Subs
        are 64-bit numbers or times; the cost does not grow with the other rows of the key."""
        return first_rows(self.layers, self.layout, keys, begins, count, self.now_ms)

    @_timed
    def scan_due(self, through_ms: int, *, after_ms: int | None = None) -> pa.RecordBatch:
        """The live rows with `after_ms` < due_ms <= `through_ms`, sorted by (due_ms, key's order, sub order).

        `after_ms` is for callers that know that no row at or before it remains: rows that were removed but not yet
        compacted are then skipped.
        """
        rows = due_rows(self.layers, self.layout, self.now_ms, through_ms, after_ms)
        return presented(rows, self.layout)

    @_timed
    def scan_due_changes(self, through_ms: int, *, after_ms: int | None = None) -> list[pa.RecordBatch]:
        """As `scan_due`, in batches, including rows superseded in a later batch: the last row of a key and sub counts.
        Only for tables whose due time is determined by key and sub, and whose rows are removed only by expiry."""
        changes = due_changes(self.layers, self.layout, self.now_ms, through_ms, after_ms)
        return [presented(rows, self.layout) for rows in changes]

    def min_due(self, *, after_ms: int | None = None) -> int | None:
        """The earliest due time of a live row, later than `after_ms` if passed; None if no row is ever due."""
        return earliest_due(self.layers, self.layout, self.now_ms, after_ms)

    def scan(self, groups: range | None = None, *, block_rows: int = BLOCK_ROWS) -> Iterator[pa.RecordBatch]:
        """All live rows (of some key groups), in the order of segments, about `block_rows` at a time."""
        if groups is not None and groups and not (groups[0] in self.groups and groups[-1] in self.groups):
            raise ValueError(f"state {self.layout.state!r}: {groups} is not within the key groups {self.groups}")
        for block in merged_blocks(self.layers, self.layout, *self._order_range(groups), block_rows):
            live = live_rows(block, self.layout, self.now_ms)
            rows = block if live.all() else block.filter(pa.array(live))
            if rows.num_rows:
                yield presented(rows, self.layout)

    def _order_range(self, groups: range | None) -> tuple[int, int]:
        group_range = self.groups if groups is None else groups
        return order_of_group(group_range.start), order_of_group(group_range.stop)


def _no_rows(layout: TableLayout) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=layout.schema)
