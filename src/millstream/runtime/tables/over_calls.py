"""What OVER computes, in columns: aggregates of frames, numbers of rows, and values of neighbours.

A frame is a run of consecutive rows (`over_frames`), so an aggregate is what its kernel's `ranged` says of many runs at
once. A frame that begins with the partition may have a row before it that stands for all that was there earlier: the
accumulators of the partition. Floats of such frames are added one after another, so that a sum is the same however the
input was cut into epochs.

`over_reference` says the same a row at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Average, Kernel, Parts, Sum, column_from, numbers_of
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.kernels import column_of, kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.pane_rows import result_of_nothing
from millstream.aggregation.rolling_columns import accumulate
from millstream.errors import ProgramError
from millstream.graph.over_nodes import OverColumn
from millstream.runtime.tables.over_frames import OrderedRows
from millstream.runtime.tables.user_aggregates import user_functions_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools

__all__ = ["Earlier", "FrameCall", "NeighbourCall", "OverCall", "PlaceCall", "functions_of", "over_calls"]

_EXPANDED_ROWS_MAX = 1 << 20


@dataclass(frozen=True)
class Earlier:
    """What partitions had before the rows at hand: which have something, and the accumulators of those."""

    had: Bools
    parts: Parts


class OverCall:
    """One call over rows of some partitions."""

    def __init__(self, column: OverColumn) -> None:
        self.column = column

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        """A value for each row, in their order. `columns` are the rows' columns, in that order, too."""
        raise NotImplementedError


class FrameCall(OverCall):
    """An aggregate of the frame of each row."""

    def __init__(self, column: OverColumn) -> None:
        super().__init__(column)
        assert column.measure is not None
        self.measure = column.measure
        self.kernel: Kernel = kernels_of([column.measure])[0]

    @property
    def is_running(self) -> bool:
        """Whether its frames begin with the partition."""
        return self.column.frame.preceding is None

    def lifted(self, columns: pa.RecordBatch, at: Int64s) -> Parts:
        """An accumulator for each row; `at` only grows in a partition."""
        return self.kernel.lift([column_of(look, columns) for look in self.measure.arguments], at)

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        parts = self.lifted(columns, rows.places)
        starts, stops = rows.frames(self.column.frame)
        if self.column.frame.preceding is None and not (stops == starts).any():
            return self.kernel.results(self._running(parts, rows.begins, starts, stops))
        return self._of_frames(parts, starts, stops)

    def _of_frames(self, parts: Parts, starts: Int64s, stops: Int64s) -> pa.Array:
        """The results of frames, of which some may be empty."""
        is_empty = stops == starts
        if is_empty.any():  # one row stands in for none, and is not told
            last = max(len(parts[0]) - 1, 0)
            starts = np.where(is_empty, np.minimum(starts, last), starts)
            stops = np.where(is_empty, starts + 1, stops)
        found = self.kernel.results(_in_pieces(self.kernel, parts, starts, stops))
        if not is_empty.any():
            return found
        both = pa.concat_arrays([found, result_of_nothing(self.kernel).cast(found.type)])
        return both.take(pa.array(np.where(is_empty, len(found), np.arange(len(found)))))

    def running(
        self, rows: OrderedRows, columns: pa.RecordBatch, at: Int64s, earlier: Earlier
    ) -> tuple[pa.Array, Parts]:
        """The results of frames that begin with the partition, which had something earlier; and what each partition has
        now, partitions being numbered from 0. `at` is as in `lifted`, over all epochs."""
        parts, places, begins, lengths = _with_earlier(self.lifted(columns, at), rows, earlier)
        stops = places[rows.frames(self.column.frame)[1] - 1] + 1
        runs = np.repeat(begins, lengths)
        found = self._running(parts, runs, runs[places], stops)
        return self.kernel.results(found), self.kernel.combine(parts, _groups(lengths))

    def _running(self, parts: Parts, begins: Int64s, starts: Int64s, stops: Int64s) -> Parts:
        """Accumulators of runs that begin where a partition does: `begins` says where that is, for all rows."""
        if not _adds_floats(self.kernel):
            return _in_pieces(self.kernel, parts, starts, stops)
        first = np.unique(begins)
        lengths = np.diff(np.append(first, len(begins)))
        with np.errstate(all="ignore"):  # a sum may pass the range of DOUBLE: infinity
            sums = accumulate(np.add, numbers_of(parts[0], np.float64)[0], first, lengths)[stops - 1]
        if len(parts) > 1:  # an average: its count is whole
            counts = np.cumsum(numbers_of(parts[1])[0])
            before = counts[starts] - numbers_of(parts[1])[0][starts]
            return [pa.array(sums), pa.array(counts[stops - 1] - before)]
        valid = np.cumsum(np.asarray(parts[0].is_valid()).astype(np.int64))
        before = valid[starts] - np.asarray(parts[0].is_valid())[starts]
        return [column_from(sums, valid[stops - 1] > before, pa.float64())]


