"""Aggregates over values of groups that may grow large: a list of values, and a summary of the spilled ones.

A small group stores its values in its row, as `DistinctValues` and `SignedValues` do. Values of a large group spill to
separate rows (`runtime.tables`). The accumulator then has their number, which is combined like any count, and the data
that the result needs:

    counted    COUNT(DISTINCT …): nothing else
    summed     SUM, AVG, … (DISTINCT …): the sums of spilled values
    headed     MIN and MAX: the list has the first values, which include the result
    numbered   FIRST_VALUE and LAST_VALUE: the result, its place, and the number of arrivals so far

A NULL column means that the row was stored before the column existed: no value has spilled.
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

__all__ = ["CountedValues", "HeadedValues", "NumberedValues", "SummedValues", "spilled_counts"]


def spilled_counts(part: pa.Array) -> Int64s:
    """The number of spilled values; 0 for rows stored before this number existed."""
    counts: Int64s = part.fill_null(0).to_numpy()
    return counts


class CountedValues(Kernel):
    """The values that another kernel lists, and the number of spilled ones."""

    ranges_are_cheap = False

    def __init__(self, measure: BoundAggregate, inner: Kernel) -> None:
        super().__init__(measure)
        self._inner = inner

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [*self._inner.lift(columns, at), *(pa.nulls(len(at), kind) for kind in self.part_kinds[1:])]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [*self._inner.combine(parts[:1], groups), pa.array(totals_of(spilled_counts(parts[1]), groups))]

    def consolidated(self, parts: Parts) -> Parts:
        return [*self._inner.consolidated(parts[:1]), *parts[1:]]

    def results(self, parts: Parts) -> pa.Array:
        return pc.add(self._inner.results(parts[:1]), pa.array(spilled_counts(parts[1])))


class HeadedValues(CountedValues):
    """The first of the values that another kernel lists, and the number of the other values. The result is among the
    first."""

    def results(self, parts: Parts) -> pa.Array:
        return self._inner.results(parts[:1])


class SummedValues(CountedValues):
    """Distinct values, and the sums of spilled ones by the kernel `sums`."""

    def __init__(self, measure: BoundAggregate, inner: Kernel, sums: Kernel) -> None:
        super().__init__(measure, inner)
        self.sums = sums

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [*super().combine(parts[:2], groups), *self.sums.combine(parts[2:], groups)]

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        codes = np.repeat(np.arange(len(lengths)), lengths)
        if rows.type.num_fields > 1:  # with multiplicities
            present = rows.field(1).to_numpy() > 0
            rows, codes = rows.filter(pa.array(present)), codes[present]
        listed = self.sums.lift([rows.field(0)], np.zeros(len(rows), dtype=np.int64))
        both = [pa.concat_arrays([spilled, listed_sum]) for spilled, listed_sum in zip(parts[2:], listed, strict=True)]
        groups = Groups(np.concatenate([np.arange(len(lengths)), codes]), len(lengths))
        return self.sums.results(self.sums.combine(both, groups))


class NumberedValues(CountedValues):
    """The values that another kernel lists in arrival order; once spilled, the result."""

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        _, _, arrivals, places, values = parts
        # The last entry is the newest.
        chosen = np.flatnonzero(np.asarray(places.is_valid()))
        at = np.full(groups.count, -1, dtype=np.int64)
        at[groups.codes[chosen]] = chosen
        newest = pa.array(at, mask=at < 0)
        arrival_counts = pa.array(totals_of(spilled_counts(arrivals), groups))
        return [*super().combine(parts[:2], groups), arrival_counts, places.take(newest), values.take(newest)]

    def results(self, parts: Parts) -> pa.Array:
        has_spilled = pa.array(spilled_counts(parts[1]) > 0)
        return pc.if_else(has_spilled, parts[4], self._inner.results(parts[:1]))
