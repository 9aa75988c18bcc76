"""Chooses the kernel of a measure.

A measure runs vectorised if the Arrow column of its argument adds, compares or hashes as the values do. Big integers
and decimals are stored in an encoding that does not: they are aggregated a record at a time (`aggregate_records`). SQL
has its own kernels where its semantics differ (`sql_kernels`, `sql_list_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Average, Count, Edge, Extreme, Kernel, Sum
from millstream.aggregation.bitmap_kernels import Bitmap
from millstream.aggregation.counted_kernels import CountedValues, HeadedValues, NumberedValues, SummedValues
from millstream.aggregation.distinct_sketch import Distinct
from millstream.aggregation.exact_kernels import ExactReals
from millstream.aggregation.list_kernels import Collected, Largest
from millstream.aggregation.marked_kernels import MarkedValues
from millstream.aggregation.rolling_columns import rolls_in_columns
from millstream.aggregation.signed_kernels import SignedSum, SignedValues
from millstream.aggregation.sql_kernels import DecimalAverage, DecimalSum, Variance, WholeAverage
from millstream.aggregation.sql_list_kernels import Array, DistinctValues, JoinedTexts, JsonTexts, Multiset
from millstream.common.typeinfo import BasicType
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type
from millstream.state.keys.key_columns import is_stored_as_is
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate, basic_type

__all__ = ["column_of", "kernels_of", "runs_in_columns"]


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
    "decimal_sum": DecimalSum,
    "decimal_avg": DecimalAverage,
    "whole_avg": WholeAverage,
    "variance": Variance,
    "listagg": JoinedTexts,
    "multiset": Multiset,
    "array": Array,
    "json": JsonTexts,
    "bitmap": Bitmap,
    "signed_sum": SignedSum,
    "marked_values": MarkedValues,
}
_KERNELS_OVER_OTHERS: dict[str, Callable[[BoundAggregate, Kernel], Kernel]] = {
    "counted_values": CountedValues,
    "headed_values": HeadedValues,
    "numbered_values": NumberedValues,
    "distinct": DistinctValues,
    "signed_values": SignedValues,
    "exact_reals": ExactReals,
}
# Columns of these types are encoded: they neither add nor compare as the values do.
_ENCODED = (BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT)


def kernels_of(measures: Sequence[BoundAggregate]) -> list[Kernel]:
    """A kernel for each measure; all of them must run vectorised."""
    return [_kernel_of(measure) for measure in measures]


def _kernel_of(measure: BoundAggregate) -> Kernel:
    if measure.kernel is not None:
        kernel: Kernel = measure.kernel(measure)
        return kernel
    if measure.kind == "summed_values" and measure.inner is not None:
        return SummedValues(measure, _kernel_of(measure.inner), _kernel_of(measure.sums_elsewhere))
    if measure.inner is not None:
        return _KERNELS_OVER_OTHERS[measure.kind](measure, _kernel_of(measure.inner))
    return _KERNELS[measure.kind](measure)


def runs_in_columns(measure: BoundAggregate) -> bool:
    """Whether this measure has a kernel for its argument."""
    if not measure.is_typed:
        return False
    if measure.kind in ("count", "first", "last", "collect"):
        return True
    type_info = measure.arguments[0].type_info
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


def column_of(argument: AggregateArgument, columns: pa.RecordBatch) -> pa.Array:
    """The column of an argument, of the declared type."""
    if argument.expression is None:
        column = columns.column(argument.field or 0)
        if argument.mask is None:
            return column
        return pc.if_else(columns.column(argument.mask).fill_null(False), column, pa.scalar(None, column.type))
    assert argument.type_info is not None
    column = argument.expression(columns)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array) or len(column) != columns.num_rows:
        result = f"{len(column)} values" if isinstance(column, pa.Array) else type(column).__name__
        raise ProgramError(
            f"an expression of an aggregate returned {result} for {columns.num_rows} records, expected an Arrow array "
            "with one value for each. Use pyarrow.compute over its input columns"
        )
    kind = arrow_type(argument.type_info)
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as refusal:
        raise ProgramError(
            f"an expression of an aggregate is declared as {argument.type_info} but returned {column.type} "
            f"({refusal}). Cast it, or declare another type"
        ) from None
