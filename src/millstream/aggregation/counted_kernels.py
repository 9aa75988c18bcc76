"""COUNT(DISTINCT …) of groups that may grow large: values in a list, or only the number of those that are elsewhere.

A group of few values keeps them in its row, as `DistinctValues` and `SignedValues` do. The values of a large one have
rows of their own (`runtime.tables.group_values`); here is how many they are, which adds up like any count.
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

__all__ = ["CountedValues"]


class CountedValues(Kernel):
    """The values that another kernel lists, and the number of those that are elsewhere."""

    ranges_are_cheap = False

    def __init__(self, measure: Measure, inner: Kernel) -> None:
        super().__init__(measure)
        self._inner = inner

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return [*self._inner.lift(columns, at), pa.array(np.zeros(len(at), dtype=np.int64))]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [*self._inner.combine(parts[:1], groups), pa.array(totals_of(parts[1].to_numpy(), groups))]

    def results(self, parts: Parts) -> pa.Array:
        return pc.add(self._inner.results(parts[:1]), parts[1])
