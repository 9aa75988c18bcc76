"""Aggregate calls of SQL as measures that panes can hold.

A measure says what is kept and how results come of it; the type of the result is what the call's type says. Calls that
no measure has are refused here, before anything runs.
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
from millstream.planner.lowering.user_aggregates import user_measure
from millstream.planner.relations import KEPT_ROWS, AggregateCall
from millstream.planner.traits.constants import NO_ROWS, Constants
from millstream.records.table_type import TableRowType, TableValueType
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate, signed_numbers

__all__ = ["key_type_of", "measures_of", "signed_measure"]

_VARIANCES = {"VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"}
_PICKS = {"FIRST_VALUE": "first", "LAST_VALUE": "last", "MIN": "min", "MAX": "max"}


def measures_of(
    calls: Sequence[AggregateCall], types: Sequence[DataType], constants: Constants | None = None
) -> tuple[BoundAggregate, ...]:
    """A measure for each call over columns of these types. There is one at the least: panes keep something."""
    if not calls:
        return (BoundAggregate("rows", "count"),)
    return tuple(
        _measure(call, types, f"{number}_{_name_of(call)}", constants or {}) for number, call in enumerate(calls)
    )


def _name_of(call: AggregateCall) -> str:
    name: str = call.function or getattr(call.user, "name", "")
    return name.lower()


def key_type_of(groups: tuple[int, ...], row_type: RowType) -> TypeInformation:
    """The type of the key of groups: of the one column, or of a row of them."""
    if not groups:
        return Types.BYTE()
    fields = [row_type.fields[at] for at in groups]
    for field in fields:
        if not can_be_grouped(field.data_type.arrow):
            raise NotYetError.of(f"GROUP BY '{field.name}', which is {field.data_type}", LATER)
    if len(fields) == 1:
        return TableValueType(fields[0].data_type.nullable())
    # Names of state are positions: a column that is renamed is the same key.
    types = [field.data_type.nullable() for field in fields]
    return TableRowType(RowType.of([f"key{number}" for number in range(len(fields))], types))


_WORDS = {"first": "FIRST_VALUE", "last": "LAST_VALUE", "array": "ARRAY_AGG"}


def signed_measure(measure: BoundAggregate) -> BoundAggregate:
    """The measure of rows that are taken away, too."""
    numbers = measure if measure.kind == "user" else signed_numbers(measure)
    if numbers is not None:
        return numbers
    # The others find the value that goes among those they keep.
    kept = measure.arguments[0].type_info
    if isinstance(kept, TableValueType):
        _check_groupable(kept.data_type, f"{_WORDS.get(measure.kind, measure.kind.upper())} over rows that change,")
    if measure.kind == "approx_distinct":  # exact is near enough, and a sketch cannot be taken away from
        return replace(measure, kind="signed_values", inner=replace(measure, kind="count"), detail="distinct")
    if measure.kind == "distinct":
        return replace(measure, kind="signed_values", detail="distinct")
    return replace(measure, kind="signed_values", inner=measure, detail="")


def _measure(call: AggregateCall, types: Sequence[DataType], name: str, constants: Constants) -> BoundAggregate:
    function = call.function.upper()
    result = TableValueType(call.type)
    if call.user is not None:
        return user_measure(call, types, name)
    if function == "COUNT" and not call.arguments:
        # Rows that a FILTER lets pass: the filter's own column, seen where it is TRUE.
        looks = () if call.filter is None else (_look(call.filter, BooleanType(), call),)
        return BoundAggregate(name, "count", looks, result=result)
    if not call.arguments:
        raise ProgramError(f"{function} needs an argument in this aggregation")
    argument = types[call.arguments[0]]
    looks = (_look(call.arguments[0], argument, call),)
    if function == "COUNT" and len(call.arguments) > 1:
        held = [types[at].nullable() for at in call.arguments]
        argument = RowType.of([f"f{number}" for number in range(len(held))], held)
        looks = (AggregateArgument(TableValueType(argument), expression=RowOfColumns(call.arguments, call.filter)),)
    if call.distinct and function not in ("MIN", "MAX"):
        _check_groupable(argument, f"{function}(DISTINCT …)")
        inner = _of_kind(call, function, looks, argument, "inner", result, constants)
        return BoundAggregate(name, "distinct", inner.arguments, result=result, inner=inner)
    return _of_kind(call, function, looks, argument, name, result, constants)


def _of_kind(
    call: AggregateCall,
    function: str,
    looks: tuple[AggregateArgument, ...],
    argument: DataType,
    name: str,
    result: TableValueType,
    constants: Constants,
) -> BoundAggregate:
    """The measure of a function of one column."""
    if call.order and call.name != KEPT_ROWS:
        raise ProgramError(
            f"{function} with ORDER BY is not supported: sort what it gives, as ARRAY_SORT(ARRAY_AGG(x))"
        )
    if function == "COUNT":
        return BoundAggregate(name, "count", looks, result=result)
    if function in ("SUM", "$SUM0", "SUM0", "AVG"):
        _check_type(argument, NumericType, function)
        return BoundAggregate(name, _sum_kind(function, argument), looks, result=result)
    if function in _PICKS:
        if function in ("MIN", "MAX") and not rolls_in_columns("min", argument.arrow):
            raise NotYetError.of(f"{function} of {argument}", LATER)
        return BoundAggregate(name, _PICKS[function], looks, result=result)
    if function in _VARIANCES:
        _check_type(argument, NumericType, function)
        detail = "STDDEV_SAMP" if function == "STDDEV" else function
        return BoundAggregate(name, "variance", looks, result=result, detail=detail)
    if function == "LISTAGG":
        if not is_text(argument):
            raise ProgramError(f"LISTAGG of {argument}: it joins texts. Cast it to STRING")
        return BoundAggregate(name, "listagg", looks, result=result, detail=_separator(call, constants))
    if function == "COLLECT":
        if not is_flat(argument.arrow):  # the keys of a MULTISET are those of a dictionary
            raise NotYetError.of(f"COLLECT of {argument}", LATER, "collect into an array: ARRAY_AGG(x)")
        return BoundAggregate(name, "multiset", looks, result=result)
    if function in ("JSON_ARRAYAGG", "JSON_OBJECTAGG"):
        return BoundAggregate(name, "json", looks, result=result, detail=function[5:-3].lower())
    if function.startswith("BITMAP_"):
        return BoundAggregate(name, "bitmap", looks, result=result, detail=function.split("_")[1].lower())
    if function == "ARRAY_AGG":
        value = (AggregateArgument(looks[0].type_info, looks[0].field),)
        mask = () if call.filter is None else (AggregateArgument(TableValueType(BooleanType()), call.filter),)
        # Of rows that are kept (`kept_rows`) the keys are fields; an order that the query wrote stops before.
        order = tuple((key.column, key.descending, key.nulls_first) for key in call.order)
        return BoundAggregate(name, "array", value + mask, result=result, order=order)
    if function == "APPROX_COUNT_DISTINCT":
        _check_groupable(argument, function)
        return BoundAggregate(name, "approx_distinct", looks, result=result)
    raise NotYetError.of(f"the aggregate {function} in windows", LATER)


def _sum_kind(function: str, argument: DataType) -> str:
    is_average = function == "AVG"
    if isinstance(argument, DecimalType):
        return "decimal_avg" if is_average else "decimal_sum"
    if is_average and isinstance(argument, IntegralType):
        return "whole_avg"
    assert isinstance(argument, IntegralType | FractionalType)
    return "avg" if is_average else "sum"


def _look(column: int, type_: DataType, call: AggregateCall) -> AggregateArgument:
    return AggregateArgument(TableValueType(type_.nullable()), column, mask=call.filter)


def _separator(call: AggregateCall, constants: Constants) -> str:
    if len(call.arguments) == 1:
        return ","
    separator = constants.get(call.arguments[1])
    if separator is NO_ROWS:
        return ","
    if not isinstance(separator, str):
        raise ProgramError("LISTAGG: what stands between texts is a constant, as LISTAGG(word, '-')")
    return separator


def _check_type(argument: DataType, wanted: type[DataType], function: str) -> None:
    if not isinstance(argument, wanted):
        raise ProgramError(f"{function} of {argument}: it takes numbers. Cast the column")


def _check_groupable(argument: DataType, what: str) -> None:
    if not can_be_grouped(argument.arrow) or pa.types.is_null(argument.arrow):
        raise NotYetError.of(f"{what} of {argument}", LATER)
