"""OVER calls, vectorised: aggregates of frames, row numbers, and neighbours' values.

A frame is a run of consecutive rows (`over_frames`), so the kernel's `ranged` aggregates many frames at once. A frame
that begins with the partition may be preceded by a row for all earlier input: the accumulators of the partition. Floats
of such frames are added sequentially, so that a sum does not depend on how the input was divided into epochs.

`over_reference` is the row-at-a-time reference.
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
    """State of partitions before these rows: a mask of the partitions with state, and their accumulators."""

    present: Bools
    parts: Parts


class OverCall:
    """One call over rows of some partitions."""

    def __init__(self, column: OverColumn) -> None:
        self.column = column

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        """A value for each row, in their order. `columns` has the rows' columns in the same order."""
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
        """An accumulator for each row; `at` grows within a partition."""
        return self.kernel.lift([column_of(argument, columns) for argument in self.measure.arguments], at)

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        parts = self.lifted(columns, rows.places)
        starts, stops = rows.frames(self.column.frame)
        if self.column.frame.preceding is None and not (stops == starts).any():
            return self.kernel.results(self._running(parts, rows.begins, starts, stops))
        return self._of_frames(parts, starts, stops)

    def _of_frames(self, parts: Parts, starts: Int64s, stops: Int64s) -> pa.Array:
        """The results of frames, some of which may be empty."""
        is_empty = stops == starts
        if is_empty.any():  # an empty frame reads one row, and its result is replaced below
            last = max(len(parts[0]) - 1, 0)
            starts = np.where(is_empty, np.minimum(starts, last), starts)
            stops = np.where(is_empty, starts + 1, stops)
        results = self.kernel.results(_in_pieces(self.kernel, parts, starts, stops))
        if not is_empty.any():
            return results
        both = pa.concat_arrays([results, result_of_nothing(self.kernel).cast(results.type)])
        return both.take(pa.array(np.where(is_empty, len(results), np.arange(len(results)))))

    def running(
        self, rows: OrderedRows, columns: pa.RecordBatch, at: Int64s, earlier: Earlier
    ) -> tuple[pa.Array, Parts]:
        """The results of frames that begin with the partition, starting from its earlier state; and each partition's
        new state. Partitions are numbered from 0. `at` is as in `lifted`, across epochs."""
        parts, places, begins, lengths = _with_earlier(self.lifted(columns, at), rows, earlier)
        stops = places[rows.frames(self.column.frame)[1] - 1] + 1
        runs = np.repeat(begins, lengths)
        results = self._running(parts, runs, runs[places], stops)
        return self.kernel.results(results), self.kernel.combine(parts, _groups(lengths))

    def _running(self, parts: Parts, begins: Int64s, starts: Int64s, stops: Int64s) -> Parts:
        """Accumulators of frames that begin with the partition; `begins` has the start of each row's partition."""
        if not _adds_floats(self.kernel):
            return _in_pieces(self.kernel, parts, starts, stops)
        first = np.unique(begins)
        lengths = np.diff(np.append(first, len(begins)))
        with np.errstate(all="ignore"):  # a sum beyond the range of DOUBLE is infinity
            sums = accumulate(np.add, numbers_of(parts[0], np.float64)[0], first, lengths)[stops - 1]
        if len(parts) > 1:  # an average, whose count is an integer
            counts = np.cumsum(numbers_of(parts[1])[0])
            before = counts[starts] - numbers_of(parts[1])[0][starts]
            return [pa.array(sums), pa.array(counts[stops - 1] - before)]
        valid = np.cumsum(np.asarray(parts[0].is_valid()).astype(np.int64))
        before = valid[starts] - np.asarray(parts[0].is_valid())[starts]
        return [column_from(sums, valid[stops - 1] > before, pa.float64())]