class DistinctCall(FrameCall):
    """An aggregate of the distinct values of a frame. In frames that begin with the partition a value counts where it
    comes first: no frame is looked through."""

    def __init__(self, column: OverColumn) -> None:
        super().__init__(column)
        assert self.measure.inner is not None
        self._inner = FrameCall(replace(column, measure=self.measure.inner))

    def running(
        self, rows: OrderedRows, columns: pa.RecordBatch, at: Int64s, earlier: Earlier
    ) -> tuple[pa.Array, Parts]:
        values = column_of(self.measure.arguments[0], columns)
        stored, lengths = flat(earlier.parts[0])
        known = stored.field(0).cast(values.type)
        owners = np.repeat(np.flatnonzero(earlier.had), lengths)
        owner = Groups(np.concatenate([owners, rows.partition_numbers]), len(earlier.had))
        is_new = np.zeros(len(known) + len(values), dtype=np.bool_)
        is_new[pair_groups(owner, groups_of(pa.concat_arrays([known, values]))).firsts()] = True
        fresh = pc.if_else(pa.array(is_new[len(known) :]), values, pa.scalar(None, values.type))
        had = np.bincount(owners, minlength=len(earlier.had)) > 0
        of_known = Groups((np.cumsum(had) - 1)[owners], int(had.sum()))
        summed = self._inner.kernel.combine(self._lifted_values(known, np.zeros(len(known), dtype=np.int64)), of_known)
        parts, places, begins, sizes = _with_earlier(self._lifted_values(fresh, at), rows, Earlier(had, summed))
        stops = places[rows.frames(self.column.frame)[1] - 1] + 1
        runs = np.repeat(begins, sizes)
        found = self._inner.kernel.results(self._inner._running(parts, runs, runs[places], stops))
        lists, _, _, list_sizes = _with_earlier(self.kernel.lift([fresh], at), rows, earlier)
        return found, self.kernel.combine(lists, _groups(list_sizes))

    def _lifted_values(self, values: pa.Array, at: Int64s) -> Parts:
        """Accumulators of single values, of which NULL is none."""
        is_counted = [values.is_valid()] if self._inner.measure.kind == "array" else []
        return self._inner.kernel.lift([values, *is_counted], at)

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        frame = self.column.frame
        if frame.preceding is not None or (frame.following or 0) < 0 or not len(rows):
            return super().results(rows, columns)
        none = [pa.nulls(0, kind) for kind in self.kernel.part_kinds]
        nothing = Earlier(np.zeros(int(rows.partition_numbers[-1]) + 1, dtype=np.bool_), none)
        return self.running(rows, columns, rows.places, nothing)[0]


