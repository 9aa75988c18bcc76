"""Vectorised kernels of the built-in aggregates: pure functions over Arrow, without a Python step per record or key.

Each kind is a **kernel** with these steps:

    lift       records → one accumulator each, as columns (`BoundAggregate.parts`)
    combine    accumulators, by group → one accumulator for each group
    gather     both at once, for kinds that need not make an accumulator for each record
    results    accumulators → results
    ranged     accumulators of many runs of rows, for windows that share panes

A record is lifted to an accumulator of a single record, so partial aggregation upstream of the exchange, merging
downstream of it and merging with state are the same step. Rows are combined in order: where order matters (`first`,
`last`, `top_n`, `collect`, the last bits of a float sum), earlier rows come first. `aggregate_records` defines each
kind, None and NaN included, and computes it a record at a time; lists and sketches are in `kernels` and
`distinct_sketch`.

A sliding window is a run of consecutive rows, and neighbouring windows share most of them. For kinds that support
subtraction (integers), a run is the difference of two running sums. For other kinds it is combined from blocks of 1, 2,
4, … rows, each computed once for all runs: a run of k rows takes as many steps as k has bits, left to right, and uses
no row twice. Either way the cost per window hardly depends on its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.aggregation.groups import Groups, winners
from millstream.aggregation.rolling_columns import order_numbers
from millstream.aggregation.rolling_records import overflow_error
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, plain_view
from millstream.state.segments.lookup import expanded
from millstream.state.windows.bound_aggregates import BoundAggregate, basic_type

__all__ = [
    "Average",
    "Combine",
    "Count",
    "Edge",
    "Extreme",
    "Kernel",
    "Parts",
    "RangedParts",
    "Sum",
    "block_ranges",
    "column_from",
    "numbers_of",
    "running_ranges",
    "totals_of",
]

Numbers = NDArray[Any]
Combine = Callable[[Numbers, Numbers], Numbers]
Ranged = Callable[[Int64s, Int64s], Numbers]


def running_ranges(values: Numbers) -> Ranged:
    """Sums of runs of integers, with wrap-around.

    >>> running_ranges(np.array([1, 2, 4, 8]))(np.array([0, 1]), np.array([4, 3])).tolist()
    [15, 6]
    """
    totals = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=totals[1:])
    return lambda starts, stops: totals[stops] - totals[starts]


def block_ranges(values: Numbers, combine: Combine, nothing: Any) -> Ranged:
    """Combinations of runs by any associative function; `nothing` for empty runs. Every row of a run is used once, in
    order.

    >>> block_ranges(np.array([3, 1, 2]), np.minimum, 9)(np.array([0, 2, 1]), np.array([2, 3, 1])).tolist()
    [1, 2, 9]
    """
    levels = [values]

    def level(number: int) -> Numbers:
        while len(levels) <= number:
            last, half = levels[-1], 1 << (len(levels) - 1)
            levels.append(combine(last[:-half], last[half:]))
        return levels[number]

    def ranged(starts: Int64s, stops: Int64s) -> Numbers:
        result = np.full(len(starts), nothing, dtype=values.dtype)
        at, lengths = starts.copy(), stops - starts
        for number in range(int(lengths.max(initial=0)).bit_length()):
            rows = np.flatnonzero(lengths >> number & 1)
            if len(rows):
                result[rows] = combine(result[rows], level(number)[at[rows]])
                at[rows] += 1 << number
        return result

    return ranged


Parts = list[pa.Array]
RangedParts = Callable[[Int64s, Int64s], Parts]

_LOW_BITS = 32
_LOW_MASK = (1 << _LOW_BITS) - 1


class Kernel:
    """Computes one measure."""

    # Whether the cost of `ranged` is independent of run length. Otherwise the caller passes few runs at a time.
    ranges_are_cheap = True

    def __init__(self, measure: BoundAggregate) -> None:
        self.measure = measure
        self.result_kind = _arrow(measure.result_type)
        self.part_kinds = [_arrow(type_info) for _, type_info in measure.parts]

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        """An accumulator for each record. `columns` are the measure's arguments, `at` the records' times."""
        raise NotImplementedError

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        """One accumulator for each group."""
        raise NotImplementedError

    def gather(self, columns: Sequence[pa.Array], at: Int64s, groups: Groups) -> Parts:
        """One accumulator for each group of records; equals `combine` of `lift`."""
        return self.combine(self.lift(columns, at), groups)

    def consolidated(self, parts: Parts) -> Parts:
        """The accumulators in stored form: called after the exchange, when an epoch's input is combined."""
        return parts

    def results(self, parts: Parts) -> pa.Array:
        """The result of each accumulator."""
        raise NotImplementedError

    def ranged(self, parts: Parts) -> RangedParts:
        """A function of (starts, stops): one accumulator for each run of rows; no run is empty."""

        def combined(starts: Int64s, stops: Int64s) -> Parts:
            rows, run = expanded(starts, stops)
            at = pa.array(rows)
            return self.combine([part.take(at) for part in parts], Groups(run, len(starts)))

        return combined


