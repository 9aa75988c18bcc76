"""Binds user aggregate functions, and chooses what their state stores.

Groups and non-overlapping windows store an accumulator. Windows merged from several panes store an accumulator if the
function can merge them, otherwise all rows. Functions over pandas Series always store all rows. DISTINCT stores the
distinct rows.
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

__all__ = ["bound_user_aggregate", "group_aggregates", "window_aggregates"]


def bound_user_aggregate(call: AggregateCall, types: Sequence[DataType], name: str) -> BoundAggregate:
    """Binds a call; its state stores all rows."""
    user = call.user
    assert isinstance(user, UserFunction)
    held = [types[at].nullable() for at in call.arguments] or [BooleanType()]
    arguments = RowType.of([f"f{number}" for number in range(len(held))], held)
    aggregate_arguments = (
        AggregateArgument(TableValueType(arguments), expression=RowOfArguments(call.arguments, call.filter)),
    )
    aggregate = BoundAggregate(
        name,
        "user",
        aggregate_arguments,
        len(call.arguments),
        result=TableValueType(call.type),
        detail="rows",
        function=user,
        kernel=UserAggregate,
    )
    if not call.distinct:
        return aggregate
    if not call.arguments:
        raise ProgramError(f"the aggregate '{user.name}' has no arguments for DISTINCT")
    return BoundAggregate(
        name, "distinct", aggregate_arguments, result=aggregate.result, inner=replace(aggregate, name="inner")
    )


def group_aggregates(
    aggregates: Sequence[BoundAggregate], relation: Relation, *, is_signed: bool, is_batch: bool
) -> tuple[BoundAggregate, ...]:
    """The aggregates of unbounded groups."""
    return tuple(_group_aggregate(each, relation, is_signed, is_batch) for each in aggregates)


def _group_aggregate(aggregate: BoundAggregate, relation: Relation, is_signed: bool, is_batch: bool) -> BoundAggregate:
    user = aggregate.function if aggregate.inner is None else aggregate.inner.function
    if user is None:
        return aggregate
    place = getattr(relation.site, "span", None)
    if user.mode is not CallMode.PER_ROW:
        if is_batch:
            return aggregate
        raise problem(
            f"the aggregate '{user.name}' takes pandas Series, and so needs all rows of a group at once: a stream has "
            "those per window. Group by a window, run in BATCH mode, or write an AggregateFunction",
            place,
        )
    if aggregate.inner is not None:
        return aggregate
    if is_signed and "retract" in user.missing_methods:
        raise problem(
            f"the aggregate '{user.name}' has no retract(), and its input deletes or updates rows. Write "
            "retract(accumulator, ...), which undoes accumulate(accumulator, ...)",
            place,
        )
    return replace(aggregate, detail="groups")


def window_aggregates(aggregates: Sequence[BoundAggregate], *, merges: bool) -> tuple[BoundAggregate, ...]:
    """The aggregates of windows; `merges`: a window is merged from several panes."""
    return tuple(_window_aggregate(each, merges) for each in aggregates)


def _window_aggregate(aggregate: BoundAggregate, merges: bool) -> BoundAggregate:
    user = aggregate.function
    if user is None or user.mode is not CallMode.PER_ROW or (merges and "merge" in user.missing_methods):
        return aggregate
    return replace(aggregate, detail="folded")
