"""Kernels with several values: the n largest values, and all values.

The accumulator is one list column of small rows. Combining flattens the lists, sorts their rows by group, and splits
them into lists again; a record is lifted to a list of one row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.groups import Groups
from millstream.aggregation.rolling_columns import order_numbers
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, plain_view
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["Collected", "Largest", "Listed", "flat"]


class Listed(Kernel):
    """Base of kernels with a list accumulator."""

    ranges_are_cheap = False

    def __init__(self, measure: BoundAggregate) -> None:
        super().__init__(measure)
        self._list_kind = self.part_kinds[0]
        self._row_kind = self._list_kind.value_type

    def lists_of_single_rows(self, fields: list[pa.Array], has_row: Bools | None, length: int) -> Parts:
        """A list for each record: of one row made of its fields, or empty where `has_row` is false."""
        rows = pa.StructArray.from_arrays(fields, fields=list(self._row_kind))
        if has_row is None:
            return [self._lists(rows, np.ones(length, dtype=np.int64))]
        return [self._lists(rows.filter(pa.array(has_row)), has_row.astype(np.int64))]

    def _lists(self, rows: pa.Array, lengths: Int64s) -> pa.Array:
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), rows, type=self._list_kind)

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        rows, lengths = flat(parts[0])
        codes = np.repeat(groups.codes, lengths)
        order = self._order_of_results(rows, codes, groups.count)
        return [self._lists(rows.take(pa.array(order)), np.bincount(codes[order], minlength=groups.count))]

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        """The remaining rows, group by group, in result order."""
        raise NotImplementedError

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        values = rows.field(self._row_kind.num_fields - 1)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=self.result_kind)


def flat(lists: pa.Array) -> tuple[pa.Array, Int64s]:
    """The concatenated elements of the lists, and the length of each list."""
    return lists.flatten(), np.diff(lists.offsets.to_numpy()).astype(np.int64)


def _valid(column: pa.Array) -> Bools | None:
    return np.asarray(column.is_valid()) if column.null_count else None


class Collected(Listed):
    """All values, by event time, then by arrival."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return self.lists_of_single_rows([pa.array(at), columns[0]], _valid(columns[0]), len(at))

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        order: Int64s = np.lexsort((plain_view(rows.field(0)), codes))
        return order


class Largest(Listed):
    """The values of the n records that are largest by another argument; equal ones are ordered by arrival."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        by, value = columns[0], columns[-1]
        return self.lists_of_single_rows([by, pa.array(at), value], _valid(by), len(at))

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        order = np.lexsort((plain_view(rows.field(1)), ~order_numbers(rows.field(0)), codes))
        sizes = np.bincount(codes, minlength=count)
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        largest: Int64s = order[place < self.measure.n]
        return largest