class DistinctCall(FrameCall):
    """An aggregate of the distinct values of a frame. In frames that begin with the partition a value counts at its
    first occurrence, without scanning the frame."""

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
        owners = np.repeat(np.flatnonzero(earlier.present), lengths)
        owner = Groups(np.concatenate([owners, rows.partition_numbers]), len(earlier.present))
        is_new = np.zeros(len(known) + len(values), dtype=np.bool_)
        is_new[pair_groups(owner, groups_of(pa.concat_arrays([known, values]))).firsts()] = True
        fresh = pc.if_else(pa.array(is_new[len(known) :]), values, pa.scalar(None, values.type))
        present = np.bincount(owners, minlength=len(earlier.present)) > 0
        of_known = Groups((np.cumsum(present) - 1)[owners], int(present.sum()))
        summed = self._inner.kernel.combine(self._lifted_values(known, np.zeros(len(known), dtype=np.int64)), of_known)
        parts, places, begins, sizes = _with_earlier(self._lifted_values(fresh, at), rows, Earlier(present, summed))
        stops = places[rows.frames(self.column.frame)[1] - 1] + 1
        runs = np.repeat(begins, sizes)
        results = self._inner.kernel.results(self._inner._running(parts, runs, runs[places], stops))
        lists, _, _, list_sizes = _with_earlier(self.kernel.lift([fresh], at), rows, earlier)
        return results, self.kernel.combine(lists, _groups(list_sizes))

    def _lifted_values(self, values: pa.Array, at: Int64s) -> Parts:
        """Accumulators of single values, ignoring NULL."""
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
    """A number computed from the row's position in its partition."""

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
            raise ProgramError("NTILE: the number of parts is 0 or less, or NULL. Use a positive number")
        # The first parts have one more row if the size is not divisible.
        small, larger = size // tiles, size % tiles
        cut = larger * (small + 1)
        in_small = larger + (place - cut) // np.maximum(small, 1)
        return pa.array(np.where(place < cut, place // (small + 1), in_small) + 1)

    @staticmethod
    def moments(rows: OrderedRows) -> Int64s:
        """The number of distinct order keys up to each row."""
        steps: Int64s = np.cumsum(rows.is_first, dtype=np.int64)
        return steps - steps[rows.begins] + 1


class NeighbourCall(OverCall):
    """LAG and LEAD: the value at an offset before or after the row, else a default."""

    def results(self, rows: OrderedRows, columns: pa.RecordBatch) -> pa.Array:
        value, *others = (columns.column(at) for at in self.column.arguments)
        by = numbers_of(others[0])[0] if others else np.ones(len(rows), dtype=np.int64)
        at = rows.places + (by if self.column.function == "LEAD" else -by)
        is_inside = (at >= rows.begins) & (at < rows.ends)
        results = value.take(pa.array(np.where(is_inside, at, 0), mask=~is_inside))
        if len(others) < 2:
            return results
        return pc.if_else(pa.array(is_inside), results, others[1].cast(results.type))


def over_calls(columns: Sequence[OverColumn]) -> list[OverCall]:
    """An evaluator for each call."""
    return [_call(column) for column in columns]


def functions_of(columns: Sequence[OverColumn]) -> list[Any]:
    """The program's functions among the calls, which open and close with the operator."""
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
    """Accumulators of rows, each partition preceded by its earlier state; with the new position of each row, and each
    partition's start and length."""
    partition = rows.partition_numbers
    sizes = np.bincount(partition, minlength=len(earlier.present)) + earlier.present
    begins = np.cumsum(sizes) - sizes
    # A row moves by the number of earlier states in its own and all previous partitions.
    places = rows.places + np.cumsum(earlier.present)[partition]
    source = np.empty(int(sizes.sum()), dtype=np.int64)
    stored_count = int(earlier.present.sum())
    source[begins[earlier.present]] = np.arange(stored_count)
    source[places] = stored_count + rows.places
    at = pa.array(source)
    both = [pa.concat_arrays([old, new]).take(at) for old, new in zip(earlier.parts, parts, strict=True)]
    return both, places, begins, sizes


def _in_pieces(kernel: Kernel, parts: Parts, starts: Int64s, stops: Int64s) -> Parts:
    """The accumulators of runs. Kernels that scan each run are called with few rows at a time."""
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
