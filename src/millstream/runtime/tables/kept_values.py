"""What the row of a group keeps of each aggregate, and what is kept apart from it.

Partials come with the parts of the measures that the plan has. Of some the row keeps more: how many values have rows of
their own, and what the result needs of those (`aggregation.counted_kernels`). Which keeper has them, the kind of the
measure says: counts and sums of distinct values `group_values`, the smallest and largest `group_extremes`, the first
and last `group_arrivals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.kernels import kernels_of
from millstream.runtime.tables.group_arrivals import GroupArrivals, has_arrivals
from millstream.runtime.tables.group_extremes import GroupExtremes, has_head
from millstream.runtime.tables.group_values import GroupValues, distinct_kind
from millstream.runtime.tables.values_apart import ValueKeeper, ValueTables
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.measures import Measure

__all__ = ["KeptValues", "stored_measures"]


def stored_measures(measures: Sequence[Measure], ttl_ms: int | None) -> tuple[Measure, ...]:
    """The measures as the group's row keeps them."""
    return tuple(measure if ttl_ms else _stored(measure) for measure in measures)


def _stored(measure: Measure) -> Measure:
    kind = distinct_kind(measure)
    if has_head(measure):
        kind = "headed_values"
    elif has_arrivals(measure):
        kind = "numbered_values"
    return measure if kind is None else replace(measure, kind=kind, inner=measure)


class KeptValues:
    """The values of groups in one subtask that are apart from their rows."""

    def __init__(self, measures: Sequence[Measure], stored: Sequence[Measure], tables: ValueTables) -> None:
        self._widths = [len(measure.parts) for measure in measures]
        # What the row has besides: nothing yet, of what comes.
        self._besides = [
            kernel.part_kinds[width:] for kernel, width in zip(kernels_of(stored), self._widths, strict=True)
        ]
        self._distinct = GroupValues(stored, tables)
        self._keepers: tuple[ValueKeeper, ...] = (
            self._distinct,
            GroupExtremes(stored, tables),
            GroupArrivals(stored, tables),
        )

    def check_stored(self, groups: StateTable) -> None:
        """Refuse what an earlier version stored elsewhere than where it is looked for. `groups`: the open table of
        their rows."""
        self._distinct.check_numbers(groups)

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What the exchange brought in an epoch, as it is kept. `had`: which groups are stored, `stored`: what of
        those."""
        given: list[pa.Array] = []
        start = 0
        for width, besides in zip(self._widths, self._besides, strict=True):
            given += [*parts[start : start + width], *(pa.nulls(len(keys), kind) for kind in besides)]
            start += width
        for keeper in self._keepers:
            given = keeper.brought(keys, given, had, stored)
        return given

    def settled(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What the rows of groups keep."""
        for keeper in self._keepers:
            parts = keeper.settled(keys, parts, had, stored)
        return parts
