"""Stored accumulators of groups, and which of their values spill to separate rows.

Partials have the accumulator columns of the plan's measures, with aggregates of one argument combined
(`aggregation.distinct_arguments`). Some measures store more columns: the number of spilled values, and what their
result needs (`aggregation.counted_kernels`). The kind of a measure decides where its values spill: counts and sums of
distinct values to `group_values` (append-only input: `group_marks`), minima and maxima to `group_extremes`, first and
last values to `group_arrivals`.
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
    """The measures as group rows store them."""
    return tuple(measure if ttl_ms else _stored(measure) for measure in measures)


def _stored(measure: BoundAggregate) -> BoundAggregate:
    kind = distinct_kind(measure)
    if has_head(measure):
        kind = "headed_values"
    elif has_arrivals(measure):
        kind = "numbered_values"
    return measure if kind is None else replace(measure, kind=kind, inner=measure)


class GroupSpills:
    """All spilled values of groups in one subtask."""

    def __init__(
        self,
        measures: Sequence[BoundAggregate],
        stored: Sequence[BoundAggregate],
        ttl_ms: int | None,
        tables: ValueTables,
    ) -> None:
        arguments = distinct_arguments(measures, ttl_ms)
        combined = {number for numbers in arguments for number in numbers[1:]}
        self._widths = [0 if number in combined else len(measure.parts) for number, measure in enumerate(measures)]
        # The additional columns of stored rows; partials do not have them.
        self._added_kinds = [
            kernel.part_kinds[width:] for kernel, width in zip(kernels_of(stored), self._widths, strict=True)
        ]
        self._distinct, self._marked = GroupValues(stored, tables), GroupMarks(stored, arguments, tables)
        self._spills: tuple[SpilledValues, ...] = (
            self._distinct,
            self._marked,
            GroupExtremes(stored, tables),
            GroupArrivals(stored, tables),
        )

    def check_stored(self, groups: StateTable, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Reject values stored by another version in a location that this one does not read. `groups`: the open table
        of group rows."""
        self._distinct.check_numbers(groups)
        self._marked.check_names(accounts)

    def absorb(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """An epoch's partials, as stored. `stored` has the accumulators of the groups that `was_stored` masks."""
        arrays: list[pa.Array] = []
        start = 0
        for width, added_kinds in zip(self._widths, self._added_kinds, strict=True):
            arrays += [*parts[start : start + width], *(pa.nulls(len(keys), kind) for kind in added_kinds)]
            start += width
        for values in self._spills:
            arrays = values.absorb(keys, arrays, was_stored, stored)
        return arrays

    def spill(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """The accumulators to store, with large groups' values spilled."""
        for values in self._spills:
            parts = values.spill(keys, parts, was_stored, stored)
        return parts
