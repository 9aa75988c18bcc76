"""Sorted partitions, and the frames of their rows as ranges of positions.

Rows are sorted by partition, then by the order's keys, then by arrival. A frame is then a range of consecutive rows,
from `starts` up to `stops`, which may be empty. All functions here are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.aggregation.rolling_columns import order_numbers
from millstream.graph.over_nodes import Frame
from millstream.graph.table_nodes import OrderKey
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, plain_view, plain_view_type

__all__ = ["OrderedRows", "ordered", "ordered_by_time"]


@dataclass(frozen=True)
class OrderedRows:
    """Sorted rows. `rows` has their original positions, `partitions` their partition codes. `is_first` masks rows that
    differ from the previous row in partition or order. RANGE measures distances by `values`, negated for a descending
    order; `absent` masks NULLs."""

    rows: Int64s
    partitions: Int64s
    is_first: Bools
    absent: Int64s
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def places(self) -> Int64s:
        """0, 1, 2, …"""
        return np.arange(len(self))

    @cached_property
    def begins(self) -> Int64s:
        """The start of the row's partition."""
        return _begins(self._is_new_partition)

    @cached_property
    def ends(self) -> Int64s:
        """The end of the row's partition, exclusive."""
        return _ends(self._is_new_partition)

    @cached_property
    def peer_begins(self) -> Int64s:
        """The start of the row's peers: rows with an equal order key."""
        return _begins(self.is_first)

    @cached_property
    def peer_ends(self) -> Int64s:
        """The end of the row's peers, exclusive."""
        return _ends(self.is_first)

    @cached_property
    def partition_numbers(self) -> Int64s:
        """The partition of each row, numbered from 0 without gaps, in the order of rows."""
        return np.cumsum(self._is_new_partition) - 1

    @cached_property
    def _is_new_partition(self) -> Bools:
        return _changes(self.partitions)

    def frames(self, frame: Frame) -> tuple[Int64s, Int64s]:
        """Start and stop of every row's frame."""
        starts = self._bound(frame.unit, None if frame.preceding is None else -frame.preceding, is_start=True)
        stops = self._bound(frame.unit, frame.following, is_start=False)
        return starts, np.maximum(stops, starts)

    def _bound(self, unit: str, offset: float | None, *, is_start: bool) -> Int64s:
        if offset is None:
            return self.begins if is_start else self.ends
        if unit == "ROWS":
            at = self.places + int(offset) + (0 if is_start else 1)
            return np.clip(at, self.begins, self.ends)
        if offset == 0:
            return self.peer_begins if is_start else self.peer_ends
        bounds = _moved(self.values, offset, self.absent)
        positions = self._search(bounds, is_start=is_start)
        if self.values.dtype == np.float64 or is_start == (offset < 0):
            return positions
        # The bound may exceed the integer range: then no row is that far away, not even at the end of the range.
        is_beyond = (self.absent == 0) & ~_has_room(self.values, int(offset))
        return (
            np.where(is_beyond, self._search(bounds, is_start=not is_start), positions)
            if is_beyond.any()
            else positions
        )

    def _search(self, bounds: NDArray[Any], *, is_start: bool) -> Int64s:
        """The position, in the row's partition, of the first value not below the bound, or after the last not above
        it."""
        count = len(self)
        values = np.concatenate([self.values, bounds])
        groups = np.concatenate([self.partitions, self.partitions])
        absent = np.concatenate([self.absent, self.absent])
        # A bound sorts before the rows with an equal value, or after them.
        is_bound = np.repeat([0, 1], count) if not is_start else np.repeat([1, 0], count)
        order = np.lexsort((is_bound, values, absent, groups))
        rows_before = np.cumsum(order < count)
        positions = np.empty(count, dtype=np.int64)
        of_bounds = order >= count
        positions[order[of_bounds] - count] = rows_before[of_bounds]
        return positions


