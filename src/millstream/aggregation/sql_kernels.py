"""SQL aggregates of numbers, vectorised: exact decimals, integer averages, variances.

A sum of decimals is stored as integers of 32 bits (**limbs**), each in a column of 64 bits: so sums are added in plain
numpy, never wrap, and can be subtracted for sliding windows. Every step propagates carries, so that each limb but the
highest fits its 32 bits. A sum with more digits than its type is NULL, as in Flink.

`sql_reference` defines the results, a row at a time.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.aggregation.aggregate_columns import (
    Kernel,
    Parts,
    RangedParts,
    block_ranges,
    column_from,
    numbers_of,
    running_ranges,
    totals_of,
)
from millstream.aggregation.groups import Groups
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["DecimalAverage", "DecimalSum", "Variance", "WholeAverage"]

_BITS = 32
_MASK = np.int64((1 << _BITS) - 1)
_WORD_MAX = 1 << 62


class DecimalSum(Kernel):
    """The sum of decimals; NULL without values, or if it has too many digits."""

    def __init__(self, measure: BoundAggregate) -> None:
        super().__init__(measure)
        self._limbs = len(measure.parts) - 1

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values = columns[0]
        low, high = _words(values)
        limbs = [low & _MASK, low >> _BITS]
        if self._limbs > 2:
            limbs[1] &= _MASK
            limbs += [high & _MASK, high >> _BITS]
        counts = np.asarray(values.is_valid()).astype(np.int64)
        if values.null_count:
            limbs = [limb * counts for limb in limbs]
        return [pa.array(column) for column in (*reversed(limbs), counts)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return _carried([totals_of(numbers_of(part)[0], groups) for part in parts])

    def ranged(self, parts: Parts) -> RangedParts:
        sums = [running_ranges(numbers_of(part)[0]) for part in parts]
        return lambda starts, stops: _carried([of(starts, stops) for of in sums])

    def results(self, parts: Parts) -> pa.Array:
        columns = [numbers_of(part)[0] for part in parts]
        return self._decimals(columns[:-1], columns[-1])

    def _decimals(self, limbs: list[Int64s], counts: Int64s) -> pa.Array:
        """The sums as a column of the result's type."""
        top, *rest = limbs
        if len(rest) == 1:
            low, high, fits = (top << _BITS) | rest[0], top >> _BITS, np.ones(len(top), dtype=np.bool_)
        else:
            low, high = (rest[1] << _BITS) | rest[2], (top << _BITS) | rest[0]
            fits = (top >= -(1 << 31)) & (top < 1 << 31)
        largest = 10**self.result_kind.precision
        # Most sums are far from the bound: only those whose upper word is near it are checked individually.
        near = largest >> 64
        for row in np.flatnonzero(fits & ((high >= near) | (high <= ~near))).tolist():
            fits[row] = abs((int(high[row]) << 64) + int(low[row].view(np.uint64))) < largest
        return _decimals_of(low, high, fits & (counts > 0), self.result_kind)


class DecimalAverage(DecimalSum):
    """The mean of decimals, rounded half up to the digits of its type."""

    def results(self, parts: Parts) -> pa.Array:
        *limbs, counts = (numbers_of(part)[0] for part in parts)
        factor = 10 ** (self.result_kind.scale - self.part_scale)
        if len(limbs) == 2 and int(np.abs(limbs[0]).max(initial=0)) < _WORD_MAX // factor >> _BITS:
            sums = ((limbs[0] << _BITS) + limbs[1]) * factor
            divisors = np.maximum(counts, 1)
            halves = (2 * np.abs(sums) + divisors) // (2 * divisors)
            means = np.sign(sums) * halves
            return _decimals_of(means, means >> 63, counts > 0, self.result_kind)
        rows = zip(*(limb.tolist() for limb in limbs), counts.tolist(), strict=True)
        return pa.array([self._mean(row, factor) for row in rows], self.result_kind)

    @property
    def part_scale(self) -> int:
        """The scale of the summed values."""
        data_type: Any = self.measure.arguments[0].type_info
        return int(data_type.data_type.scale)

    def _mean(self, row: tuple[int, ...], factor: int) -> decimal.Decimal | None:
        *limbs, count = row
        if not count:
            return None
        total = 0
        for limb in limbs:
            total = (total << _BITS) + limb
        rounded = (2 * abs(total) * factor + count) // (2 * count)
        if rounded >= 10**self.result_kind.precision:
            return None
        digits = tuple(int(digit) for digit in str(rounded))
        return decimal.Decimal((int(total < 0), digits, -self.result_kind.scale))


def _carried(columns: list[NDArray[Any]]) -> Parts:
    """Propagates carries between limbs. The last column is the count."""
    *limbs, counts = columns
    for at in range(len(limbs) - 1, 0, -1):
        limbs[at - 1] = limbs[at - 1] + (limbs[at] >> _BITS)
        limbs[at] = limbs[at] & _MASK
    return [pa.array(column) for column in (*limbs, counts)]


def _words(values: pa.Array) -> tuple[Int64s, Int64s]:
    """The lower and the upper 64 bits of a column of decimals; undefined under NULLs."""
    if not len(values):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset).reshape(-1, 2)
    return words[:, 0], words[:, 1]


