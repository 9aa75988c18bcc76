"""Running sums, minima and maxima of a whole batch, vectorised.

The records of a batch are grouped by key (one stable sort of small numbers); one cumulative operation computes the
running results of each key's run; the results are then put back into record order. A key's previous result precedes its
run. A record is addressed by one index, before or in the batch:

    0 … keys - 1            previous result of the key       keys + i        record i of the batch

so `min_by` is the index of the winner so far, and the fields that `sum` preserves come from the index of the key's
first record. `rolling_records` defines the results, and computes them a record at a time.

All functions are pure and unchecked: the caller checks nulls and types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, plain_view, plain_view_type

__all__ = ["Rolled", "accumulate", "overflowing", "roll", "rolls_in_columns"]

_NARROW_CODES_MAX = 1 << 16
# Runs longer than this are accumulated one run at a time, shorter ones in lockstep.
_RUN_IN_STEP_MAX = 64


@dataclass(frozen=True)
class Rolled:
    """The running results, one per record, and the new result of every key; each as one array per field."""

    output: list[pa.Array]
    after: list[pa.Array]


@dataclass(frozen=True)
class _Runs:
    """The records by key: `order` sorts them by code, run k is `order[starts[k] : starts[k] + lengths[k]]`."""

    order: Int64s
    starts: Int64s
    lengths: Int64s

    @property
    def ends(self) -> Int64s:
        return self.starts + self.lengths - 1


def rolls_in_columns(kind: str, arrow: pa.DataType) -> bool:
    """Whether a field of this Arrow type can be summed or compared here."""
    t = pa.types
    if t.is_signed_integer(arrow) or t.is_float32(arrow) or t.is_float64(arrow):
        return True
    is_ranked = t.is_string(arrow) or t.is_decimal(arrow)
    comparable = is_ranked or t.is_boolean(arrow) or plain_view_type(arrow) is not None
    return kind != "sum" and comparable


def roll(
    kind: str, position: int, fields: list[pa.Array], codes: Int64s, before: list[pa.Array], has_before: Bools
) -> Rolled:
    """Apply a batch to the previous results of its keys.

    `fields` are the batch's columns and `codes` each record's key as a number; `before` has the same columns for the
    keys, valid only where `has_before`. Every key has at least one record.

    >>> numbers, none = pa.array([1, 2, 3]), pa.nulls(2, pa.int64())
    >>> rolled = roll("sum", 0, [numbers], np.array([0, 1, 0]), [none], np.array([False, False]))
    >>> rolled.output[0].to_pylist(), rolled.after[0].to_pylist()
    ([1, 2, 4], [4, 2])
    """
    keys = len(has_before)
    runs = _runs(codes, keys)
    first = np.where(has_before, np.arange(keys), keys + runs.order[runs.starts])
    both = [pa.concat_arrays([old, new]) for old, new in zip(before, fields, strict=True)]
    if kind == "sum":
        results = _sums(fields[position], before[position], has_before, runs)
        return _with_field(both, position, first, codes, runs, results)
    winners = _winners(both[position], codes, has_before, runs, largest=kind.startswith("max"))
    last = winners[runs.order[runs.ends]]
    if kind.endswith("_by"):
        return Rolled([_take(column, winners) for column in both], [_take(column, last) for column in both])
    return _with_field(both, position, first, codes, runs, _take(both[position], winners))


def _with_field(
    both: list[pa.Array], position: int, first: Int64s, codes: Int64s, runs: _Runs, results: pa.Array
) -> Rolled:
    """The key's first record with one field replaced by the running result."""
    firsts = first[codes]
    output = [results if i == position else _take(column, firsts) for i, column in enumerate(both)]
    last = _take(results, runs.order[runs.ends])
    return Rolled(output, [last if i == position else _take(column, first) for i, column in enumerate(both)])


def _take(column: pa.Array, rows: Int64s) -> pa.Array:
    return column.take(pa.array(rows))


def _runs(codes: Int64s, keys: int) -> _Runs:
    lengths = np.bincount(codes, minlength=keys)
    # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
    narrow = codes.astype(np.uint16) if keys <= _NARROW_CODES_MAX else codes
    order = np.argsort(narrow, kind="stable")
    return _Runs(order, np.cumsum(lengths) - lengths, lengths)


def _sums(values: pa.Array, before: pa.Array, has_before: Bools, runs: _Runs) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    by_key = numbers[runs.order]
    old = before.fill_null(0).to_numpy(zero_copy_only=False)
    continued = runs.starts[has_before]
    with np.errstate(all="ignore"):
        by_key[continued] = old[has_before] + by_key[continued]
        if np.issubdtype(numbers.dtype, np.integer):
            sums = _wrapping_sums(by_key, runs)
        else:
            sums = accumulate(np.add, by_key, runs.starts, runs.lengths)
    results = np.empty_like(numbers)
    results[runs.order] = sums
    return pa.array(results, values.type)


