"""The Table API's methods on relations, one function each: takes relations and syntax, returns a relation.

Each shares the code of the equivalent SQL clause. Nothing is optimised here. Unnamed columns are called _c0, _c1 by
position; aggregates and window bounds are called EXPR$0, EXPR$1 in order of occurrence, as in Flink's Table API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.errors import ProgramError, SqlError
from millstream.expressions.coercion import as_type, can_cast
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Column
from millstream.planner.binding.aggregate_syntax import has_aggregates
from millstream.planner.binding.changelogs import bind_changelog
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.correlations import correlate, meeting
from millstream.planner.binding.correlations import unnest as unnest_elements
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition
from millstream.planner.binding.grouping import Grouping
from millstream.planner.binding.overs import OverCalls
from millstream.planner.binding.projections import item_name, project, renamed, unique_names
from millstream.planner.binding.queries import bind_query, bind_values, sorted_by, united
from millstream.planner.binding.query_values import QueryValues
from millstream.planner.binding.scans import scan_table
from millstream.planner.binding.scope import Scope, near_names
from millstream.planner.binding.selects import (
    bind_items,
    distinct_rows,
    expanded_items,
    grouped_items,
    where_rows,
)
from millstream.planner.binding.sources import bind_source, expand_view, joined
from millstream.planner.binding.windows import group_window
from millstream.planner.entries import TableEntry, ViewEntry
from millstream.planner.relations import JoinKind, Limit, Relation, Schema, Sink, Values, WindowKind
from millstream.planner.session import PlannerSession
from millstream.planner.sinks import into_table
from millstream.sql.query_syntax import NamedRelation, NamedWindow, Query, Unnest
from millstream.sql.syntax import Argument, As, Call, Expression, Name, OrderItem, Star, TableArgument

__all__ = [
    "GroupWindow",
    "add_columns",
    "aggregate_select",
    "changelog",
    "collect",
    "distinct",
    "drop_columns",
    "join",
    "join_table_function",
    "limit",
    "order_by",
    "query",
    "rename",
    "rename_columns",
    "scan",
    "scan_entry",
    "select",
    "set_operation",
    "sink",
    "unnest",
    "values",
    "where",
    "window_select",
    "with_distinct_names",
]

UNNAMED = "_c"


@dataclass(frozen=True)
class GroupWindow:
    """The Table API's Tumble, Slide or Session, with `size`, `slide` and `time` as syntax. In the selected items
    `Call("WINDOW_START", (Name((alias,)),))` is its start; WINDOW_END, WINDOW_ROWTIME and WINDOW_PROCTIME likewise."""

    kind: WindowKind
    alias: str
    time: Expression
    size: Expression
    slide: Expression | None = None


# --- sources ----------------------------------------------------------------------------------------------------------


def scan(parts: Sequence[str], session: PlannerSession) -> Relation:
    """The table or view with a name: `from_path`."""
    entry = session.find_table(parts)
    if entry is None:
        raise SqlError(f"Table '{'.'.join(parts)}' was not found.{session.table_hint(parts)}")
    if isinstance(entry, ViewEntry):
        return expand_view(entry, QueryContext(session))
    return scan_table(entry, session)


def scan_entry(entry: TableEntry, session: PlannerSession) -> Relation:
    """A table outside catalogs: from a descriptor or a DataStream."""
    return scan_table(entry, session)


def values(
    rows: Sequence[Sequence[Expression]],
    session: PlannerSession,
    types: Sequence[DataType] | None = None,
    names: Sequence[str] | None = None,
) -> Relation:
    """Rows of the program: `from_elements`. Columns are cast to `types`."""
    bound = bind_values(rows, ExpressionBinder(Scope(), session, "values"), None)
    if types is None:
        return renamed_values(bound, names)
    for actual, wanted in zip(bound.schema.fields, types, strict=True):
        if not can_cast(actual.type.nullable(), wanted.nullable(), explicit=True):
            raise ProgramError(f"values of {actual.type.nullable()} cannot be cast to {wanted}")
    cast = tuple(tuple(as_type(each, type_) for each, type_ in zip(row, types, strict=True)) for row in bound.rows)
    fields = tuple(replace(field, type=type_) for field, type_ in zip(bound.schema.fields, types, strict=True))
    return renamed_values(Values(Schema(fields), cast), names)


def renamed_values(relation: Values, names: Sequence[str] | None) -> Values:
    """Rows of the program with column names; `f0`, `f1` by default."""
    chosen = names or [f"f{i}" for i in range(len(relation.schema))]
    fields = tuple(replace(field, name=name) for field, name in zip(relation.schema.fields, chosen, strict=True))
    return replace(relation, schema=Schema(fields))


def changelog(relation: Relation, function: str, arguments: Sequence[Expression], session: PlannerSession) -> Relation:
    """`to_changelog` or `from_changelog` of a relation, with named arguments."""
    table = Argument("input", TableArgument(NamedRelation(())))
    return bind_changelog(Call(function, (table, *arguments)), lambda _: relation, session)


def query(syntax: Query, session: PlannerSession) -> Relation:
    """A SQL query: `sql_query`."""
    return bind_query(syntax, session)


def named(parts: Sequence[str], session: PlannerSession) -> Relation:
    """Like `scan`, with the errors of SQL."""
    return bind_source(NamedRelation(tuple(parts)), QueryContext(session))[0]


# --- columns and rows -------------------------------------------------------------------------------------------------


def _binder(relation: Relation, session: PlannerSession, clause: str) -> ExpressionBinder:
    return ExpressionBinder(Scope.of(relation), session, clause)


def select(relation: Relation, items: Sequence[Expression], session: PlannerSession) -> Relation:
    """Projects columns; `As` names one, `Star` expands to all. With aggregates: one row over all input (empty
    `group_by`)."""
    if has_aggregates(items, session):
        return aggregate_select(relation, (), items, session)
    binder = _binder(relation, session, "select")
    binder.values = QueryValues(binder.scope, QueryContext(session))
    expanded = expanded_items([(item, None) for item in items], binder.scope)
    if not expanded:
        raise ProgramError("select: found no columns, expected at least one to be left by without_columns(...)")
    return bind_items(relation, expanded, binder, UNNAMED)


def over_select(
    relation: Relation, windows: Sequence[NamedWindow], items: Sequence[Expression], session: PlannerSession
) -> Relation:
    """Projects columns, including calls over the named windows."""
    binder = _binder(relation, session, "select")
    binder.overs = OverCalls(windows)
    expanded = expanded_items([(item, None) for item in items], binder.scope)
    return bind_items(relation, expanded, binder, UNNAMED)


def where(relation: Relation, condition: Expression, session: PlannerSession) -> Relation:
    """Filters the rows by a condition."""
    return where_rows(relation, condition, _binder(relation, session, "where"), QueryContext(session))


def add_columns(
    relation: Relation, items: Sequence[Expression], session: PlannerSession, replaces: bool = False
) -> Relation:
    """Appends columns; with `replaces`, an existing column of the same name is replaced."""
    binder = _binder(relation, session, "add_columns")
    binder.values = QueryValues(binder.scope, QueryContext(session))
    expressions, names = list(relation.schema.columns), list(relation.schema.names)
    relation, made = binder.values.joined(relation, binder.bind_all(items))
    for position, (item, bound) in enumerate(zip(items, made, strict=True)):
        name = item_name(item, None) or f"{UNNAMED}{position}"
        if name in names and not replaces:
            raise ProgramError(f"add_columns: the column '{name}' already exists. Use add_or_replace_columns")
        if name in names:
            expressions[names.index(name)] = bound
        else:
            expressions.append(bound)
            names.append(name)
    return project(relation, expressions, names)


def drop_columns(relation: Relation, names: Sequence[Expression], session: PlannerSession) -> Relation:
    """Drops these columns."""
    binder = _binder(relation, session, "drop_columns")
    dropped = set()
    for name in names:
        column = binder.bind(name)
        if not isinstance(column, Column):
            raise ProgramError("drop_columns takes column names")
        dropped.add(column.index)
    retained = [index for index in range(len(relation.schema)) if index not in dropped]
    if not retained:
        raise ProgramError("drop_columns: found all columns of the table, expected at least one to remain")
    columns = relation.schema.columns
    return project(relation, [columns[i] for i in retained], [relation.schema.names[i] for i in retained])


def rename_columns(relation: Relation, items: Sequence[Expression], session: PlannerSession) -> Relation:
    """Renames columns: `col("a").alias("b")`."""
    names = list(relation.schema.names)
    for item in items:
        if not isinstance(item, As) or not isinstance(item.operand, Name):
            raise ProgramError("rename_columns takes col('old').alias('new')")
        old = item.operand.parts[-1]
        if old not in names:
            raise ProgramError(f"rename_columns: there is no column '{old}'.{near_names(old, names)}")
        names[relation.schema.names.index(old)] = item.names[0]
    return with_distinct_names("rename_columns", renamed(relation, names))


def with_distinct_names(method: str, relation: Relation) -> Relation:
    """Returns the relation, or raises if two of its columns share a name, which would be ambiguous."""
    names = relation.schema.names
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is None:
        return relation
    raise ProgramError(
        f"{method}: the column name '{twice}' is ambiguous: two columns would share it. Rename one of them"
    )


def rename(relation: Relation, names: Sequence[str]) -> Relation:
    """Renames the first columns: `Table.alias`."""
    if len(names) > len(relation.schema):
        raise ProgramError(f"alias has {len(names)} names for {len(relation.schema)} columns")
    return with_distinct_names("alias", renamed(relation, (*names, *relation.schema.names[len(names) :])))


# --- groups -----------------------------------------------------------------------------------------------------------


def aggregate_select(
    relation: Relation, groups: Sequence[Expression], items: Sequence[Expression], session: PlannerSession
) -> Relation:
    """`group_by(…).select(…)`."""
    grouping = Grouping(relation, Scope.of(relation), QueryContext(session), groups)
    return grouped_items(grouping, expanded_items([(item, None) for item in items], grouping.scope), prefix=UNNAMED)


def window_select(
    relation: Relation,
    window: GroupWindow,
    groups: Sequence[Expression],
    items: Sequence[Expression],
    session: PlannerSession,
) -> Relation:
    """`window(…).group_by(w, …).select(…)`; `groups` are the groups in addition to the window."""
    grouping = Grouping(relation, Scope.of(relation), QueryContext(session), groups)
    sizes = {"SIZE": window.size} | ({"SLIDE": window.slide} if window.slide is not None else {})
    time = grouping.plain.bind(window.time)
    grouping.add_window(group_window(window.kind, time, relation, sizes, session, window.time), window.alias)
    return grouped_items(grouping, expanded_items([(item, None) for item in items], grouping.scope), prefix=UNNAMED)


def distinct(relation: Relation) -> Relation:
    """Removes duplicate rows."""
    return distinct_rows(relation)


# --- several tables ---------------------------------------------------------------------------------------------------


def join(
    left: Relation, right: Relation, kind: JoinKind, condition: Expression | None, session: PlannerSession
) -> Relation:
    """Joins two tables, whose column names must differ."""
    both = [name for name in left.schema.names if name in right.schema.names]
    if both:
        raise ProgramError(f"join relations with ambiguous names: {', '.join(both)}. Rename columns of one first")
    scope = Scope.of(left) + Scope.of(right)
    bound = None if condition is None else bind_condition(condition, ExpressionBinder(scope, session, "join"), "join")
    return joined(left, right, kind, bound, scope)[0]


def join_table_function(
    relation: Relation,
    call: Call,
    names: Sequence[str],
    kind: JoinKind,
    session: PlannerSession,
    condition: Expression | None = None,
) -> Relation:
    """Joins every row with the rows that a table function returns for it: `join_lateral`, `flat_map`."""
    made = correlate(relation, call, _binder(relation, session, "join_lateral"), names, kind, session)
    if condition is None:
        return made
    bound = bind_condition(condition, _binder(made, session, "join_lateral"), "join_lateral")
    return meeting(made, bound)


def flat_map(relation: Relation, call: Call, names: Sequence[str], session: PlannerSession) -> Relation:
    """Replaces each row by the rows that a table function returns for it."""
    made = join_table_function(relation, call, names, JoinKind.INNER, session)
    width = len(relation.schema)
    return project(made, made.schema.columns[width:], made.schema.names[width:])


def unnest(relation: Relation, collection: Expression, names: Sequence[str], session: PlannerSession) -> Relation:
    """Joins every row with each element of a collection, whose columns get these names."""
    binder = _binder(relation, session, "unnest")
    return unnest_elements(relation, Unnest(collection), binder, tuple(names), JoinKind.INNER)


def set_operation(left: Relation, right: Relation, kind: str, all_: bool) -> Relation:
    """UNION, INTERSECT or EXCEPT; `all_` retains duplicates."""
    return united(left, right, kind, all_)


# --- order and sinks --------------------------------------------------------------------------------------------------


def order_by(relation: Relation, items: Sequence[OrderItem], session: PlannerSession) -> Relation:
    """Sorts the rows."""
    return sorted_by(relation, items, session)


def limit(relation: Relation, count: int | None, offset: int = 0) -> Relation:
    """Limits the result to `count` rows: `fetch`, `limit`, `offset`."""
    return Limit(relation.schema, relation, count, offset)


def sink(
    relation: Relation,
    parts: Sequence[str],
    session: PlannerSession,
    overwrite: bool = False,
) -> Sink:
    """Writes rows into a catalog table, checked and cast: `execute_insert`."""
    entry = session.find_table(parts)
    if entry is None:
        raise SqlError(f"Table '{'.'.join(parts)}' was not found.{session.table_hint(parts)}")
    if isinstance(entry, ViewEntry):
        raise SqlError(f"'{'.'.join(parts)}' is a view: rows cannot be written to it")
    if entry.definition is not None:
        raise SqlError(f"'{'.'.join(parts)}' is a materialized table: only its query writes rows to it")
    return into_table(relation, entry, overwrite=overwrite)


def sink_entry(relation: Relation, entry: TableEntry, overwrite: bool = False) -> Sink:
    """Writes rows into a table outside catalogs."""
    return into_table(relation, entry, overwrite=overwrite)


def collect(relation: Relation, target: Any) -> Sink:
    """Sends rows to a target other than a table: a DataStream, the program. The caller defines `target`."""
    return Sink(relation.schema, relation, target)


def names_of(items: Sequence[Expression]) -> list[str]:
    """The column names of a `select`."""
    return unique_names([None if isinstance(item, Star) else item_name(item, None) for item in items], UNNAMED)
