"""Aggregates of the program's own as measures, and how much is kept of them.

Groups and windows that do not overlap hold an accumulator. Windows that are put together of parts hold one where the
function can merge them, and else all rows, as functions of pandas Series always do. DISTINCT keeps the distinct rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.aggregation.row_arguments import RowOfArguments
from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BooleanType
from millstream.expressions.user_functions import CallMode, UserFunction
from millstream.planner.relations import AggregateCall, Relation
from millstream.records.table_type import TableValueType
from millstream.runtime.tables.user_aggregates import UserAggregate
from millstream.sql.places import problem
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate

__all__ = ["kept_by_groups", "kept_by_windows", "user_measure"]


def user_measure(call: AggregateCall, types: Sequence[DataType], name: str) -> BoundAggregate:
    """The measure of a call; all rows are kept."""
    user = call.user
    assert isinstance(user, UserFunction)
    held = [types[at].nullable() for at in call.arguments] or [BooleanType()]
    arguments = RowType.of([f"f{number}" for number in range(len(held))], held)
    looks = (AggregateArgument(TableValueType(arguments), expression=RowOfArguments(call.arguments, call.filter)),)
    measure = BoundAggregate(
        name,
        "user",
        looks,
        len(call.arguments),
        result=TableValueType(call.type),
        detail="rows",
        function=user,
        kernel=UserAggregate,
    )
    if not call.distinct:
        return measure
    if not call.arguments:
        raise ProgramError(f"the aggregate '{user.name}' has no arguments that could be DISTINCT")
    return BoundAggregate(name, "distinct", looks, result=measure.result, inner=replace(measure, name="inner"))


def kept_by_groups(
    measures: Sequence[BoundAggregate], relation: Relation, *, is_signed: bool, is_batch: bool
) -> tuple[BoundAggregate, ...]:
    """The measures of groups of all rows so far."""
    return tuple(_kept_by_group(each, relation, is_signed, is_batch) for each in measures)


def _kept_by_group(measure: BoundAggregate, relation: Relation, is_signed: bool, is_batch: bool) -> BoundAggregate:
    user = measure.function if measure.inner is None else measure.inner.function
    if user is None:
        return measure
    place = getattr(relation.site, "span", None)
    if user.mode is not CallMode.PER_ROW:
        if is_batch:
            return measure
        raise problem(
            f"the aggregate '{user.name}' is of pandas Series, which needs all rows of a group at once: in a stream "
            "that is a window's. Group by a window, run in BATCH mode, or write an AggregateFunction",
            place,
        )
    if measure.inner is not None:
        return measure
    if is_signed and "retract" in user.missing_methods:
        raise problem(
            f"the aggregate '{user.name}' has no retract(), and rows of its input are taken away. Write "
            "retract(accumulator, ...), which undoes accumulate(accumulator, ...)",
            place,
        )
    return replace(measure, detail="groups")


def kept_by_windows(measures: Sequence[BoundAggregate], *, merges: bool) -> tuple[BoundAggregate, ...]:
    """The measures of windows; `merges`: a window is put together of several parts."""
    return tuple(_kept_by_window(each, merges) for each in measures)


def _kept_by_window(measure: BoundAggregate, merges: bool) -> BoundAggregate:
    user = measure.function
    if user is None or user.mode is not CallMode.PER_ROW or (merges and "merge" in user.missing_methods):
        return measure
    return replace(measure, detail="folded")
