"""Rewrites UNION, INTERSECT, EXCEPT and GROUPING SETS to aggregations over a UNION ALL.

UNION            the groups of all branches
INTERSECT        counts rows by branch: those in both
EXCEPT           those in the first branch and not in the second
… ALL            each row as often as remains
GROUPING SETS    every row once per set, with NULL for columns outside the set, and the set's number
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import BigIntType, BooleanType
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import (
    GROUPING_FUNCTIONS,
    Aggregate,
    AggregateCall,
    Correlate,
    Field,
    Filter,
    Project,
    Relation,
    Schema,
    SetOperation,
    Sink,
    WindowAggregate,
)
from millstream.planner.session import PlannerSession

__all__ = ["REPEAT_ROWS", "rewrite_sets"]

_NUMBER = BigIntType(False)
_TRUTH = BooleanType(False)


def rewrite_sets(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Rewrites all set operations except UNION ALL, and all grouping sets."""
    return rewritten(sinks, _rewritten)


def _rewritten(relation: Relation) -> Relation:
    if isinstance(relation, Aggregate | WindowAggregate) and relation.sets is not None:
        return _of_sets(relation, relation.sets)
    if not isinstance(relation, SetOperation) or (relation.kind == "UNION" and relation.all):
        return relation
    if relation.kind == "UNION":
        rows = replace(relation, all=True)
        return Aggregate(relation.schema, rows, tuple(range(len(relation.schema))), (), site=relation.site)
    return _counted(relation)


# --- INTERSECT and EXCEPT ---------------------------------------------------------------------------------------------


def _counted(relation: SetOperation) -> Relation:
    """Counts rows by branch and retains those of the result."""
    width, columns = len(relation.schema), relation.schema.columns
    fields = relation.schema.fields
    marks = (Field("in_left", _NUMBER), Field("in_right", _NUMBER))
    branches = tuple(
        Project(Schema((*fields, *marks)), branch, (*branch.schema.columns, _whole(1 - at), _whole(at)))
        for at, branch in enumerate(relation.branches)
    )
    united = SetOperation(Schema((*fields, *marks)), branches, "UNION", True)
    calls = tuple(AggregateCall("SUM", (width + at,), _NUMBER, name) for at, name in enumerate(("in_left", "in_right")))
    counted = Aggregate(united.schema, united, tuple(range(width)), calls, site=relation.site)
    left, right = (Column(_NUMBER, width + at) for at in (0, 1))
    if relation.all:
        return _repeated(relation, counted, left, right)
    is_there = _is(">", left, _whole(0))
    other = _is(">" if relation.kind == "INTERSECT" else "=", right, _whole(0))
    filtered = Filter(counted.schema, counted, Call(_TRUTH, "AND", (is_there, other)))
    return Project(relation.schema, filtered, columns)


def _repeated(relation: SetOperation, counted: Relation, left: RowExpression, right: RowExpression) -> Relation:
    """Repeats every row by its remaining count."""
    if relation.kind == "INTERSECT":
        times: RowExpression = Call(_NUMBER, "CASE", (_is("<", left, right), left, right))
    else:
        times = Call(_NUMBER, "-", (left, right))
    schema = Schema((*counted.schema.fields, Field("repeated", _NUMBER)))
    rows = Correlate(schema, counted, REPEAT_ROWS, (times,))
    return Project(relation.schema, rows, relation.schema.columns)


def _numbers(count: int) -> Iterator[int]:
    """A row for each number below the count."""
    yield from range(count)


REPEAT_ROWS = UserFunction("$REPEAT_ROWS", _numbers, (_NUMBER,), kind=UserFunctionKind.TABLE)
"""Emits as many rows as its argument."""


def _whole(number: int) -> Literal:
    return Literal(_NUMBER, number)


def _is(operator: str, left: RowExpression, right: RowExpression) -> Call:
    return Call(_TRUTH, operator, (left, right))


# --- GROUPING SETS ----------------------------------------------------------------------------------------------------


