"""Turns aggregations by a window's columns into window aggregations, which do not copy rows into each window.

The window function below the aggregation is removed if nothing between them reads the window's columns. Otherwise (a
filter on window_start, a window over a window's result) the rows remain in their windows, and the aggregation uses
their existing window columns (`attached`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.expressions.row_expressions import Column, RowExpression, columns_of
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import moved, rewritten
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Field,
    Filter,
    Project,
    Relation,
    Schema,
    SetOperation,
    Sink,
    TimeKind,
    WindowAggregate,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.session import PlannerSession
from millstream.planner.traits.windows import WindowColumns, window_columns

__all__ = ["in_windows", "recognise_windows"]


def recognise_windows(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Turns aggregations by window columns into window aggregations."""
    return rewritten(sinks, in_windows)


def in_windows(relation: Relation) -> Relation:
    """The window aggregation for an aggregation by window columns; other relations are unchanged."""
    if not isinstance(relation, Aggregate):
        return relation
    inside = window_columns(relation.input)
    if inside is None or not inside.are_all_in(relation.groups):
        return relation
    return _in_windows(relation, inside)


@dataclass(frozen=True)
class _Unwindowed:
    """A relation without its window's columns: the positions of the others, and the time column."""

    relation: Relation
    places: dict[int, int]
    time: int


def _in_windows(relation: Aggregate, inside: WindowColumns) -> Relation:
    plain = [group for group in relation.groups if group not in inside.all]
    if inside.shape.kind is WindowKind.SESSION:
        keys = {_origin(relation.input, group) for group in plain}
        used = {argument for call in relation.calls for argument in _columns(call)}
        is_plain = keys == set(inside.shape.partition) and not used & inside.all
        if not is_plain or _is_filtered(relation.input) or _unwindowed(relation.input) is None:
            return _over_session_rows(relation, inside)
        inside = replace(inside, shape=replace(inside.shape, partition=()))
    used = {argument for call in relation.calls for argument in _columns(call)}
    bare = None if used & inside.all else _unwindowed(relation.input)
    if bare is not None:
        shape = replace(inside.shape, time=bare.time)
        groups = tuple(bare.places[group] for group in plain)
        calls = tuple(_moved(call, bare.places) for call in relation.calls)
        below = bare.relation
    else:
        shape = _attached(inside)
        groups, calls, below = tuple(plain), relation.calls, relation.input
    return _with_properties(relation, inside, below, shape, groups, calls, plain)


def _over_session_rows(relation: Aggregate, inside: WindowColumns) -> Relation:
    """Groups rows already in sessions by start, end and other columns. All rows with the same end arrive together once
    it has passed, timestamped with the session's last millisecond: a window of that millisecond contains them."""
    if inside.shape.time_kind is not TimeKind.ROWTIME:
        what, instead = "an aggregation of sessions of processing time by other columns than their PARTITION BY", ""
        if _is_filtered(relation.input):
            what, instead = "WHERE over sessions of processing time", "write FILTER (WHERE …) after each aggregate"
        raise not_yet(what, getattr(relation.site, "span", None), instead)
    time = min(inside.times) if inside.times else min(inside.ends)
    shape = WindowShape(WindowKind.TUMBLE, time, 1, attached=(min(inside.starts), min(inside.ends)))
    return WindowAggregate(
        relation.schema, relation.input, shape, relation.groups, relation.calls, (), site=relation.site
    )


def _is_filtered(relation: Relation) -> bool:
    """Whether rows are filtered above the window function. Filtering below it could split a session."""
    while not isinstance(relation, WindowAssign) and len(relation.inputs) == 1:
        if isinstance(relation, Filter):
            return True
        relation = relation.inputs[0]
    return False


def _attached(inside: WindowColumns) -> WindowShape:
    time = min(inside.times) if inside.times else min(inside.ends)
    return replace(inside.shape, time=time, attached=(min(inside.starts), min(inside.ends)))


