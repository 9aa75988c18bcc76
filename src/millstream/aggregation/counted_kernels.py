"""Aggregates of the values of groups that may grow large: values in a list, and what is known of those elsewhere.

A group of few values keeps them in its row, as `DistinctValues` and `SignedValues` do. Values of a large one have rows
of their own (`runtime.tables`). Here is how many those are, which adds up like any count, and what the result needs:

    counted    COUNT(DISTINCT …): nothing else
    summed     SUM, AVG, … (DISTINCT …): the sums of values that are elsewhere
    headed     MIN and MAX: the list has the first of the values, among which the result is
    numbered   FIRST_VALUE and LAST_VALUE: the value that is the result, its place, and how many have come so far

A part that is NULL is of a row of before there was such a part: nothing is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Kernel, Parts, totals_of
from millstream.aggregation.groups import Groups
from millstream.aggregation.list_kernels import flat
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["CountedValues", "HeadedValues", "NumberedValues", "SummedValues", "elsewhere"]


def elsewhere(part: pa.Array) -> Int64s:
    """How many values are elsewhere. Rows of before there was this number have all of theirs."""
    counts: Int64s = part.fill_null(0).to_numpy()
    return counts


class CountedValues(Kernel):
    """The values that another kernel lists, and the number of those that are elsewhere."""

    ranges_are_cheap = False

    def __init__(self, measure: BoundAggregate, inner: Kernel) -> None:
        super().__init__(measure)
        self._inner = inner

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [*self._inner.lift(columns, at), *(pa.nulls(len(at), kind) for kind in self.part_kinds[1:])]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [*self._inner.combine(parts[:1], groups), pa.array(totals_of(elsewhere(parts[1]), groups))]

    def settled(self, parts: Parts) -> Parts:
        return [*self._inner.settled(parts[:1]), *parts[1:]]

    def results(self, parts: Parts) -> pa.Array:
        return pc.add(self._inner.results(parts[:1]), pa.array(elsewhere(parts[1])))


class HeadedValues(CountedValues):
    """The first of the values that another kernel lists, and the number of the others. Of a group that has any, the
    result is among the first."""

    def results(self, parts: Parts) -> pa.Array:
        return self._inner.results(parts[:1])


class SummedValues(CountedValues):
    """Distinct values, and the sums of those that are elsewhere, as the kernel `sums` has them."""

    def __init__(self, measure: BoundAggregate, inner: Kernel, sums: Kernel) -> None:
        super().__init__(measure, inner)
        self.sums = sums

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [*super().combine(parts[:2], groups), *self.sums.combine(parts[2:], groups)]

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        codes = np.repeat(np.arange(len(lengths)), lengths)
        if rows.type.num_fields > 1:  # with how often each is there
            there = rows.field(1).to_numpy() > 0
            rows, codes = rows.filter(pa.array(there)), codes[there]
        listed = self.sums.lift([rows.field(0)], np.zeros(len(rows), dtype=np.int64))
        both = [pa.concat_arrays([apart, own]) for apart, own in zip(parts[2:], listed, strict=True)]
        groups = Groups(np.concatenate([np.arange(len(lengths)), codes]), len(lengths))
        return self.sums.results(self.sums.combine(both, groups))


class NumberedValues(CountedValues):
    """The values that another kernel lists as they came; where they are elsewhere, the one that is the result."""

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        _, _, arrivals, places, values = parts
        # Of several, the last one is the newest.
        chosen = np.flatnonzero(np.asarray(places.is_valid()))
        at = np.full(groups.count, -1, dtype=np.int64)
        at[groups.codes[chosen]] = chosen
        newest = pa.array(at, mask=at < 0)
        came = pa.array(totals_of(elsewhere(arrivals), groups))
        return [*super().combine(parts[:2], groups), came, places.take(newest), values.take(newest)]

    def results(self, parts: Parts) -> pa.Array:
        is_apart = pa.array(elsewhere(parts[1]) > 0)
        return pc.if_else(is_apart, parts[4], self._inner.results(parts[:1]))
