"""Prunes unused columns: collects top down which columns each relation's consumers read, and rebuilds the plan with
only those, down to the columns of scans.

All columns of a sink are used. The rowtime column may be pruned: batches carry timestamps separately.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import Column, columns_of
from millstream.planner.changing_relations import LookupJoin, LookupKey, Normalise
from millstream.planner.passes.rewriting import is_plain, moved, relations_of
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Correlate,
    Filter,
    Join,
    Limit,
    Over,
    OverCall,
    Project,
    Rank,
    Relation,
    Scan,
    Schema,
    SetOperation,
    Sink,
    Unnest,
    Values,
    WatermarkAssign,
    WindowAggregate,
    WindowAssign,
    WindowShape,
)
from millstream.planner.session import PlannerSession

__all__ = ["prune_columns"]

Wanted = frozenset[int]
Places = dict[int, int]
"""Maps a column of the old relation to its position in the new one."""


def prune_columns(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Prunes unused columns."""
    wanted: dict[int, set[int]] = {}
    for relation in reversed(list(relations_of(sinks))):
        own = frozenset(wanted.setdefault(id(relation), set()))
        if not own and not isinstance(relation, Sink) and len(relation.schema):
            # A batch needs a column to have a row count: retain at least one, the cheapest.
            own = frozenset({_cheapest(relation)})
            wanted[id(relation)] |= own
        for each, columns in zip(relation.inputs, _needs(relation, own), strict=True):
            wanted.setdefault(id(each), set()).update(columns)
    done: dict[int, tuple[Relation, Places]] = {}
    for relation in relations_of(sinks):
        inputs = [done[id(each)] for each in relation.inputs]
        done[id(relation)] = _rebuilt(relation, frozenset(wanted.get(id(relation), ())), inputs)
    results = tuple(done[id(sink)][0] for sink in sinks)
    assert all(isinstance(result, Sink) for result in results)
    return results  # type: ignore[return-value]


def _cheapest(relation: Relation) -> int:
    """A cheap column: a group, a constant, or one of few bytes."""
    if isinstance(relation, Project):
        plain = [index for index, each in enumerate(relation.expressions) if is_plain(each)]
        return min(plain, key=lambda index: _width(relation, index), default=0)
    return min(range(len(relation.schema)), key=lambda index: _width(relation, index))


def _width(relation: Relation, column: int) -> int:
    try:
        return int(relation.schema.types[column].arrow.bit_width)
    except ValueError:
        return 10_000


def _all(relation: Relation) -> Wanted:
    return frozenset(range(len(relation.schema)))


def _needs(relation: Relation, wanted: Wanted) -> list[Wanted]:
    """The columns of each input that a relation needs to compute its wanted columns."""
    if isinstance(relation, Project):
        return [columns_of(*(relation.expressions[column] for column in wanted))]
    if isinstance(relation, Filter):
        return [wanted | columns_of(relation.condition)]
    if isinstance(relation, Limit):
        return [wanted]
    if isinstance(relation, WatermarkAssign):
        return [wanted | columns_of(relation.watermark) | {relation.column}]
    if isinstance(relation, Unnest | Correlate):
        width = len(relation.input.schema)
        own = columns_of(relation.collection) if isinstance(relation, Unnest) else columns_of(*relation.arguments)
        if relation.condition is not None:
            own |= frozenset(column for column in columns_of(relation.condition) if column < width)
        return [frozenset(column for column in wanted if column < width) | own]
    if isinstance(relation, WindowAssign):
        width = len(relation.input.schema)
        return [frozenset(column for column in wanted if column < width) | _of_window(relation.window)]
    if isinstance(relation, Aggregate | WindowAggregate):
        return [_of_groups(relation, wanted)]
    if isinstance(relation, Normalise):
        return [wanted | set(relation.keys)]
    if isinstance(relation, LookupJoin):
        return [_of_lookup(relation, wanted)]
    if isinstance(relation, Rank):
        width = len(relation.input.schema)
        keys = {*relation.partition, *(key.column for key in relation.order)}
        return [frozenset(column for column in wanted if column < width) | keys]
    if isinstance(relation, Over):
        return [_of_over(relation, wanted)]
    if isinstance(relation, Join):
        width = len(relation.left.schema)
        used = wanted | (columns_of(relation.condition) if relation.condition is not None else frozenset())
        rights = frozenset(column - width for column in used if column >= width)
        return [frozenset(column for column in used if column < width), rights]
    if isinstance(relation, SetOperation) and relation.all:
        return [wanted for _ in relation.branches]
    return [_all(each) for each in relation.inputs]


