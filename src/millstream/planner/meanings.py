"""The meaning of each operator's state: a `Meaning` is stored with the state and compared at every start.

A column's meaning is its computation, expanded down to tables; the meaning of rows is their origin and the conditions
that they satisfy. One rule per relation describes its columns and rows, another per stateful relation its state.
Operators that store whole rows store them by column name, so their meaning includes the names.

The state's lifetime (`STATE_TTL`) is excluded, because it may change. User code is identified only by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.checkpoint.meanings import LAST_ROWS, Meaning
from millstream.expressions.row_expressions import RowExpression
from millstream.expressions.types import LocalZonedTimestampType
from millstream.planner.changing_relations import FromChangelog, LookupJoin, Normalise, ToChangelog
from millstream.planner.entries import TableEntry
from millstream.planner.meaning_text import (
    added_columns,
    bounded,
    expression_meaning,
    listed,
    named,
    parts_of,
    scaled,
    typed,
    with_conditions,
)
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Correlate,
    Filter,
    Join,
    JoinKind,
    Limit,
    Over,
    OverCall,
    Project,
    Rank,
    Relation,
    Scan,
    SetOperation,
    Sink,
    SortKey,
    TimeKind,
    Unnest,
    Values,
    WatermarkAssign,
    WindowAggregate,
    WindowAssign,
    WindowShape,
)
from millstream.planner.row_names import named_row
from millstream.planner.session import PlannerSession
from millstream.planner.source_meanings import copied_columns
from millstream.planner.time_joins import IntervalJoin, Stamp, TemporalJoin, WindowJoin
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.window_ranks import WindowRank

__all__ = ["PlanMeanings"]

_JOINS = (Join, IntervalJoin, WindowJoin, TemporalJoin)
_RANKS = (Rank, WindowRank)
_ADDED_WORDS = dict.fromkeys(_RANKS, "rank") | {WindowAssign: "window", Unnest: "element", Correlate: "result"}
_LEFT_ONLY = (JoinKind.SEMI, JoinKind.ANTI)


class PlanMeanings:
    """The meanings of one plan. Results are cached per relation, because several relations may read the same one."""

    def __init__(self, session: PlannerSession) -> None:
        self._zone, self._is_batch = session.zone, session.is_batch
        # The cache also references the relation: the id of a collected object may be reused.
        self._columns: dict[int, tuple[Relation, tuple[str, ...]]] = {}
        self._rows: dict[int, tuple[Relation, str]] = {}

    def of(self, relation: Relation) -> Meaning | None:
        """The meaning of a relation's state; None if it stores nothing, or only source positions."""
        rule = _STATE_RULES.get(type(relation))
        return None if rule is None else rule(self, relation)

    def of_sink_by_key(self, sink: Sink | ToChangelog, key: Sequence[str], names: Sequence[str]) -> Meaning:
        """The meaning of the rows stored upstream of a keyed sink if several rows may share a key."""
        target = sink.target if isinstance(sink, Sink) else None
        own = [each.name for each in target.written] if isinstance(target, TableEntry) else list(names)
        columns = dict(zip(own, self.columns(sink.input), strict=True))
        types = dict(zip(own, sink.input.schema.types, strict=True))
        stored = tuple(typed(columns[name], types[name]) for name in names)
        return Meaning(
            "rows of a sink", self.rows(sink.input), stored, tuple(key), tuple(names), takes_back=self.takes_back(sink)
        )

    def columns(self, relation: Relation) -> tuple[str, ...]:
        """The meaning of each column."""
        if id(relation) not in self._columns:
            columns = tuple(_columns(self, relation))
            assert len(columns) == len(relation.schema), f"{type(relation).__name__} has columns without a meaning"
            self._columns[id(relation)] = (relation, columns)
        return self._columns[id(relation)][1]

    def rows(self, relation: Relation) -> str:
        """The meaning of the rows. Their conditions may refer to their own columns."""
        if id(relation) not in self._rows:
            self._rows[id(relation)] = (relation, _rows(self, relation))
        return self._rows[id(relation)][1]

    # --- strings for parts of relations -------------------------------------------------------------------------------

    def text(self, expression: RowExpression, columns: Sequence[str]) -> str:
        """The meaning of an expression over these columns."""
        return expression_meaning(expression, columns, self._zone)

    def conditions(self, condition: RowExpression | None, columns: Sequence[str]) -> list[str]:
        """The meanings of a condition's conjuncts."""
        return [] if condition is None else [self.text(part, columns) for part in parts_of(condition, "AND")]

    def call(self, call: AggregateCall, input_: Relation) -> str:
        """The meaning of an aggregate."""
        columns, types = self.columns(input_), input_.schema.types
        name = call.function or getattr(call.user, "name", "function")
        inside = ", ".join(scaled(columns[at], types[at]) for at in call.arguments) or "*"
        order = f" ORDER BY {self.order(call.order, columns)}" if call.order else ""
        options = "".join(f" {key}={value}" for key, value in call.options)
        filtered = f" FILTER {columns[call.filter]}" if call.filter is not None else ""
        return typed(
            bounded(f"{name}({'DISTINCT ' if call.distinct else ''}{inside}{order}{options}){filtered}"), call.type
        )

    def over_call(self, over: OverCall, input_: Relation) -> str:
        """The meaning of an OVER call."""
        return bounded(f"{self.call(over.call, input_)} {over.frame} {over.preceding} to {over.following}")

    def order(self, keys: Sequence[SortKey], columns: Sequence[str]) -> str:
        """The meaning of a sort order."""
        words = [
            f"{columns[key.column]}{' DESC' if key.descending else ''}{' NULLS FIRST' if key.nulls_first else ''}"
            for key in keys
        ]
        return listed(words)

    def window(self, window: WindowShape, input_: Relation) -> str:
        """The meaning of a window. An attached window is described by the relation that assigned it."""
        if window.attached is not None:
            return "their windows"
        lengths = [f"{each} ms" for each in (window.size_ms, window.slide_ms) if each is not None]
        lengths += [f"offset {window.offset_ms} ms"] if window.offset_ms else []
        is_local = window.time_kind is TimeKind.PROCTIME or isinstance(
            input_.schema.types[window.time], LocalZonedTimestampType
        )
        zone = f"@{self._zone}" if is_local else ""
        time = "the clock" if window.time_kind is TimeKind.PROCTIME else self.columns(input_)[window.time]
        return bounded(f"{window.kind.value} of {', '.join(lengths)} by {time}{zone}")

    def sides(self, join: Join) -> tuple[str, ...]:
        """The columns of both inputs of a join, marked by side."""
        left = tuple(bounded(f"left({text})") for text in self.columns(join.left))
        return (*left, *(bounded(f"right({text})") for text in self.columns(join.right)))

    def takes_back(self, relation: Relation) -> bool:
        """Whether an input retracts or deletes rows."""
        return any(changes_of(each, is_batch=self._is_batch) != GROWS for each in relation.inputs)

    def stored_rows(self, relation: Relation, prefix: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names and the meanings of stored rows' columns."""
        names = named_row(relation.schema.names, relation.schema.types).names
        stored = zip(self.columns(relation), relation.schema.types, strict=True)
        return tuple(prefix + name for name in names), tuple(typed(text, type_) for text, type_ in stored)


# --- columns ----------------------------------------------------------------------------------------------------------


def _columns(plan: PlanMeanings, relation: Relation) -> Sequence[str]:
    if isinstance(relation, Scan):
        read = relation.table.read if isinstance(relation.table, TableEntry) else relation.schema.fields
        places = relation.columns if relation.columns is not None else range(len(relation.schema))
        return [named(read[place].name, getattr(read[place], "metadata", None)) for place in places]
    if isinstance(relation, Project):
        below = plan.columns(relation.input)
        return [plan.text(each, below) for each in relation.expressions]
    if isinstance(relation, Aggregate | WindowAggregate):
        below = plan.columns(relation.input)
        columns = [below[group] for group in relation.groups]
        columns += [plan.call(call, relation.input) for call in relation.calls]
        if isinstance(relation, WindowAggregate):
            columns += [f"window {each.value}" for each in relation.properties]
        return columns
    if isinstance(relation, Join):
        sides = plan.sides(relation)
        return sides[: len(relation.left.schema)] if relation.kind in _LEFT_ONLY else sides
    if isinstance(relation, SetOperation):
        branches = zip(*(plan.columns(each) for each in relation.branches), strict=True)
        return [texts[0] if len(set(texts)) == 1 else bounded(" | ".join(texts)) for texts in branches]
    if isinstance(relation, Values):
        return [f"values.{number}" for number in range(len(relation.schema))]
    below = plan.columns(relation.inputs[0])
    return [*below, *_added(plan, relation, below, len(relation.schema) - len(below))]


def _added(plan: PlanMeanings, relation: Relation, below: Sequence[str], count: int) -> list[str]:
    """The columns that a relation adds after those of its input."""
    if isinstance(relation, Over):
        frame = f"by {listed(below[at] for at in relation.partition)} in {plan.order(relation.order, below)}"
        return [bounded(f"{plan.over_call(call, relation.input)} {frame}") for call in relation.calls]
    if isinstance(relation, LookupJoin):
        read = relation.table.read
        return [f"{relation.table.path[-1]}.{named(read[at].name)}" for at in relation.columns]
    word = _ADDED_WORDS.get(type(relation), "column")
    return added_columns(word, count, below)


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(plan: PlanMeanings, relation: Relation) -> str:
    conditions: list[str] = []
    while isinstance(relation, Filter | Project | WatermarkAssign | Stamp):
        if isinstance(relation, Filter):
            conditions += plan.conditions(relation.condition, plan.columns(relation.input))
        relation = relation.input
    if isinstance(relation, Scan):
        is_table = isinstance(relation.table, TableEntry) and relation.table.origin is None and relation.table.path
        if isinstance(relation.table, TableEntry):
            read = [named(column.name, column.metadata) for column in relation.table.read]
            conditions += [text for each in relation.filters for text in plan.conditions(each, read)]
        return with_conditions(relation.table.path[-1] if is_table else "rows of the program", conditions)
    if conditions:
        return with_conditions(f"({plan.rows(relation)})", conditions)
    rule = _ROWS.get(type(relation))
    if rule is not None:
        return bounded(rule(plan, relation))
    return listed(plan.rows(each) for each in relation.inputs)


def _joined_rows(plan: PlanMeanings, join: Join) -> str:
    conditions = plan.conditions(join.condition, plan.sides(join))
    both = f"({plan.rows(join.left)}) and ({plan.rows(join.right)})"
    return with_conditions(f"{_joined_word(join)} of {both}", conditions)


def _joined_word(join: Join) -> str:
    return f"{join.kind.value} {type(join).__name__}"


def _grouped_rows(plan: PlanMeanings, relation: Aggregate) -> str:
    below = plan.columns(relation.input)
    sets = "" if relation.sets is None else f" in sets {relation.sets}"
    return f"groups of ({plan.rows(relation.input)}) by {listed(below[at] for at in relation.groups)}{sets}"


def _window_rows(plan: PlanMeanings, relation: WindowAggregate) -> str:
    below = plan.columns(relation.input)
    grouped = f"({plan.rows(relation.input)}) by {listed(below[at] for at in relation.groups)}"
    return f"groups of {grouped} in {plan.window(relation.window, relation.input)}"


def _first_rows(plan: PlanMeanings, relation: Rank) -> str:
    below = plan.columns(relation.input)
    by = listed(below[at] for at in relation.partition)
    return f"{_rank_word(relation)} of ({plan.rows(relation.input)}) by {by} in {plan.order(relation.order, below)}"


def _rank_word(relation: Rank) -> str:
    return f"rows {relation.first} to {relation.last} by {relation.kind}"


def _correlated_rows(plan: PlanMeanings, relation: Correlate) -> str:
    name = getattr(relation.function, "name", None) or str(relation.function)
    call = f"{name}({', '.join(plan.text(each, plan.columns(relation.input)) for each in relation.arguments)})"
    rows = f"({plan.rows(relation.input)}) with {relation.kind.value} {call}"
    return with_conditions(rows, plan.conditions(relation.condition, plan.columns(relation)))


def _unnested_rows(plan: PlanMeanings, relation: Unnest) -> str:
    collection = plan.text(relation.collection, plan.columns(relation.input))
    rows = f"({plan.rows(relation.input)}) with {relation.kind.value} elements of {collection}"
    return with_conditions(rows, plan.conditions(relation.condition, plan.columns(relation)))


def _lookup_rows(plan: PlanMeanings, relation: LookupJoin) -> str:
    below, own = plan.columns(relation.input), plan.columns(relation)
    keys = [f"{own[len(below) + key.column]} = {plan.text(key.value, below)}" for key in relation.keys]
    rows = f"({plan.rows(relation.input)}) with {relation.kind.value} {'.'.join(relation.table.path)}"
    return with_conditions(rows, [*keys, *plan.conditions(relation.condition, own)])


def _constant_rows(plan: PlanMeanings, relation: Values) -> str:
    return "values " + ", ".join(f"({', '.join(plan.text(cell, ()) for cell in row)})" for row in relation.rows)


_ROWS: dict[type, Any] = {
    Aggregate: _grouped_rows,
    WindowAggregate: _window_rows,
    WindowAssign: lambda plan, each: f"({plan.rows(each.input)}) in {plan.window(each.window, each.input)}",
    **dict.fromkeys(_RANKS, _first_rows),
    Correlate: _correlated_rows,
    Unnest: _unnested_rows,
    LookupJoin: _lookup_rows,
    Normalise: lambda plan, each: (
        f"last rows of ({plan.rows(each.input)}) by {listed(plan.columns(each.input)[at] for at in each.keys)}"
    ),
    ToChangelog: lambda plan, each: f"changes of ({plan.rows(each.input)}) with {each.text}",
    FromChangelog: lambda plan, each: f"what ({plan.rows(each.input)}) tell with {each.text}",
    Limit: lambda plan, each: f"{each.count} rows behind {each.offset} of ({plan.rows(each.input)})",
    SetOperation: lambda plan, each: " and all of ".join(f"({plan.rows(branch)})" for branch in each.branches),
    Values: _constant_rows,
    **dict.fromkeys(_JOINS, _joined_rows),
}


# --- state ------------------------------------------------------------------------------------------------------------


def _groups(plan: PlanMeanings, relation: Aggregate) -> Meaning:
    below = plan.columns(relation.input)
    by = tuple(below[at] for at in relation.groups)
    sets = () if relation.sets is None else (f"sets {relation.sets}",)
    stored = tuple(plan.call(call, relation.input) for call in relation.calls)
    takes_back = plan.takes_back(relation)
    return Meaning("groups", plan.rows(relation.input), stored, (*by, *sets), grows="behind", takes_back=takes_back)


def _windows(plan: PlanMeanings, relation: WindowAggregate) -> Meaning:
    below = plan.columns(relation.input)
    stored = tuple(plan.call(call, relation.input) for call in relation.calls)
    by = tuple(below[at] for at in relation.groups)
    return Meaning(plan.window(relation.window, relation.input), plan.rows(relation.input), stored, by)


def _joined(plan: PlanMeanings, join: Join) -> Meaning:
    (left, left_texts), (right, right_texts) = (
        plan.stored_rows(join.left, "left."),
        plan.stored_rows(join.right, "right."),
    )
    stored, takes_back = (*left_texts, *right_texts), plan.takes_back(join)
    by = tuple(sorted(set(plan.conditions(join.condition, plan.sides(join)))))
    of = bounded(f"({plan.rows(join.left)}) and ({plan.rows(join.right)})")
    return Meaning(_joined_word(join), of, stored, by, (*left, *right), takes_back=takes_back)


def _ranked(plan: PlanMeanings, relation: Rank) -> Meaning:
    below = plan.columns(relation.input)
    names, stored = plan.stored_rows(relation.input)
    by = (*(below[at] for at in relation.partition), f"in {plan.order(relation.order, below)}")
    return Meaning(
        _rank_word(relation), plan.rows(relation.input), stored, by, names, takes_back=plan.takes_back(relation)
    )


def _around(plan: PlanMeanings, relation: Over) -> Meaning:
    below = plan.columns(relation.input)
    names, stored = plan.stored_rows(relation.input)
    calls = tuple(plan.over_call(call, relation.input) for call in relation.calls)
    by = (*(below[at] for at in relation.partition), f"in {plan.order(relation.order, below)}")
    numbers = tuple(f"call {number}" for number in range(1, len(calls) + 1))
    takes_back = plan.takes_back(relation)
    return Meaning("rows", plan.rows(relation.input), (*stored, *calls), by, (*names, *numbers), takes_back=takes_back)


def _last_rows(plan: PlanMeanings, relation: Normalise) -> Meaning:
    names, stored = plan.stored_rows(relation.input)
    by = tuple(plan.columns(relation.input)[at] for at in relation.keys)
    return Meaning(LAST_ROWS, plan.rows(relation.input), stored, by, names)


def _joined_results(plan: PlanMeanings, relation: LookupJoin) -> Meaning | None:
    if not plan.takes_back(relation):
        return None
    names, stored = plan.stored_rows(relation)
    return Meaning("found rows", plan.rows(relation), stored, (), names, takes_back=True)


def _table(plan: PlanMeanings, sink: Sink) -> Meaning | None:
    entry = sink.target
    if not isinstance(entry, TableEntry) or entry.connector != "state":
        return None
    columns = zip(plan.columns(sink.input), entry.written, strict=True)
    stored = tuple(bounded(f"{text} {each.type}") for text, each in columns)
    names = tuple(each.name for each in entry.written)
    grows: Any = "by name" if entry.primary_key else None
    of, takes_back = plan.rows(sink.input), plan.takes_back(sink)
    return Meaning("a table", of, stored, entry.primary_key, names, grows, takes_back)


_STATE_RULES: dict[type, Any] = {
    Aggregate: _groups,
    WindowAggregate: _windows,
    **dict.fromkeys(_RANKS, _ranked),
    Over: _around,
    Normalise: _last_rows,
    LookupJoin: _joined_results,
    Limit: lambda plan, each: Meaning(f"{each.count} rows behind {each.offset}", plan.rows(each.input)),
    Sink: _table,
    Scan: copied_columns,
    **dict.fromkeys(_JOINS, _joined),
}