def ordered(partitions: Int64s, columns: Sequence[pa.Array], order: Sequence[OrderKey]) -> OrderedRows:
    """Rows sorted by partition and order. `columns` are the rows' columns.

    >>> rows = ordered(np.array([0, 1, 0]), [pa.array([5, 9, 3])], [OrderKey(0)])
    >>> rows.rows.tolist(), [bound.tolist() for bound in rows.frames(Frame("ROWS", 1, 0))]
    ([2, 0, 1], [[0, 0, 2], [1, 2, 3]])
    """
    keys = [_sortable(columns[key.column], key) for key in order]
    sorted_by: list[NDArray[Any]] = []
    for value, absent in reversed(keys):
        sorted_by += [value, absent]
    rows = np.lexsort((*sorted_by, partitions))  # stable: equal rows in arrival order
    is_first = _changes(partitions[rows], *(part[rows] for pair in keys for part in pair))
    none = np.zeros(len(rows), dtype=np.int64)
    values, missing = _measured(columns[order[0].column], order[0]) if order else (none, none)
    return OrderedRows(rows, partitions[rows], is_first, missing[rows], values[rows])


def ordered_by_time(partitions: Int64s, times: Int64s, *, has_peers: bool = True) -> OrderedRows:
    """Rows sorted by partition and time; with `has_peers=False` rows with equal times are not peers."""
    rows = np.lexsort((times, partitions))
    none = np.zeros(len(rows), dtype=np.int64)
    is_first = _changes(partitions[rows], times[rows]) if has_peers else np.ones(len(rows), dtype=np.bool_)
    return OrderedRows(rows, partitions[rows], is_first, none, times[rows])


def _changes(*columns: NDArray[Any]) -> Bools:
    """Mask of the rows that differ from the previous row in any column."""
    differs = np.zeros(len(columns[0]), dtype=np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def _begins(is_new: Bools) -> Int64s:
    begins: Int64s = np.maximum.accumulate(np.where(is_new, np.arange(len(is_new)), 0))
    return begins


def _ends(is_new: Bools) -> Int64s:
    starts = np.flatnonzero(is_new)
    stops = np.append(starts[1:], len(is_new))
    return np.repeat(stops, stops - starts)


def _moved(values: NDArray[Any], offset: float, absent: Int64s) -> NDArray[Any]:
    """The values plus the offset, clamped to the integer range; NULLs do not move."""
    if values.dtype == np.float64:
        return np.where(absent == 0, values + offset, values)
    by = int(offset)
    limits = np.iinfo(np.int64)
    moved = np.where(_has_room(values, by), values + np.int64(by), limits.max if by > 0 else limits.min)
    return np.where(absent == 0, moved, values)


def _has_room(values: NDArray[Any], by: int) -> Bools:
    """Mask of the integers that do not overflow when moved."""
    limits = np.iinfo(np.int64)
    room: Bools = values <= limits.max - by if by > 0 else values >= limits.min - by
    return room


def _sortable(column: pa.Array, key: OrderKey) -> tuple[Int64s, Int64s]:
    """Integers that sort as the key requires, and a sort flag for NULL."""
    valid = np.asarray(column.is_valid())
    numbers = np.where(valid, order_numbers(column), 0)
    absent = np.where(valid, 0, -1 if key.nulls_first else 1)
    return (~numbers if key.descending else numbers), absent


def _measured(column: pa.Array, key: OrderKey) -> tuple[NDArray[Any], Int64s]:
    """The values by which RANGE measures distances: numbers and times."""
    valid = np.asarray(column.is_valid())
    absent = np.where(valid, 0, -1 if key.nulls_first else 1)
    if plain_view_type(column.type) is not None:
        numbers = np.where(valid, plain_view(column).astype(np.int64), 0)
        return (~numbers if key.descending else numbers), absent
    if pa.types.is_floating(column.type):
        floats = column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        floats = np.where(np.isnan(floats), np.inf, floats)  # NaN is the largest
        return (-floats if key.descending else floats), absent
    return np.zeros(len(column), dtype=np.int64), absent  # other types have no distances
