"""Rows of panes as columns: a key, the start of a pane, and the accumulators of all measures.

Partials, stored panes and panes being fired all have this form. `combined` merges rows of one key and pane: this is all
that partial aggregation, merging and late updates do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.groups import Groups, groups_of_pairs
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.signed_kernels import negated
from millstream.common.typeinfo import TypeInformation, Types
from millstream.records.columns import arrow_type
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["Accumulators", "PaneRows", "accumulator_type", "partial_session_type", "partial_type", "result_of_nothing"]


def accumulator_type(measures: Sequence[BoundAggregate]) -> TypeInformation:
    """The type of a pane's accumulators of all measures."""
    parts = [part for measure in measures for part in measure.parts]
    return Types.ROW_NAMED([name for name, _ in parts], [type_info for _, type_info in parts])


def partial_type(measures: Sequence[BoundAggregate], key_type: TypeInformation) -> TypeInformation:
    """The type of a partial aggregate: its key, its pane, its record count, and the accumulators."""
    parts = [part for measure in measures for part in measure.parts]
    names = ["key", "pane", "records", *(name for name, _ in parts)]
    return Types.ROW_NAMED(names, [key_type, Types.LONG(), Types.LONG(), *(type_info for _, type_info in parts)])


def partial_session_type(measures: Sequence[BoundAggregate], key_type: TypeInformation) -> TypeInformation:
    """The type of a partial session: its key, first and last time, its record count, and the accumulators."""
    parts = [part for measure in measures for part in measure.parts]
    names = ["key", "start", "last", "records", *(name for name, _ in parts)]
    return Types.ROW_NAMED(names, [key_type, Types.LONG(), Types.LONG(), Types.LONG(), *(part for _, part in parts)])


@dataclass(frozen=True)
class PaneRows:
    """Rows of panes; `parts` are the accumulator columns of all measures, concatenated."""

    keys: KeyColumn
    panes: Int64s
    parts: Parts

    def __len__(self) -> int:
        return len(self.panes)

    @property
    def nbytes(self) -> int:
        """The approximate size in memory."""
        columns = sum(part.nbytes for part in self.parts) + self.keys.array.nbytes
        return int(columns + 2 * self.panes.nbytes)  # hashes are as wide

    def take(self, rows: Int64s) -> PaneRows:
        """The rows at these positions, in this order."""
        at = pa.array(rows)
        return PaneRows(self.keys.take(rows), self.panes[rows], [part.take(at) for part in self.parts])

    @classmethod
    def concat(cls, pieces: Sequence[PaneRows]) -> PaneRows:
        """All rows, concatenated; among rows of one key and pane, earlier pieces come first."""
        if len(pieces) == 1:
            return pieces[0]
        keys = KeyColumn.concat([rows.keys for rows in pieces])
        parts = [pa.concat_arrays(columns) for columns in zip(*(rows.parts for rows in pieces), strict=True)]
        return cls(keys, np.concatenate([rows.panes for rows in pieces]), parts)


class Accumulators:
    """The kernels of all measures, over their concatenated parts."""

    def __init__(self, measures: Sequence[BoundAggregate]) -> None:
        self.kernels: list[Kernel] = kernels_of(measures)
        stored = arrow_type(accumulator_type(measures))
        assert stored is not None
        self._fields = list(stored)
        self._slices: list[slice] = []
        start = 0
        for measure in measures:
            self._slices.append(slice(start, start + len(measure.parts)))
            start = self._slices[-1].stop

    @property
    def ranges_are_cheap(self) -> bool:
        """Whether the cost of a window is independent of its number of panes."""
        return all(kernel.ranges_are_cheap for kernel in self.kernels)

    def lift(self, inputs: Sequence[Sequence[pa.Array]], at: Int64s) -> Parts:
        """An accumulator for each record; `inputs` are the argument columns of each measure."""
        parts = [kernel.lift(columns, at) for kernel, columns in zip(self.kernels, inputs, strict=True)]
        return [column for kernel_parts in parts for column in kernel_parts]

    def gather(self, inputs: Sequence[Sequence[pa.Array]], at: Int64s, groups: Groups) -> Parts:
        """One accumulator for each group of records."""
        parts = [kernel.gather(columns, at, groups) for kernel, columns in zip(self.kernels, inputs, strict=True)]
        return [column for kernel_parts in parts for column in kernel_parts]

    def negated(self, parts: Parts, signs: Int64s) -> Parts:
        """The accumulators of records, negated for deletes (sign -1)."""
        return [column for kernel, own in self._by_kernel(parts) for column in negated(kernel, own, signs)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        """One accumulator for each group."""
        return [
            column
            for kernel, measure_parts in self._by_kernel(parts)
            for column in kernel.combine(measure_parts, groups)
        ]

    def combined(self, rows: PaneRows) -> tuple[PaneRows, Groups]:
        """One row for each key and pane, and the output row of each input row."""
        groups = groups_of_pairs(rows.keys.array, pa.array(rows.panes))
        if groups.count == len(rows):
            return rows, Groups(np.arange(len(rows)), len(rows))
        first = groups.firsts()
        return PaneRows(rows.keys.take(first), rows.panes[first], self.combine(rows.parts, groups)), groups

    def ranged(self, parts: Parts) -> Callable[[Int64s, Int64s], Parts]:
        """A function of (starts, stops): one accumulator for each run of rows."""
        functions = [kernel.ranged(measure_parts) for kernel, measure_parts in self._by_kernel(parts)]
        return lambda starts, stops: [column for ranged in functions for column in ranged(starts, stops)]

    def results(self, parts: Parts) -> list[pa.Array]:
        """The results of all measures, a column for each."""
        return [kernel.results(measure_parts) for kernel, measure_parts in self._by_kernel(parts)]

    def results_of_nothing(self) -> list[pa.Array]:
        """The results for empty input, as one row: counts are 0, most others NULL."""
        return [result_of_nothing(kernel) for kernel in self.kernels]

    def consolidated(self, parts: Parts) -> Parts:
        """The accumulators in stored form; idempotent."""
        return [column for kernel, own in self._by_kernel(parts) for column in kernel.consolidated(own)]

    def stored(self, parts: Parts) -> pa.Array:
        """The accumulators as the one stored column."""
        return self.packed(self.consolidated(parts))

    def packed(self, parts: Parts) -> pa.Array:
        """Accumulators in stored form as one column."""
        return pa.StructArray.from_arrays(parts, fields=self._fields)

    def read(self, stored: pa.Array) -> Parts:
        """The inverse of `stored`."""
        return [stored.field(number) for number in range(len(self._fields))]

    def _by_kernel(self, parts: Parts) -> list[tuple[Kernel, Parts]]:
        return [(kernel, parts[columns]) for kernel, columns in zip(self.kernels, self._slices, strict=True)]


def result_of_nothing(kernel: Kernel) -> pa.Array:
    """The result for empty input, as a column of one row: the result for a row with NULL arguments."""
    if not kernel.measure.arguments:
        return pa.array([0], kernel.result_kind)
    # NULL is a value for ARRAY_AGG.
    if "array" in (kernel.measure.kind, kernel.measure.inner and kernel.measure.inner.kind):
        return pa.nulls(1, kernel.result_kind)
    absent = [
        pa.nulls(1, arrow_type(argument.type_info))
        for argument in kernel.measure.arguments
        if argument.type_info is not None
    ]
    at = np.zeros(1, dtype=np.int64)
    return kernel.results(kernel.combine(kernel.lift(absent, at), Groups(at, 1)))