def _wrapping_sums(by_key: NDArray[Any], runs: _Runs) -> NDArray[Any]:
    """Running sums of all runs from a single running sum: differences of wrapped sums are the wrapped differences."""
    total = np.cumsum(by_key, dtype=np.int64)
    base = total[runs.starts] - by_key[runs.starts]
    sums: NDArray[Any] = (total - np.repeat(base, runs.lengths)).astype(by_key.dtype)
    return sums


def overflowing(values: pa.Array, codes: Int64s, before: pa.Array, has_before: Bools) -> Int64s:
    """The records whose running sum exceeds the type of `values`; only the first of each key is meaningful.

    >>> values, none = pa.array([100, 27, 1], pa.int8()), pa.nulls(1, pa.int8())
    >>> overflowing(values, np.array([0, 0, 0]), none, np.array([False])).tolist()
    [2]
    """
    runs = _runs(codes, len(has_before))
    by_key = values.to_numpy(zero_copy_only=False).astype(np.int64)[runs.order]
    old = before.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    sums_before = np.where(has_before, old, 0)
    with np.errstate(all="ignore"):
        first = by_key.copy()
        first[runs.starts] += sums_before
        sums = _wrapping_sums(first, runs)
        # A sum of two numbers has wrapped where both signs differ from its own.
        previous = np.empty_like(sums)
        previous[1:] = sums[:-1]
        previous[runs.starts] = sums_before
    has_wrapped = ((previous ^ sums) & (by_key ^ sums)) < 0
    limits = np.iinfo(values.type.to_pandas_dtype())
    unfit = has_wrapped | (sums < limits.min) | (sums > limits.max)
    records: Int64s = np.sort(runs.order[unfit])
    return records


def _winners(both: pa.Array, codes: Int64s, has_before: Bools, runs: _Runs, *, largest: bool) -> Int64s:
    """For every record, the index of the smallest (largest) value of its key so far; of equals, the first."""
    keys = len(has_before)
    ranks = order_numbers(both)
    ranks = ~ranks if largest else ranks
    by_key = ranks[keys + runs.order]
    index = keys + runs.order
    # A new record must beat the best so far. A first record without a predecessor always wins.
    best = by_key.copy()
    continued = runs.starts[has_before]
    best[continued] = np.minimum(ranks[:keys][has_before], by_key[continued])
    best = accumulate(np.minimum, best, runs.starts, runs.lengths)
    is_winner = np.empty(len(by_key), dtype=np.bool_)
    is_winner[1:] = by_key[1:] < best[:-1]
    is_winner[runs.starts] = True
    unbeaten = continued[ranks[:keys][has_before] <= by_key[continued]]
    index[unbeaten] = codes[runs.order[unbeaten]]
    newest = np.maximum.accumulate(np.where(is_winner, np.arange(len(is_winner)), 0))
    winners = np.empty_like(index)
    winners[runs.order] = index[newest]
    return winners


def order_numbers(values: pa.Array) -> Int64s:
    """Integers that sort as the values do: NaN last, -0.0 equal to 0.0, strings by code point; undefined under NULLs.

    >>> order_numbers(pa.array([0.5, -1.0, float("nan")])).argsort().tolist()
    [1, 0, 2]
    """
    kind = values.type
    if plain_view_type(kind) is not None:
        return plain_view(values).astype(np.int64)
    if pa.types.is_floating(kind):
        # Positive floats sort as their bits do, negative ones in reverse.
        wide = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        bits = wide.view(np.int64)
        ordered: Int64s = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        ordered[np.isnan(wide)] = 2**63 - 1
        return ordered
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
        return plain_view(values).astype(np.int64)
    ranks: Int64s = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def accumulate(operation: np.ufunc, values: NDArray[Any], starts: Int64s, lengths: Int64s) -> NDArray[Any]:
    """The running results of each run, exactly as if computed sequentially (sums of floats depend on it).

    Short runs advance in lockstep, one position at a time; a long run is one call. So neither a million runs of one
    value nor one run of a million values needs a Python step per value.

    >>> accumulate(np.add, np.array([1, 2, 3, 4]), np.array([0, 3]), np.array([3, 1])).tolist()
    [1, 3, 6, 4]
    """
    results = values.copy()
    is_long = lengths > _RUN_IN_STEP_MAX
    for start, length in zip(starts[is_long].tolist(), lengths[is_long].tolist(), strict=True):
        run = results[start : start + length]
        operation.accumulate(run, dtype=run.dtype, out=run)
    short = np.flatnonzero(~is_long & (lengths > 1))
    if not len(short):
        return results
    # Longest first: the runs that have a value at a step are then always a prefix.
    short = short[np.argsort(-lengths[short], kind="stable")]
    at, ends = starts[short], lengths[short]
    active = len(short)
    for step in range(1, int(ends[0])):
        active = int(np.searchsorted(-ends[:active], -step, side="left"))
        rows = at[:active] + step
        results[rows] = operation(results[rows - 1], results[rows])
    return results