def _decimals_of(low: Int64s, high: Int64s, valid: Bools, kind: pa.DataType) -> pa.Array:
    words = np.stack([low, high], axis=1)
    words[~valid] = 0
    bits = pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(kind, len(low), [bits, pa.py_buffer(np.ascontiguousarray(words))])


class WholeAverage(Kernel):
    """The mean of integers in SQL: truncated to an integer. The sum wraps around, as in Flink."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values, valid = numbers_of(columns[0])
        counts = np.ones(len(values), dtype=np.int64) if valid is None else valid.astype(np.int64)
        return [pa.array(values), pa.array(counts)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [pa.array(totals_of(numbers_of(part)[0], groups)) for part in parts]

    def ranged(self, parts: Parts) -> RangedParts:
        sums = [running_ranges(numbers_of(part)[0]) for part in parts]
        return lambda starts, stops: [pa.array(of(starts, stops)) for of in sums]

    def results(self, parts: Parts) -> pa.Array:
        sums, counts = (numbers_of(part)[0] for part in parts)
        divisors = np.maximum(counts, 1)
        means = sums // divisors
        means += (sums < 0) & (means * divisors != sums)  # `//` rounds down; truncation rounds to zero
        return column_from(means.astype(self.result_kind.to_pandas_dtype()), counts > 0, self.result_kind)


_SPREAD = np.dtype([("count", np.int64), ("mean", np.float64), ("squares", np.float64)])


def _joined_spreads(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Combines two sets of values: count, mean, and squared distances from the mean."""
    joined = np.empty(len(left), dtype=_SPREAD)
    total = left["count"] + right["count"]
    share = right["count"] / np.maximum(total, 1)
    with np.errstate(all="ignore"):
        distance = np.where((left["count"] > 0) & (right["count"] > 0), right["mean"] - left["mean"], 0.0)
        joined["count"] = total
        joined["mean"] = np.where(left["count"] > 0, left["mean"] + distance * share, right["mean"])
        joined["squares"] = left["squares"] + right["squares"] + distance * distance * left["count"] * share
    return joined


class Variance(Kernel):
    """VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP: stores the mean and the squared distances from it, which lose no
    digits if values are close together. NULL without values; sample variants are also NULL for one value."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values, valid = numbers_of(columns[0].cast(pa.float64(), safe=False), np.float64)
        counts = np.ones(len(values), dtype=np.int64) if valid is None else valid.astype(np.int64)
        return [pa.array(counts), pa.array(values), pa.array(np.zeros(len(values)))]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        counts, means, squares = (numbers_of(part, None)[0] for part in parts)
        total = totals_of(counts, groups)
        with np.errstate(all="ignore"):
            mean = totals_of(counts * means, groups) / np.maximum(total, 1)
            # Ignore the mean of an empty accumulator.
            distance = np.where(counts > 0, means - mean[groups.codes], 0.0)
            spread = totals_of(squares + counts * distance * distance, groups)
        return [pa.array(total), pa.array(mean), pa.array(spread)]

    def ranged(self, parts: Parts) -> RangedParts:
        rows = np.empty(len(parts[0]), dtype=_SPREAD)
        for name, part in zip(_SPREAD.names or (), parts, strict=True):
            rows[name] = numbers_of(part, None)[0]
        of = block_ranges(rows, _joined_spreads, np.zeros((), dtype=_SPREAD))

        def ranged(starts: Int64s, stops: Int64s) -> Parts:
            spreads = of(starts, stops)
            return [pa.array(np.ascontiguousarray(spreads[name])) for name in _SPREAD.names or ()]

        return ranged

    def results(self, parts: Parts) -> pa.Array:
        counts, _, squares = (numbers_of(part, None)[0] for part in parts)
        is_sample = self.measure.detail.endswith("SAMP") or self.measure.detail == "VARIANCE"
        divisors = counts - 1 if is_sample else counts
        with np.errstate(all="ignore"):
            spread = squares / np.maximum(divisors, 1)
        if self.measure.detail.startswith("STDDEV"):
            spread = np.sqrt(spread)
        return _as_type(spread, divisors > 0, self.result_kind)


def _as_type(values: NDArray[np.float64], valid: Bools, kind: pa.DataType) -> pa.Array:
    """Floats as a column of any numeric type: truncated to integers, rounded to decimals, NULL if out of range."""
    if pa.types.is_decimal(kind):
        unit, wide = decimal.Decimal((0, (1,), -kind.scale)), decimal.Context(prec=400)
        fits = valid & (np.abs(values) < 10.0 ** (kind.precision - kind.scale))
        cells = [
            decimal.Decimal(value).quantize(unit, context=wide) if is_valid else None
            for value, is_valid in zip(values.tolist(), fits.tolist(), strict=True)
        ]
        return pa.array(cells, kind)
    numbers = kind.to_pandas_dtype()
    with np.errstate(all="ignore"):
        cut = np.where(valid, values, 0.0).astype(numbers)
    if pa.types.is_integer(kind):  # as Java casts: saturates
        cut = np.where(values >= float(np.iinfo(numbers).max), np.iinfo(numbers).max, cut)
    return column_from(cut, valid, kind)