def _of_window(window: WindowShape) -> frozenset[int]:
    """The columns that a window uses: the time, and the partition of sessions."""
    return frozenset({window.time, *window.partition})


def _of_lookup(relation: LookupJoin, wanted: Wanted) -> Wanted:
    used = wanted | columns_of(*(key.value for key in relation.keys))
    used |= frozenset() if relation.condition is None else columns_of(relation.condition)
    return frozenset(column for column in used if column < len(relation.input.schema))


def _of_groups(relation: Aggregate | WindowAggregate, wanted: Wanted) -> Wanted:
    """The groups, and the arguments of the wanted calls."""
    needed = set(relation.groups)
    for call in _wanted_calls(relation, wanted):
        needed |= set(call.arguments) | {key.column for key in call.order}
        needed |= set() if call.filter is None else {call.filter}
    if isinstance(relation, WindowAggregate):
        needed |= {relation.window.time} | set(relation.window.attached or ())
    return frozenset(needed)


def _of_over(relation: Over, wanted: Wanted) -> Wanted:
    """The wanted input columns, the window's columns, and the arguments of the wanted calls."""
    width = len(relation.input.schema)
    needed = {column for column in wanted if column < width}
    needed |= {*relation.partition, *(key.column for key in relation.order)}
    for _, call in _wanted_overs(relation, wanted):
        needed |= {*call.call.arguments} | (set() if call.call.filter is None else {call.call.filter})
    return frozenset(needed)


def _wanted_overs(relation: Over, wanted: Wanted) -> list[tuple[int, OverCall]]:
    """The wanted calls, with their columns; at least one."""
    calls = list(enumerate(relation.calls, len(relation.input.schema)))
    return [each for each in calls if each[0] in wanted] or calls[:1]


def _wanted_calls(relation: Aggregate | WindowAggregate, wanted: Wanted) -> list[AggregateCall]:
    first = len(relation.groups)
    return [call for index, call in enumerate(relation.calls) if first + index in wanted]


# --- the new plan -----------------------------------------------------------------------------------------------------


def _rebuilt(relation: Relation, wanted: Wanted, inputs: list[tuple[Relation, Places]]) -> tuple[Relation, Places]:
    """The relation with at least the wanted columns, and their positions."""
    if isinstance(relation, Sink):
        return _sink(relation, *inputs[0]), {}
    if isinstance(relation, Scan):
        return _scan(relation, wanted)
    if isinstance(relation, Values):
        return _values(relation, wanted)
    if isinstance(relation, SetOperation) and relation.all:
        return _union(relation, wanted, inputs)
    if isinstance(relation, Aggregate | WindowAggregate):
        return _aggregate(relation, wanted, *inputs[0])
    if isinstance(relation, Join):
        return _join(relation, inputs)
    if isinstance(relation, Rank):
        return _rank(relation, wanted, *inputs[0])
    if isinstance(relation, Over):
        return _over(relation, wanted, *inputs[0])
    if isinstance(relation, LookupJoin):
        return _lookup(relation, wanted, *inputs[0])
    if len(inputs) == 1 and type(relation) in (
        Project,
        Filter,
        Limit,
        WatermarkAssign,
        Unnest,
        Correlate,
        WindowAssign,
        Normalise,
    ):
        return _of_one(relation, wanted, *inputs[0])
    renewed = [_exactly(new_input, places) for new_input, places in inputs]
    return relation.with_inputs(*renewed), {index: index for index in range(len(relation.schema))}


