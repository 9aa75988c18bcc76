"""Which kernel computes a measure, and which measures have one; and the kernels that keep several values.

A measure runs in columns where the Arrow column of what it looks at adds, compares or hashes as the values do. Big
integers and decimals are columns of an encoding that does neither: they run a record at a time (`aggregate_records`).

The accumulator of the largest n, and of all values, is one list column of small rows. Combining flattens the lists,
sorts what is in them by group, and cuts it into lists again; a record begins as a list of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Average, Count, Edge, Extreme, Kernel, Parts, Sum
from millstream.aggregation.distinct_sketch import Distinct
from millstream.aggregation.groups import Groups
from millstream.aggregation.rolling_columns import order_numbers, rolls_in_columns
from millstream.common.typeinfo import BasicType
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, is_stored_as_is, plain_view
from millstream.state.windows.measures import Look, Measure, basic_type

__all__ = ["Collected", "Largest", "column_of", "kernels_of", "runs_in_columns"]


class _Listed(Kernel):
    """What the two share: lists in, lists out."""

    ranges_are_cheap = False

    def __init__(self, measure: Measure) -> None:
        super().__init__(measure)
        self._list_kind = self.part_kinds[0]
        self._row_kind = self._list_kind.value_type

    def _lists_of_single_rows(self, fields: list[pa.Array], has_row: Bools | None, length: int) -> Parts:
        """A list for each record: of the one row made of its fields, or empty where there is nothing."""
        rows = pa.StructArray.from_arrays(fields, fields=list(self._row_kind))
        if has_row is None:
            return [self._lists(rows, np.ones(length, dtype=np.int64))]
        return [self._lists(rows.filter(pa.array(has_row)), has_row.astype(np.int64))]

    def _lists(self, rows: pa.Array, lengths: Int64s) -> pa.Array:
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), rows, type=self._list_kind)

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        rows, lengths = _flat(parts[0])
        codes = np.repeat(groups.codes, lengths)
        order = self._order_of_results(rows, codes, groups.count)
        return [self._lists(rows.take(pa.array(order)), np.bincount(codes[order], minlength=groups.count))]

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        """The rows that remain, group by group, in the order of the result."""
        raise NotImplementedError

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = _flat(parts[0])
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        values = rows.field(self._row_kind.num_fields - 1)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=self.result_kind)


def _flat(lists: pa.Array) -> tuple[pa.Array, Int64s]:
    """What is in the lists, one after another, and the length of each."""
    return lists.flatten(), np.diff(lists.offsets.to_numpy()).astype(np.int64)


def _valid(column: pa.Array) -> Bools | None:
    return np.asarray(column.is_valid()) if column.null_count else None


class Collected(_Listed):
    """All values, by event time, then by arrival."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return self._lists_of_single_rows([pa.array(at), columns[0]], _valid(columns[0]), len(at))

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        order: Int64s = np.lexsort((plain_view(rows.field(0)), codes))
        return order


class Largest(_Listed):
    """The values of the n records that are largest by another; of equal ones, the earlier come first."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        by, value = columns[0], columns[-1]
        return self._lists_of_single_rows([by, pa.array(at), value], _valid(by), len(at))

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        order = np.lexsort((plain_view(rows.field(1)), ~order_numbers(rows.field(0)), codes))
        sizes = np.bincount(codes, minlength=count)
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        largest: Int64s = order[place < self.measure.n]
        return largest


_KERNELS: dict[str, type[Kernel]] = {
    "count": Count,
    "sum": Sum,
    "min": Extreme,
    "max": Extreme,
    "avg": Average,
    "first": Edge,
    "last": Edge,
    "approx_distinct": Distinct,
    "top_n": Largest,
    "collect": Collected,
}
# Columns of these hold an encoding that neither adds nor compares as the values do.
_ENCODED = (BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT)


def kernels_of(measures: Sequence[Measure]) -> list[Kernel]:
    """A kernel for each measure; all of them must run in columns."""
    return [_KERNELS[measure.kind](measure) for measure in measures]


def runs_in_columns(measure: Measure) -> bool:
    """Whether this measure has a kernel for what it looks at."""
    if not measure.is_typed:
        return False
    if measure.kind in ("count", "first", "last", "collect"):
        return True
    type_info = measure.looks[0].type_info
    assert type_info is not None
    if measure.kind == "approx_distinct":
        return is_stored_as_is(type_info)
    arrow = arrow_type(type_info)
    adds = measure.kind in ("sum", "avg")
    return (
        basic_type(type_info) not in _ENCODED
        and arrow is not None
        and rolls_in_columns("sum" if adds else "min", arrow)
    )


def column_of(look: Look, columns: pa.RecordBatch) -> pa.Array:
    """The column that `look` means, of the declared type."""
    if look.expression is None:
        return columns.column(look.field or 0)
    assert look.type_info is not None
    column = look.expression(columns)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array) or len(column) != columns.num_rows:
        what = f"{len(column)} values" if isinstance(column, pa.Array) else type(column).__name__
        raise ProgramError(
            f"an expression of an aggregate gave {what} for {columns.num_rows} records, expected an Arrow array with "
            "one value for each. Use pyarrow.compute over the columns it is given"
        )
    kind = arrow_type(look.type_info)
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as refusal:
        raise ProgramError(
            f"an expression of an aggregate is declared as {look.type_info} and gave {column.type} ({refusal}). "
            "Cast it, or declare another type"
        ) from None
