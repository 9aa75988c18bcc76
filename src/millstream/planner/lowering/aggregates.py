"""Binds SQL aggregate calls to accumulators that panes can store.

A `BoundAggregate` defines the accumulator and how the result is computed from it; the call defines the result's type.
Calls without an accumulator are rejected here, before the job starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.aggregation.groups import can_be_grouped, is_flat
from millstream.aggregation.rolling_columns import rolls_in_columns
from millstream.aggregation.row_arguments import RowOfColumns
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import LATER, NotYetError, ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BooleanType, DecimalType, FractionalType, IntegralType, NumericType, is_text
from millstream.planner.lowering.user_aggregates import bound_user_aggregate
from millstream.planner.relations import BUFFERED_ROWS, AggregateCall
from millstream.planner.traits.constants import NO_ROWS, Constants
from millstream.records.table_type import TableRowType, TableValueType
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate, signed_numbers

__all__ = ["bound_aggregates", "key_type_of", "signed_aggregate"]

_VARIANCES = {"VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"}
_PICKS = {"FIRST_VALUE": "first", "LAST_VALUE": "last", "MIN": "min", "MAX": "max"}


def bound_aggregates(
    calls: Sequence[AggregateCall], types: Sequence[DataType], constants: Constants | None = None
) -> tuple[BoundAggregate, ...]:
    """One bound aggregate per call, over columns of these types; at least one, because panes store an accumulator."""
    if not calls:
        return (BoundAggregate("rows", "count"),)
    return tuple(
        _bound_aggregate(call, types, f"{number}_{_name_of(call)}", constants or {})
        for number, call in enumerate(calls)
    )


def _name_of(call: AggregateCall) -> str:
    name: str = call.function or getattr(call.user, "name", "")
    return name.lower()


def key_type_of(groups: tuple[int, ...], row_type: RowType) -> TypeInformation:
    """The type of a group's key: that of its single column, or a row of several columns."""
    if not groups:
        return Types.BYTE()
    fields = [row_type.fields[at] for at in groups]
    for field in fields:
        if not can_be_grouped(field.data_type.arrow):
            raise NotYetError.of(f"GROUP BY '{field.name}', which is {field.data_type}", LATER)
    if len(fields) == 1:
        return TableValueType(fields[0].data_type.nullable())
    # State names are positions: renaming a column does not change the key.
    types = [field.data_type.nullable() for field in fields]
    return TableRowType(RowType.of([f"key{number}" for number in range(len(fields))], types))


_WORDS = {"first": "FIRST_VALUE", "last": "LAST_VALUE", "array": "ARRAY_AGG"}


def signed_aggregate(aggregate: BoundAggregate) -> BoundAggregate:
    """The aggregate for input with retractions and deletes."""
    numbers = aggregate if aggregate.kind == "user" else signed_numbers(aggregate)
    if numbers is not None:
        return numbers
    # All others store their values and remove the deleted value.
    argument_type = aggregate.arguments[0].type_info
    if isinstance(argument_type, TableValueType):
        _check_groupable(
            argument_type.data_type, f"{_WORDS.get(aggregate.kind, aggregate.kind.upper())} over rows that change,"
        )
    if aggregate.kind == "approx_distinct":  # counted exactly: a sketch cannot retract
        return replace(aggregate, kind="signed_values", inner=replace(aggregate, kind="count"), detail="distinct")
    if aggregate.kind == "distinct":
        return replace(aggregate, kind="signed_values", detail="distinct")
    return replace(aggregate, kind="signed_values", inner=aggregate, detail="")


def _bound_aggregate(call: AggregateCall, types: Sequence[DataType], name: str, constants: Constants) -> BoundAggregate:
    function = call.function.upper()
    result = TableValueType(call.type)
    if call.user is not None:
        return bound_user_aggregate(call, types, name)
    if function == "COUNT" and not call.arguments:
        # COUNT(*) FILTER counts the rows in which the filter's column is TRUE.
        arguments = () if call.filter is None else (_argument(call.filter, BooleanType(), call),)
        return BoundAggregate(name, "count", arguments, result=result)
    if not call.arguments:
        raise ProgramError(f"{function} needs an argument in this aggregation")
    argument = types[call.arguments[0]]
    arguments = (_argument(call.arguments[0], argument, call),)
    if function == "COUNT" and len(call.arguments) > 1:
        held = [types[at].nullable() for at in call.arguments]
        argument = RowType.of([f"f{number}" for number in range(len(held))], held)
        arguments = (AggregateArgument(TableValueType(argument), expression=RowOfColumns(call.arguments, call.filter)),)
    if call.distinct and function not in ("MIN", "MAX"):
        _check_groupable(argument, f"{function}(DISTINCT …)")
        inner = _of_kind(call, function, arguments, argument, "inner", result, constants)
        return BoundAggregate(name, "distinct", inner.arguments, result=result, inner=inner)
    return _of_kind(call, function, arguments, argument, name, result, constants)