def _exactly(relation: Relation, places: Places) -> Relation:
    """All columns in their previous order, which relations with several inputs and unknown relations require."""
    order = [places[index] for index in sorted(places)]
    if order == list(range(len(relation.schema))):
        return relation
    return _picked(relation, order)


def _picked(relation: Relation, columns: list[int]) -> Project:
    fields = tuple(relation.schema.fields[column] for column in columns)
    return Project(Schema(fields), relation, tuple(Column(relation.schema.types[c], c) for c in columns))


def _sink(sink: Sink, below: Relation, places: Places) -> Sink:
    return replace(sink, input=_exactly(below, places))


def _schema_of(relation: Relation, columns: list[int]) -> Schema:
    return Schema(tuple(relation.schema.fields[column] for column in columns))


def _at(columns: list[int]) -> Places:
    return {old: new for new, old in enumerate(columns)}


def _scan(scan: Scan, wanted: Wanted) -> tuple[Relation, Places]:
    columns = sorted(wanted)
    if len(columns) == len(scan.schema):
        return scan, _at(columns)
    before = scan.columns if scan.columns is not None else tuple(range(len(scan.schema)))
    return replace(scan, schema=_schema_of(scan, columns), columns=tuple(before[c] for c in columns)), _at(columns)


def _values(values: Values, wanted: Wanted) -> tuple[Relation, Places]:
    columns = sorted(wanted)
    rows = tuple(tuple(row[column] for column in columns) for row in values.rows)
    return replace(values, schema=_schema_of(values, columns), rows=rows), _at(columns)


def _union(union: SetOperation, wanted: Wanted, inputs: list[tuple[Relation, Places]]) -> tuple[Relation, Places]:
    columns = sorted(wanted)
    branches = []
    for below, places in inputs:
        order = [places[column] for column in columns]
        is_whole = order == list(range(len(below.schema)))
        branches.append(below if is_whole else _picked(below, order))
    return replace(union, schema=_schema_of(union, columns), branches=tuple(branches)), _at(columns)


def _aggregate(
    relation: Aggregate | WindowAggregate, wanted: Wanted, below: Relation, places: Places
) -> tuple[Relation, Places]:
    groups, first = len(relation.groups), len(relation.groups) + len(relation.calls)
    calls = [index for index in range(groups, first) if index in wanted]
    rest = [index for index in range(first, len(relation.schema)) if index in wanted]
    columns = [*range(groups), *calls, *rest]
    made = replace(
        relation,
        schema=_schema_of(relation, columns),
        input=below,
        groups=tuple(places[group] for group in relation.groups),
        calls=tuple(_moved_call(relation.calls[index - groups], places) for index in calls),
    )
    if isinstance(made, WindowAggregate) and isinstance(relation, WindowAggregate):
        window = relation.window
        attached = None if window.attached is None else (places[window.attached[0]], places[window.attached[1]])
        shape = replace(window, time=places[window.time], attached=attached)
        made = replace(made, window=shape, properties=tuple(relation.properties[index - first] for index in rest))
    return made, _at(columns)


def _rank(rank: Rank, wanted: Wanted, below: Relation, places: Places) -> tuple[Relation, Places]:
    """Drops an unused row number, so that a row whose rank changes is not emitted again."""
    width = len(rank.input.schema)
    has_number = rank.has_number and width in wanted
    columns = [*sorted(places, key=places.__getitem__), *([width] if has_number else [])]
    made = replace(
        rank,
        schema=_schema_of(rank, columns),
        input=below,
        partition=tuple(places[column] for column in rank.partition),
        order=tuple(replace(key, column=places[key.column]) for key in rank.order),
        has_number=has_number,
    )
    return made, _at(columns)


def _over(over: Over, wanted: Wanted, below: Relation, places: Places) -> tuple[Relation, Places]:
    overs = _wanted_overs(over, wanted)
    columns = [*sorted(places, key=places.__getitem__), *(column for column, _ in overs)]
    made = replace(
        over,
        schema=_schema_of(over, columns),
        input=below,
        partition=tuple(places[column] for column in over.partition),
        order=tuple(replace(key, column=places[key.column]) for key in over.order),
        calls=tuple(replace(call, call=_moved_call(call.call, places)) for _, call in overs),
    )
    return made, _at(columns)


