"""Exact sums, means and variances of floating-point numbers over a changelog, so that deletes leave no error.

Floating-point sums cannot be retracted from: 1 + 1e17 - 1e17 is 0, and one NaN stays forever. Here a number is split
into integers of 32 bits, in **bins** for powers of two. Bins are added and subtracted exactly, in any order; the result
is rounded once. NaN, the infinities and the values are counted in separate bins. Variances also store squares, in
higher bins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.aggregation.aggregate_columns import Kernel, Parts, column_from, numbers_of
from millstream.aggregation.groups import Groups
from millstream.aggregation.list_kernels import Listed, flat
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["ExactReals"]

Float64s = NDArray[np.float64]

_BITS = 32
_MASK = (1 << _BITS) - 1
# The lowest bit of bin 0 is 2 ** -1152: below the smallest double.
_LOWEST = 1152
_SQUARES = 1000
_NAN, _INFINITY, _MINUS_INFINITY, _COUNT, _LARGE_SQUARES = -1, -2, -3, -4, -5
_ROOM, _BELOW = 1 << 12, 8


class ExactReals(Listed):
    """SUM, AVG, VAR_POP and related aggregates over bins; `inner` selects the aggregate."""

    def __init__(self, measure: BoundAggregate, inner: Kernel) -> None:
        super().__init__(measure)
        self._inner = inner
        self._has_squares = inner.measure.kind == "variance"

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values, valid = numbers_of(columns[0].cast(pa.float64(), safe=False), np.float64)
        is_value = np.ones(len(values), dtype=np.bool_) if valid is None else valid
        special = np.select([np.isnan(values), values == np.inf, values == -np.inf], [_NAN, _INFINITY, _MINUS_INFINITY])
        bins, amounts = [np.full(len(values), _COUNT), special], [np.ones(len(values), dtype=np.int64), special != 0]
        finite = np.where(special == 0, values, 0.0)
        for number, first in self._numbers(finite):
            for bin_, amount in _in_bins(number):
                bins.append(bin_ + first)
                amounts.append(amount)
        if self._has_squares:
            with np.errstate(over="ignore"):
                amounts.append(np.isinf(finite * finite))
            bins.append(np.full(len(values), _LARGE_SQUARES))
        chosen = (np.stack(amounts, axis=1) != 0) & is_value[:, None]
        fields = [pa.array(np.stack(columns, axis=1).astype(np.int64)[chosen]) for columns in (bins, amounts)]
        return [self._lists(pa.StructArray.from_arrays(fields, fields=list(self._row_kind)), chosen.sum(axis=1))]

    def _numbers(self, values: Float64s) -> list[tuple[Float64s, int]]:
        """The numbers to add, and their first bins: a square is two numbers, which together have all its digits."""
        if not self._has_squares:
            return [(values, 0)]
        with np.errstate(all="ignore"):
            square = values * values
            half = values * 134_217_729.0  # 2 ** 27 + 1 splits a number into two of half the digits
            high = half - (half - values)
            low = values - high
            rest = ((high * high - square) + 2.0 * high * low) + low * low
        is_large = ~np.isfinite(square) | ~np.isfinite(rest)
        return [(values, 0), *((np.where(is_large, 0.0, part), _SQUARES) for part in (square, rest))]

    def signed(self, parts: Parts, signs: Int64s) -> Parts:
        """The accumulators of single rows, negated for deletes."""
        rows, lengths = flat(parts[0])
        amounts = rows.field(1).to_numpy() * np.repeat(signs, lengths)
        fields = [rows.field(0), pa.array(amounts)]
        return [self._lists(pa.StructArray.from_arrays(fields, fields=list(self._row_kind)), lengths)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        rows, lengths = flat(parts[0])
        places = np.repeat(groups.codes, lengths) * _ROOM + rows.field(0).to_numpy() + _BELOW
        places, amounts = _added_up(places, rows.field(1).to_numpy())
        # Carry into the next bin, so that later sums fit.
        carry = np.where(places % _ROOM >= _BELOW, amounts >> _BITS, 0)
        places, amounts = _added_up(
            np.concatenate([places, places + 1]), np.concatenate([amounts - (carry << _BITS), carry])
        )
        fields = [pa.array(places % _ROOM - _BELOW), pa.array(amounts)]
        rows_of_bins = pa.StructArray.from_arrays(fields, fields=list(self._row_kind))
        return [self._lists(rows_of_bins, np.bincount(places // _ROOM, minlength=groups.count))]

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        bins, amounts = rows.field(0).to_pylist(), rows.field(1).to_pylist()
        counts = np.zeros(len(lengths), dtype=np.int64)
        values = np.zeros(len(lengths))
        stop = 0
        for group, length in enumerate(lengths.tolist()):
            start, stop = stop, stop + length
            amounts_by_bin = dict(zip(bins[start:stop], amounts[start:stop], strict=True))
            counts[group] = count = amounts_by_bin.get(_COUNT, 0)
            if count > 0:
                values[group] = self._result(amounts_by_bin, count)
        if self._has_squares:
            return self._inner.results([pa.array(counts), pa.array(values), pa.array(values)])
        with np.errstate(over="ignore"):  # a sum beyond the range of FLOAT is infinity
            rounded = values.astype(self.result_kind.to_pandas_dtype())
        return column_from(rounded, counts > 0, self.result_kind)

    def _result(self, amounts_by_bin: dict[int, int], count: int) -> float:
        """The sum or mean of one group, or the squared distances from the mean."""
        ends = {sign for sign, bin_ in ((1, _INFINITY), (-1, _MINUS_INFINITY)) if amounts_by_bin.get(bin_)}
        if amounts_by_bin.get(_NAN) or len(ends) == 2 or (ends and self._has_squares):
            return float("nan")
        if ends:
            return ends.pop() * float("inf")
        total = sum(amount << (_BITS * bin_) for bin_, amount in amounts_by_bin.items() if 0 <= bin_ < _SQUARES)
        if not self._has_squares:
            return _quotient(total, (count if self._inner.measure.kind == "avg" else 1) << _LOWEST)
        if amounts_by_bin.get(_LARGE_SQUARES):
            return float("inf") if count > 1 else 0.0  # a single number equals its mean
        squares = sum(
            amount << (_BITS * (bin_ - _SQUARES)) for bin_, amount in amounts_by_bin.items() if bin_ >= _SQUARES
        )
        return max(0.0, _quotient((squares * count << _LOWEST) - total * total, count << (2 * _LOWEST)))


def _in_bins(values: Float64s) -> list[tuple[Int64s, Int64s]]:
    """Finite numbers as three integers each, with their bins."""
    shares, exponents = np.frexp(values)
    digits = np.abs(shares * (1 << 53)).astype(np.int64)
    signs = np.sign(shares).astype(np.int64)
    lowest = exponents.astype(np.int64) - 53 + _LOWEST
    first, shift = lowest // _BITS, lowest % _BITS
    low, high = (digits & _MASK) << shift, (digits >> _BITS) << shift
    pieces = (low & _MASK, (low >> _BITS) + (high & _MASK), high >> _BITS)
    return [(first + number, signs * piece) for number, piece in enumerate(pieces)]


def _added_up(places: Int64s, amounts: Int64s) -> tuple[Int64s, Int64s]:
    """The sum of the amounts at each index, without zeros."""
    distinct, numbers = np.unique(places, return_inverse=True)
    totals = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(totals, numbers, amounts)
    left = np.flatnonzero(totals)
    return distinct[left], totals[left]


def _quotient(number: int, divisor: int) -> float:
    """The quotient, rounded once."""
    try:
        return number / divisor
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