def _of_kind(
    call: AggregateCall,
    function: str,
    arguments: tuple[AggregateArgument, ...],
    argument: DataType,
    name: str,
    result: TableValueType,
    constants: Constants,
) -> BoundAggregate:
    """The aggregate of a function over one column."""
    if call.order and call.name != BUFFERED_ROWS:
        raise ProgramError(f"{function} with ORDER BY is not supported: sort its result, as ARRAY_SORT(ARRAY_AGG(x))")
    if function == "COUNT":
        return BoundAggregate(name, "count", arguments, result=result)
    if function in ("SUM", "$SUM0", "SUM0", "AVG"):
        _check_type(argument, NumericType, function)
        return BoundAggregate(name, _sum_kind(function, argument), arguments, result=result)
    if function in _PICKS:
        if function in ("MIN", "MAX") and not rolls_in_columns("min", argument.arrow):
            raise NotYetError.of(f"{function} of {argument}", LATER)
        return BoundAggregate(name, _PICKS[function], arguments, result=result)
    if function in _VARIANCES:
        _check_type(argument, NumericType, function)
        detail = "STDDEV_SAMP" if function == "STDDEV" else function
        return BoundAggregate(name, "variance", arguments, result=result, detail=detail)
    if function == "LISTAGG":
        if not is_text(argument):
            raise ProgramError(f"LISTAGG of {argument}: it joins strings. Cast it to STRING")
        return BoundAggregate(name, "listagg", arguments, result=result, detail=_separator(call, constants))
    if function == "COLLECT":
        if not is_flat(argument.arrow):  # a MULTISET stores its elements as dictionary keys
            raise NotYetError.of(f"COLLECT of {argument}", LATER, "collect into an array: ARRAY_AGG(x)")
        return BoundAggregate(name, "multiset", arguments, result=result)
    if function in ("JSON_ARRAYAGG", "JSON_OBJECTAGG"):
        return BoundAggregate(name, "json", arguments, result=result, detail=function[5:-3].lower())
    if function.startswith("BITMAP_"):
        return BoundAggregate(name, "bitmap", arguments, result=result, detail=function.split("_")[1].lower())
    if function == "ARRAY_AGG":
        value = (AggregateArgument(arguments[0].type_info, arguments[0].field),)
        mask = () if call.filter is None else (AggregateArgument(TableValueType(BooleanType()), call.filter),)
        # Buffered rows (`buffered_rows`) are sorted by fields; an ORDER BY of the query was rejected above.
        order = tuple((key.column, key.descending, key.nulls_first) for key in call.order)
        return BoundAggregate(name, "array", value + mask, result=result, order=order)
    if function == "APPROX_COUNT_DISTINCT":
        _check_groupable(argument, function)
        return BoundAggregate(name, "approx_distinct", arguments, result=result)
    raise NotYetError.of(f"the aggregate {function} in windows", LATER)


def _sum_kind(function: str, argument: DataType) -> str:
    is_average = function == "AVG"
    if isinstance(argument, DecimalType):
        return "decimal_avg" if is_average else "decimal_sum"
    if is_average and isinstance(argument, IntegralType):
        return "whole_avg"
    assert isinstance(argument, IntegralType | FractionalType)
    return "avg" if is_average else "sum"


def _argument(column: int, type_: DataType, call: AggregateCall) -> AggregateArgument:
    return AggregateArgument(TableValueType(type_.nullable()), column, mask=call.filter)


def _separator(call: AggregateCall, constants: Constants) -> str:
    if len(call.arguments) == 1:
        return ","
    separator = constants.get(call.arguments[1])
    if separator is NO_ROWS:
        return ","
    if not isinstance(separator, str):
        raise ProgramError("LISTAGG: the separator must be a constant, such as LISTAGG(word, '-')")
    return separator


def _check_type(argument: DataType, wanted: type[DataType], function: str) -> None:
    if not isinstance(argument, wanted):
        raise ProgramError(f"{function} of {argument}: expected a number. Cast the column")


def _check_groupable(argument: DataType, what: str) -> None:
    if not can_be_grouped(argument.arrow) or pa.types.is_null(argument.arrow):
        raise NotYetError.of(f"{what} of {argument}", LATER)