class PlaceCall(OverCall):
    """A number that the row's place in its partition gives."""

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        function = self.column.function
        place, size = rows.places - rows.begins, rows.ends - rows.begins
        if function == "ROW_NUMBER":
            return pa.array(place + 1)
        if function == "RANK":
            return pa.array(rows.peer_begins - rows.begins + 1)
        if function == "DENSE_RANK":
            return pa.array(self.moments(rows))
        if function == "PERCENT_RANK":
            return pa.array(np.where(size > 1, (rows.peer_begins - rows.begins) / np.maximum(size - 1, 1), 0.0))
        if function == "CUME_DIST":
            return pa.array((rows.peer_ends - rows.begins) / size)
        assert function == "NTILE"
        tiles = numbers_of(columns.column(self.column.arguments[0]))[0]
        if (tiles <= 0).any():  # NULL too
            raise ProgramError("NTILE: into how many parts is 0 or less, or NULL. Give it a positive number")
        # The first parts have a row more where they do not come out even.
        small, larger = size // tiles, size % tiles
        cut = larger * (small + 1)
        in_small = larger + (place - cut) // np.maximum(small, 1)
        return pa.array(np.where(place < cut, place // (small + 1), in_small) + 1)

    @staticmethod
    def moments(rows: OrderedRows) -> Int64s:
        """How many different places in the order there are up to each row."""
        steps: Int64s = np.cumsum(rows.is_first, dtype=np.int64)
        return steps - steps[rows.begins] + 1


class NeighbourCall(OverCall):
    """LAG and LEAD: a value so many rows before or behind, else another one."""

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        value, *others = (columns.column(at) for at in self.column.arguments)
        by = numbers_of(others[0])[0] if others else np.ones(len(rows), dtype=np.int64)
        at = rows.places + (by if self.column.function == "LEAD" else -by)
        is_there = (at >= rows.begins) & (at < rows.ends)
        found = value.take(pa.array(np.where(is_there, at, 0), mask=~is_there))
        if len(others) < 2:
            return found
        return pc.if_else(pa.array(is_there), found, others[1].cast(found.type))


def over_calls(columns: Sequence[OverColumn]) -> list[OverCall]:
    """What computes each call."""
    return [_call(column) for column in columns]


def functions_of(columns: Sequence[OverColumn]) -> list[Any]:
    """The program's functions among the calls, which are opened and closed with the operator."""
    return user_functions_of(column.measure for column in columns if column.measure is not None)


def _call(column: OverColumn) -> OverCall:
    if column.measure is not None:
        return DistinctCall(column) if column.measure.kind == "distinct" else FrameCall(column)
    return NeighbourCall(column) if column.function in ("LAG", "LEAD") else PlaceCall(column)


def _adds_floats(kernel: Kernel) -> bool:
    return isinstance(kernel, Sum | Average) and kernel.measure.is_floating


def _groups(lengths: Int64s) -> Groups:
    return Groups(np.repeat(np.arange(len(lengths)), lengths), len(lengths))


def _with_earlier(parts: Parts, rows: OrderedRows, earlier: Earlier) -> tuple[Parts, Int64s, Int64s, Int64s]:
    """Accumulators of rows with what partitions had before their first ones. And where each row is in it, where each
    partition begins and how long it is."""
    partition = rows.partition_numbers
    sizes = np.bincount(partition, minlength=len(earlier.had)) + earlier.had
    begins = np.cumsum(sizes) - sizes
    # The rows stand behind those that were there earlier of their own partition and of all before.
    places = rows.places + np.cumsum(earlier.had)[partition]
    source = np.empty(int(sizes.sum()), dtype=np.int64)
    held = int(earlier.had.sum())
    source[begins[earlier.had]] = np.arange(held)
    source[places] = held + rows.places
    at = pa.array(source)
    both = [pa.concat_arrays([old, new]).take(at) for old, new in zip(earlier.parts, parts, strict=True)]
    return both, places, begins, sizes


def _in_pieces(kernel: Kernel, parts: Parts, starts: Int64s, stops: Int64s) -> Parts:
    """The accumulators of runs. Kernels that look through each run get few rows at a time."""
    if not len(starts):
        return [pa.nulls(0, kind) for kind in kernel.part_kinds]
    ranged = kernel.ranged(parts)
    if type(kernel).ranged is not Kernel.ranged:
        return ranged(starts, stops)
    totals = np.cumsum(stops - starts)
    cuts = np.searchsorted(totals, np.arange(_EXPANDED_ROWS_MAX, int(totals[-1]), _EXPANDED_ROWS_MAX), side="right")
    edges = np.unique(np.concatenate([[0], cuts, [len(starts)]]))
    pieces = [ranged(starts[low:high], stops[low:high]) for low, high in itertools.pairwise(edges)]
    return [pa.concat_arrays(columns) for columns in zip(*pieces, strict=True)]