def _with_properties(
    relation: Aggregate,
    inside: WindowColumns,
    below: Relation,
    shape: WindowShape,
    groups: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    plain: list[int],
) -> Relation:
    """The window aggregation, with the columns above it in their previous order."""
    first = len(groups) + len(calls)
    properties: list[WindowProperty] = []
    fields: list[Field] = []
    order: list[int] = []
    for position, group in enumerate(relation.groups):
        if group in plain:
            order.append(plain.index(group))
            continue
        wanted = _property(group, inside)
        if wanted not in properties:
            properties.append(wanted)
            fields.append(relation.schema.fields[position])
        order.append(first + properties.index(wanted))
    order += range(len(groups), first)
    keys = [relation.schema.fields[relation.groups.index(group)] for group in plain]
    results = relation.schema.fields[len(relation.groups) :]
    schema = Schema((*keys, *results, *fields))
    made = WindowAggregate(schema, below, shape, groups, calls, tuple(properties))
    return Project(relation.schema, made, tuple(Column(schema.types[column], column) for column in order))


def _origin(relation: Relation, column: int) -> int | None:
    """The column of the window function's input that a column above it passes on; None for any other."""
    while not isinstance(relation, WindowAssign):
        if isinstance(relation, Project):
            expression = relation.expressions[column]
            if not isinstance(expression, Column):
                return None
            column = expression.index
        if len(relation.inputs) != 1:
            return None
        relation = relation.inputs[0]
    return column


def _property(column: int, inside: WindowColumns) -> WindowProperty:
    if column in inside.starts:
        return WindowProperty.START
    return WindowProperty.END if column in inside.ends else WindowProperty.TIME


def _columns(call: AggregateCall) -> set[int]:
    return {*call.arguments, *(key.column for key in call.order), *(() if call.filter is None else (call.filter,))}


def _moved(call: AggregateCall, places: dict[int, int]) -> AggregateCall:
    return replace(
        call,
        arguments=tuple(places[argument] for argument in call.arguments),
        filter=None if call.filter is None else places[call.filter],
        order=tuple(replace(key, column=places[key.column]) for key in call.order),
    )


def _unwindowed(relation: Relation) -> _Unwindowed | None:
    """The relation without its window function; None if a relation in between reads the window's columns."""
    if isinstance(relation, WindowAssign):
        width = len(relation.input.schema)
        return _Unwindowed(relation.input, {index: index for index in range(width)}, relation.window.time)
    if isinstance(relation, SetOperation) and window_columns(relation) is not None:
        return _unwindowed_union(relation)
    inside = window_columns(relation.inputs[0]) if relation.inputs else None
    if inside is None or not isinstance(relation, Project | Filter):
        return None
    if isinstance(relation, Filter):
        if columns_of(relation.condition) & inside.all:
            return None
        bare = _unwindowed(relation.input)
        if bare is None:
            return None
        made = Filter(bare.relation.schema, bare.relation, moved(relation.condition, bare.places))
        return replace(bare, relation=made)
    return _unwindowed_project(relation, inside)


def _unwindowed_union(relation: SetOperation) -> _Unwindowed | None:
    """Removes the window function from every branch, if columns and time are at the same positions, as with GROUPING
    SETS."""
    branches = [_unwindowed(each) for each in relation.branches]
    first = branches[0]
    if first is None:
        return None
    schemas = []
    for branch in branches:
        if branch is None or branch.places != first.places or branch.time != first.time:
            return None
        schemas.append(branch.relation.schema)
    if any(schema.types != schemas[0].types for schema in schemas):
        return None
    made = replace(relation, schema=schemas[0], branches=tuple(each.relation for each in branches if each is not None))
    return replace(first, relation=made)


def _unwindowed_project(relation: Project, inside: WindowColumns) -> _Unwindowed | None:
    passed = [
        position
        for position, expression in enumerate(relation.expressions)
        if not (isinstance(expression, Column) and expression.index in inside.all)
    ]
    if any(columns_of(relation.expressions[position]) & inside.all for position in passed):
        return None
    bare = _unwindowed(relation.input)
    if bare is None:
        return None
    below = bare.relation.schema
    expressions: list[RowExpression] = [moved(relation.expressions[position], bare.places) for position in passed]
    fields = [
        _field(relation.schema.fields[position], each, below)
        for position, each in zip(passed, expressions, strict=True)
    ]
    places = {position: index for index, position in enumerate(passed)}
    time = Column(below.types[bare.time], bare.time)
    if time not in expressions:
        expressions.append(time)
        fields.append(below.fields[bare.time])
    made = Project(Schema(tuple(fields)), bare.relation, tuple(expressions))
    return _Unwindowed(made, places, expressions.index(time))


def _field(field: Field, expression: RowExpression, below: Schema) -> Field:
    """Below the window function a time column is still a time attribute."""
    time = below.fields[expression.index].time if isinstance(expression, Column) else field.time
    return replace(field, time=time)