def _lookup(lookup: LookupJoin, wanted: Wanted, below: Relation, places: Places) -> tuple[Relation, Places]:
    """Narrows a lookup join to the wanted columns of the lookup table, and its key."""
    width = len(lookup.input.schema)
    used = wanted | (columns_of(lookup.condition) if lookup.condition is not None else frozenset())
    keys = {key.column for key in lookup.keys}
    retained = [at for at in range(len(lookup.columns)) if at in keys or width + at in used]
    left = sorted(places, key=places.__getitem__)
    now = {old: new for new, old in enumerate(retained)}
    moves = dict(places) | {width + old: len(left) + new for old, new in now.items()}
    made = replace(
        lookup,
        schema=_schema_of(lookup, [*left, *(width + at for at in retained)]),
        input=below,
        columns=tuple(lookup.columns[at] for at in retained),
        keys=tuple(LookupKey(moved(key.value, places), now[key.column]) for key in lookup.keys),
        condition=None if lookup.condition is None else moved(lookup.condition, moves),
    )
    return made, moves


def _join(join: Join, inputs: list[tuple[Relation, Places]]) -> tuple[Relation, Places]:
    (left, left_places), (right, right_places) = inputs
    before, now = len(join.left.schema), len(left.schema)
    places = left_places | {before + old: now + new for old, new in right_places.items()}
    by_place = {new: old for old, new in places.items()}
    condition = None if join.condition is None else moved(join.condition, places)
    has_both_sides = len(join.schema) > before or not len(join.right.schema)
    columns = [by_place[new] for new in sorted(by_place) if has_both_sides or new < now]
    made = replace(join, schema=_schema_of(join, columns), left=left, right=right, condition=condition)
    return made, _at(columns)


def _moved_call(call: AggregateCall, places: Places) -> AggregateCall:
    return replace(
        call,
        arguments=tuple(places[argument] for argument in call.arguments),
        filter=None if call.filter is None else places[call.filter],
        order=tuple(replace(key, column=places[key.column]) for key in call.order),
    )


def _of_one(relation: Relation, wanted: Wanted, below: Relation, places: Places) -> tuple[Relation, Places]:
    """Rebuilds a relation with one input; its expressions are moved to the new column positions."""
    if isinstance(relation, Project):
        columns = sorted(wanted)
        expressions = tuple(moved(relation.expressions[column], places) for column in columns)
        return Project(_schema_of(relation, columns), below, expressions, site=relation.site), _at(columns)
    width = len(relation.inputs[0].schema)
    retained = sorted(places, key=places.__getitem__)
    added = list(range(width, len(relation.schema)))
    schema = _schema_of(relation, retained + added)
    result = dict(places) | {old: len(retained) + index for index, old in enumerate(added)}
    if isinstance(relation, Filter):
        return replace(relation, schema=schema, input=below, condition=moved(relation.condition, places)), result
    if isinstance(relation, WatermarkAssign):
        watermark, column = moved(relation.watermark, places), places[relation.column]
        return replace(relation, schema=schema, input=below, watermark=watermark, column=column), result
    if isinstance(relation, Normalise):
        keys = tuple(places[at] for at in relation.keys)
        return replace(relation, schema=schema, input=below, keys=keys), result
    if isinstance(relation, Unnest | Correlate):
        condition = None if relation.condition is None else moved(relation.condition, result)
        if isinstance(relation, Unnest):
            collection = moved(relation.collection, places)
            return replace(relation, schema=schema, input=below, collection=collection, condition=condition), result
        arguments = tuple(moved(argument, places) for argument in relation.arguments)
        return replace(relation, schema=schema, input=below, arguments=arguments, condition=condition), result
    if isinstance(relation, WindowAssign):
        partition = tuple(places[column] for column in relation.window.partition)
        window = replace(relation.window, time=places[relation.window.time], partition=partition)
        return replace(relation, schema=schema, input=below, window=window), result
    assert isinstance(relation, Limit)
    return replace(relation, schema=schema, input=below), result