def _of_sets(relation: Aggregate | WindowAggregate, sets: tuple[tuple[int, ...], ...]) -> Relation:
    below, groups = relation.input, relation.groups
    whole = {at for at in range(len(groups)) if all(at in positions for positions in sets)}
    types: list[DataType] = [
        below.schema.types[group] if at in whole else below.schema.types[group].nullable()
        for at, group in enumerate(groups)
    ]
    # Groups are prepended to the input's own columns, which keep their values for the aggregates.
    # A group that is in every set is passed on unchanged, so windows and time attributes remain known above.
    keys = tuple(
        Field(f"$g{at}", type_, below.schema.fields[groups[at]].time if at in whole else None)
        for at, type_ in enumerate(types)
    )
    schema = Schema((*keys, Field("$set", _NUMBER), *below.schema.fields))
    branches = []
    for number, positions in enumerate(sets):
        group_values = [
            _nullable(Column(below.schema.types[group], group), types[at])
            if at in positions
            else Literal(types[at], None)
            for at, group in enumerate(groups)
        ]
        branches.append(Project(schema, below, (*group_values, _whole(number), *below.schema.columns)))
    rows: Relation = branches[0] if len(branches) == 1 else SetOperation(schema, tuple(branches), "UNION", True)
    first = len(groups) + 1
    calls = tuple(
        replace(
            call,
            arguments=tuple(first + each for each in call.arguments),
            filter=None if call.filter is None else first + call.filter,
            order=tuple(replace(key, column=first + key.column) for key in call.order),
        )
        for call in relation.calls
        if call.function not in GROUPING_FUNCTIONS
    )
    aggregated = _aggregated(relation, rows, first, calls)
    columns = aggregated.schema.columns
    results = iter(columns[first:])
    chosen = [
        _by_set([_grouping_value(call, set_, sets[:number]) for number, set_ in enumerate(sets)], columns[first - 1])
        if call.function in GROUPING_FUNCTIONS
        else next(results)
        for call in relation.calls
    ]
    return Project(relation.schema, aggregated, (*columns[: len(groups)], *chosen, *results))


def _aggregated(
    relation: Aggregate | WindowAggregate, rows: Relation, first: int, calls: tuple[AggregateCall, ...]
) -> Aggregate | WindowAggregate:
    """Aggregates the rows of all sets by the first columns."""
    fields = (*rows.schema.fields[:first], *(Field(call.name, call.type) for call in calls))
    groups = tuple(range(first))
    if isinstance(relation, Aggregate):
        return Aggregate(Schema(fields), rows, groups, calls, hints=relation.hints, site=relation.site)
    window = replace(relation.window, time=first + relation.window.time)
    properties = relation.schema.fields[len(relation.groups) + len(relation.calls) :]
    schema = Schema((*fields, *properties))
    return WindowAggregate(schema, rows, window, groups, calls, relation.properties, site=relation.site)


def _grouping_value(call: AggregateCall, set_: tuple[int, ...], before: tuple[tuple[int, ...], ...]) -> int:
    """The value of GROUPING or GROUPING_ID in the rows of a set: one bit per group outside the set, the last group in
    the lowest bit. For GROUP_ID, the number of earlier equal sets.

    >>> _grouping_value(AggregateCall("GROUPING", (0, 1), _NUMBER, ""), (1,), ())
    2
    """
    if call.function == "GROUP_ID":
        return before.count(set_)
    return sum((group not in set_) << bit for bit, group in enumerate(reversed(call.arguments)))


def _by_set(values: list[int], number: RowExpression) -> RowExpression:
    """The value for a set's number."""
    if len(set(values)) == 1:
        return _whole(values[0])
    parts: list[RowExpression] = []
    for at, value in enumerate(values[:-1]):
        parts += [_is("=", number, _whole(at)), _whole(value)]
    return Call(_NUMBER, "CASE", (*parts, _whole(values[-1])))


def _nullable(column: Column, type_: DataType) -> RowExpression:
    return column if column.type == type_ else Call(type_, "CAST", (column,))