def _arrow(type_info: Any) -> pa.DataType:
    kind = arrow_type(type_info)
    return pa.binary() if kind is None else kind


def numbers_of(array: pa.Array, kind: Any = np.int64) -> tuple[NDArray[Any], Bools | None]:
    """The numbers of a column (as `kind`; None: its own type), 0 for NULL, and a mask of the non-NULL values (None:
    all)."""
    numbers = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    numbers = numbers if kind is None else numbers.astype(kind, copy=False)
    return numbers, np.asarray(array.is_valid()) if array.null_count else None


def column_from(values: NDArray[Any], valid: Bools | None, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind, mask=None if valid is None else ~valid)


def totals_of(values: NDArray[Any], groups: Groups) -> NDArray[Any]:
    """Sums by group, added in row order."""
    sums = np.zeros(groups.count, dtype=values.dtype)
    with np.errstate(all="ignore"):
        np.add.at(sums, groups.codes, values)
    return sums


class Count(Kernel):
    """The number of records, or of values."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        if not columns or not columns[0].null_count:
            return [pa.array(np.ones(len(at), dtype=np.int64))]
        return [pa.array(np.asarray(columns[0].is_valid()).astype(np.int64))]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [pa.array(totals_of(numbers_of(parts[0])[0], groups))]

    def gather(self, columns: Sequence[pa.Array], at: Int64s, groups: Groups) -> Parts:
        if not columns or not columns[0].null_count:
            return [pa.array(groups.sizes)]
        return [pa.array(np.bincount(groups.codes[np.asarray(columns[0].is_valid())], minlength=groups.count))]

    def results(self, parts: Parts) -> pa.Array:
        return parts[0]

    def ranged(self, parts: Parts) -> RangedParts:
        sums = running_ranges(numbers_of(parts[0])[0])
        return lambda starts, stops: [pa.array(sums(starts, stops))]


class Sum(Kernel):
    """The sum of values; NULL without values. Integers wrap around in their own width, or fail if the measure is
    strict; floats are summed in 64 bits."""

    def __init__(self, measure: BoundAggregate) -> None:
        super().__init__(measure)
        self._kind = np.float64 if measure.is_floating else np.int64
        self._is_strict = measure.is_strict and not measure.is_floating

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [columns[0].cast(self.part_kinds[0])]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        values, valid = numbers_of(parts[0], self._kind)
        if self._is_strict and not _surely_fits(values):
            self._check_overflow(*(totals_of(half, groups) for half in _halves(values)))
        if valid is None:
            return [column_from(totals_of(values, groups), None, self.part_kinds[0])]
        groups_with_values = Groups(groups.codes[valid], groups.count)
        has_values = np.bincount(groups_with_values.codes, minlength=groups.count) > 0
        return [column_from(totals_of(values[valid], groups_with_values), has_values, self.part_kinds[0])]

    def results(self, parts: Parts) -> pa.Array:
        values, valid = numbers_of(parts[0], self._kind)
        with np.errstate(over="ignore"):  # a sum beyond the range of FLOAT is infinity
            narrow = values.astype(self.result_kind.to_pandas_dtype())
        if self._is_strict and (narrow != values).any():
            raise self._overflow()
        return column_from(narrow, valid, self.result_kind)

    def ranged(self, parts: Parts) -> RangedParts:
        values, valid = numbers_of(parts[0], self._kind)
        counts = None if valid is None else running_ranges(valid.astype(np.int64))
        sums = block_ranges(values, _added, 0.0) if self._kind is np.float64 else running_ranges(values)

        halves = [running_ranges(half) for half in _halves(values)] if self._is_strict else []

        def ranged(starts: Int64s, stops: Int64s) -> Parts:
            if halves:
                self._check_overflow(*(half(starts, stops) for half in halves))
            has_values = None if counts is None else counts(starts, stops) > 0
            return [column_from(sums(starts, stops), has_values, self.part_kinds[0])]

        return ranged

    def _check_overflow(self, high: Int64s, low: Int64s) -> None:
        """Reject sums (as halves) that exceed a LONG."""
        carried = high + (low >> _LOW_BITS)
        if ((carried < -(1 << 31)) | (carried >= 1 << 31)).any():
            raise self._overflow()

    def _overflow(self) -> ProgramError:
        basic = basic_type(self.measure.arguments[0].type_info)
        assert basic is not None
        return overflow_error(f"sum '{self.measure.name}'", basic)


def _halves(values: Int64s) -> tuple[Int64s, Int64s]:
    """Integers as two halves that can be summed without wrapping: value = high << 32 | low."""
    return values >> _LOW_BITS, values & _LOW_MASK


def _surely_fits(values: Int64s) -> bool:
    """Whether the sum of all values cannot overflow."""
    furthest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    return furthest * len(values) < 1 << 63


def _added(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        added: NDArray[Any] = left + right
    return added


class Average(Kernel):
    """The mean of values; NULL without values. Integers are summed exactly, in two halves."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values, valid = numbers_of(columns[0], np.float64 if self.measure.is_floating else np.int64)
        counts = np.ones(len(values), dtype=np.int64) if valid is None else valid.astype(np.int64)
        if self.measure.is_floating:
            return [pa.array(values), pa.array(counts)]
        return [pa.array(values >> _LOW_BITS), pa.array(values & _LOW_MASK), pa.array(counts)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return self._carried([totals_of(numbers_of(part, None)[0], groups) for part in parts])

    def _carried(self, sums: list[NDArray[Any]]) -> Parts:
        """Carry the overflow of the low half into the high one."""
        if not self.measure.is_floating:
            sums = [sums[0] + (sums[1] >> _LOW_BITS), sums[1] & _LOW_MASK, sums[2]]
        return [pa.array(part) for part in sums]

    def results(self, parts: Parts) -> pa.Array:
        sums = [numbers_of(part, np.float64)[0] for part in parts]
        total = sums[0] if self.measure.is_floating else sums[0] * float(1 << _LOW_BITS) + sums[1]
        counts = sums[-1]
        with np.errstate(all="ignore"):
            return column_from(
                (total / counts).astype(self.result_kind.to_pandas_dtype()), counts > 0, self.result_kind
            )

    def ranged(self, parts: Parts) -> RangedParts:
        columns = [numbers_of(part, None)[0] for part in parts]
        sums = [
            block_ranges(column, _added, 0.0) if column.dtype == np.float64 else running_ranges(column)
            for column in columns
        ]
        return lambda starts, stops: self._carried([of(starts, stops) for of in sums])


class _Winner(Kernel):
    """Kinds whose accumulator is one of the rows: the one with the smallest rank."""

    latest = False

    def _ranks(self, parts: Parts) -> Int64s:
        raise NotImplementedError

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        value = parts[-1]
        ranks = self._ranks(parts)
        if not value.null_count:
            return _take_rows(parts, winners(ranks, groups, latest=self.latest))
        rows = np.flatnonzero(np.asarray(value.is_valid()))
        index = winners(ranks[rows], Groups(groups.codes[rows], groups.count), latest=self.latest)
        return _take_rows(parts, np.where(index < 0, -1, rows[index]) if len(rows) else index)

    def results(self, parts: Parts) -> pa.Array:
        return parts[-1]

    def ranged(self, parts: Parts) -> RangedParts:
        ranks, rows = self._ranks(parts), np.arange(len(parts[-1]))
        if parts[-1].null_count:
            rows = np.where(np.asarray(parts[-1].is_valid()), rows, -1)

        def better(left: Int64s, right: Int64s) -> Int64s:
            is_better = (ranks[right] <= ranks[left]) if self.latest else (ranks[right] < ranks[left])
            return np.where((right >= 0) & (is_better | (left < 0)), right, left)

        best = block_ranges(rows, better, -1)
        return lambda starts, stops: _take_rows(parts, best(starts, stops))


def _take_rows(parts: Parts, index: Int64s) -> Parts:
    absent = index < 0
    rows = pa.array(index, mask=absent if absent.any() else None)
    return [part.take(rows) for part in parts]


class Extreme(_Winner):
    """The smallest or largest value, NaN being the largest; NULL without values."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [columns[0]]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        if parts[0].null_count or not pa.types.is_signed_integer(parts[0].type):
            return super().combine(parts, groups)
        # Integers need no row lookup: the extreme value is the result.
        numbers = plain_view(parts[0])
        limits, is_max = np.iinfo(numbers.dtype), self.measure.kind == "max"
        best = np.full(groups.count, limits.min if is_max else limits.max, dtype=numbers.dtype)
        (np.maximum if is_max else np.minimum).at(best, groups.codes, numbers)
        return [pa.array(best)]

    def _ranks(self, parts: Parts) -> Int64s:
        ranks = order_numbers(parts[0])
        return ~ranks if self.measure.kind == "max" else ranks


class Edge(_Winner):
    """The value of the first or last record that has one, by event time, then by arrival."""

    def __init__(self, measure: BoundAggregate) -> None:
        super().__init__(measure)
        self.latest = measure.kind == "last"

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [pa.array(at), columns[0]]

    def _ranks(self, parts: Parts) -> Int64s:
        times = numbers_of(parts[0])[0]
        return ~times if self.latest else times
