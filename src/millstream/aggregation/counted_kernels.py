"""Aggregates of the values of groups that may grow large: values in a list, and the number of those that are elsewhere.

A group of few values keeps them in its row, as `DistinctValues` and `SignedValues` do. Values of a large one have rows
of their own; here is how many those are, which adds up like any count. Of COUNT(DISTINCT …) all values move
(`runtime.tables.group_values`), of MIN and MAX all but the first ones, among which the result is
(`runtime.tables.group_extremes`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Kernel, Parts, totals_of
from millstream.aggregation.groups import Groups
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.measures import Measure

__all__ = ["CountedValues", "HeadedValues", "elsewhere"]


def elsewhere(part: pa.Array) -> Int64s:
    """How many values are elsewhere. Rows of before there was this number have all of theirs."""
    counts: Int64s = part.fill_null(0).to_numpy()
    return counts


class CountedValues(Kernel):
    """The values that another kernel lists, and the number of those that are elsewhere."""

    ranges_are_cheap = False

    def __init__(self, measure: Measure, inner: Kernel) -> None:
        super().__init__(measure)
        self._inner = inner

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [*self._inner.lift(columns, at), pa.array(np.zeros(len(at), dtype=np.int64))]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [*self._inner.combine(parts[:1], groups), pa.array(totals_of(elsewhere(parts[1]), groups))]

    def results(self, parts: Parts) -> pa.Array:
        return pc.add(self._inner.results(parts[:1]), pa.array(elsewhere(parts[1])))


class HeadedValues(CountedValues):
    """The first of the values that another kernel lists, and the number of the others. Of a group that has any, the
    result is among the first."""

    def results(self, parts: Parts) -> pa.Array:
        return self._inner.results(parts[:1])
