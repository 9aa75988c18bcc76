"""What the row of a group keeps of each aggregate, and what is kept apart from it.

Partials come with the parts of the measures that the plan has, aggregates of one argument together
(`aggregation.distinct_arguments`). Of some the row keeps more: how many values have rows of their own, and what the
result needs of those (`aggregation.counted_kernels`). Which keeper has them, the kind of the measure says: counts and
sums of distinct values `group_values`, or `group_marks` where no row is ever taken away, the smallest and largest
`group_extremes`, the first and last `group_arrivals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.distinct_arguments import distinct_arguments, distinct_kind
from millstream.aggregation.kernels import kernels_of
from millstream.runtime.tables.group_arrivals import GroupArrivals, has_arrivals
from millstream.runtime.tables.group_extremes import GroupExtremes, has_head
from millstream.runtime.tables.group_marks import GroupMarks
from millstream.runtime.tables.group_values import GroupValues
from millstream.runtime.tables.spilled_values import SpilledValues, ValueTables
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupSpills", "stored_measures"]


def stored_measures(measures: Sequence[BoundAggregate], ttl_ms: int | None) -> tuple[BoundAggregate, ...]:
    """The measures as the group's row keeps them."""
    return tuple(measure if ttl_ms else _stored(measure) for measure in measures)


def _stored(measure: BoundAggregate) -> BoundAggregate:
    kind = distinct_kind(measure)
    if has_head(measure):
        kind = "headed_values"
    elif has_arrivals(measure):
        kind = "numbered_values"
    return measure if kind is None else replace(measure, kind=kind, inner=measure)


class GroupSpills:
    """The values of groups in one subtask that are apart from their rows."""

    def __init__(
        self,
        measures: Sequence[BoundAggregate],
        stored: Sequence[BoundAggregate],
        ttl_ms: int | None,
        tables: ValueTables,
    ) -> None:
        arguments = distinct_arguments(measures, ttl_ms)
        come_with_others = {number for numbers in arguments for number in numbers[1:]}
        self._widths = [
            0 if number in come_with_others else len(measure.parts) for number, measure in enumerate(measures)
        ]
        # What the row has besides: nothing yet, of what comes.
        self._besides = [
            kernel.part_kinds[width:] for kernel, width in zip(kernels_of(stored), self._widths, strict=True)
        ]
        self._distinct, self._marked = GroupValues(stored, tables), GroupMarks(stored, arguments, tables)
        self._keepers: tuple[SpilledValues, ...] = (
            self._distinct,
            self._marked,
            GroupExtremes(stored, tables),
            GroupArrivals(stored, tables),
        )

    def check_stored(self, groups: StateTable, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Refuse what another version stored elsewhere than where it is looked for. `groups`: the open table of
        their rows."""
        self._distinct.check_numbers(groups)
        self._marked.check_names(accounts)

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
