"""`Table`: a query under construction, call by call. Nothing runs before `execute` and similar methods.

A table is immutable: every call returns a new one. It holds a bound relation (`planner.relations`), so errors in
names and types are raised at the user's line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import MissingNameError, did_you_mean
from millstream.graph.site import here, refuse
from millstream.planner import table_operations as operations
from millstream.planner.relations import JoinKind, Relation
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.syntax import Argument, OrderItem
from millstream.table.catalogs.resolved_schema import ResolvedSchema
from millstream.table.expression import Expression
from millstream.table.expressions import col
from millstream.table.operations.column_lists import items_of
from millstream.table.operations.plain_syntax import plain_items
from millstream.table.operations.row_functions import flat_mapped, lateral, mapped
from millstream.table.operations.table_outputs import TableOutputs
from millstream.table.schemas.shown_schemas import resolved_schema, shown_tree
from millstream.table.table_schema import TableSchema
from millstream.table.tables.grouped import (
    AggregatedTable,
    FlatAggregateTable,
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    WindowGroupedTable,
)
from millstream.table.window import GroupWindow, OverWindow

if TYPE_CHECKING:
    from millstream.table.table_environment import TableEnvironment

__all__ = [
    "AggregatedTable",
    "FlatAggregateTable",
    "GroupWindowedTable",
    "GroupedTable",
    "OverWindowedTable",
    "Table",
    "WindowGroupedTable",
]


class Table(TableOutputs):
    """A query: columns, filters, groups, windows, joins."""

    def __init__(self, j_table: Any, t_env: TableEnvironment) -> None:
        if not isinstance(j_table, Relation):
            raise refuse(
                f"Table: found {j_table!r}. A TableEnvironment makes tables: from_elements, from_path, sql_query"
            )
        self._relation = j_table
        self._t_env = t_env
        self._name: str | None = None

    def _made(self, relation: Relation) -> Table:
        return Table(relation, self._t_env)

    @property
    def _names(self) -> tuple[str, ...]:
        return self._relation.schema.names

    def __getattr__(self, name: str) -> Expression[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._names:
            return col(name)
        known = [*self._names, *(each for each in dir(type(self)) if not each.startswith("_"))]
        hint = did_you_mean(name, known)
        raise MissingNameError(
            f"a table has no method and this one no column {name!r}.{hint} Its columns are {', '.join(self._names)}",
            at=str(here()),
        )

    def __str__(self) -> str:
        """A name for the table in SQL: `f"SELECT * FROM {table}"`. It is created on first use."""
        if self._name is None:
            self._name = self._t_env._name_table(self)
        return self._name

    def __repr__(self) -> str:
        return f"Table({', '.join(map(str, self._relation.schema.fields))})"

    # --- columns and rows -----------------------------------------------------------------------------------------

    def select(self, *fields: Expression[Any]) -> Table:
        """Projects columns and expressions."""
        items = items_of("select", fields, self._names)
        with at_users_line():
            named = plain_items(items, self._relation, self._t_env._session)
            return self._made(operations.select(self._relation, named, self._t_env._session))

    def alias(self, field: str, *fields: str) -> Table:
        """Renames the first columns."""
        with at_users_line():
            return self._made(operations.rename(self._relation, _texts("alias", (field, *fields))))

    def filter(self, predicate: Expression[Any]) -> Table:
        """Filters rows by a condition."""
        return self._filtered("filter", predicate)

    def where(self, predicate: Expression[Any]) -> Table:
        """Filters rows by a condition."""
        return self._filtered("where", predicate)

    def _filtered(self, method: str, predicate: Expression[Any]) -> Table:
        [condition] = items_of(method, (predicate,), self._names)
        with at_users_line():
            [condition] = plain_items([condition], self._relation, self._t_env._session)
            return self._made(operations.where(self._relation, condition, self._t_env._session))

    def add_columns(self, *fields: Expression[Any]) -> Table:
        """Adds columns."""
        return self._with_columns("add_columns", fields, replaces=False)

    def add_or_replace_columns(self, *fields: Expression[Any]) -> Table:
        """Adds columns; one of the same name is replaced."""
        return self._with_columns("add_or_replace_columns", fields, replaces=True)

    def _with_columns(self, method: str, fields: tuple[Any, ...], replaces: bool) -> Table:
        items = items_of(method, fields, self._names)
        with at_users_line():
            items = plain_items(items, self._relation, self._t_env._session)
            return self._made(operations.add_columns(self._relation, items, self._t_env._session, replaces))

    def rename_columns(self, *fields: Expression[Any]) -> Table:
        """Renames columns: `col("old").alias("new")`."""
        items = items_of("rename_columns", fields, self._names)
        with at_users_line():
            return self._made(operations.rename_columns(self._relation, items, self._t_env._session))

    def drop_columns(self, *fields: Expression[Any]) -> Table:
        """Drops columns."""
        items = items_of("drop_columns", fields, self._names)
        with at_users_line():
            return self._made(operations.drop_columns(self._relation, items, self._t_env._session))

    def distinct(self) -> Table:
        """Removes duplicate rows."""
        with at_users_line():
            return self._made(operations.distinct(self._relation))

    # --- functions of rows ----------------------------------------------------------------------------------------

    def map(self, func: Any) -> Table:
        """Applies a scalar function to every row; the fields of its result are the columns."""
        with at_users_line():
            return self._made(mapped(self._relation, func, self._t_env._session))

    def flat_map(self, func: Any) -> Table:
        """Applies a table function to every row; the result is its rows."""
        with at_users_line():
            return self._made(flat_mapped(self._relation, func, self._t_env._session))

    def aggregate(self, func: Any) -> AggregatedTable:
        """Aggregates all rows."""
        return GroupedTable((self._relation, []), self._t_env).aggregate(func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """Applies a table aggregate to all rows."""
        return GroupedTable((self._relation, []), self._t_env).flat_aggregate(func)

    # --- groups and windows ---------------------------------------------------------------------------------------

    def group_by(self, *fields: Expression[Any]) -> GroupedTable:
        """Groups rows by values."""
        return GroupedTable((self._relation, items_of("group_by", fields, self._names)), self._t_env)

    def window(self, window: GroupWindow) -> GroupWindowedTable:
        """Assigns rows to windows: Tumble, Slide or Session."""
        if not isinstance(window, GroupWindow):
            raise refuse(
                f"window: found {window!r}, expected a window with its alias, as "
                "Tumble.over(lit(10).minutes).on(col('ts')).alias('w')"
            )
        return GroupWindowedTable((self._relation, window._parts), self._t_env)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable:
        """Defines windows around each row."""
        if wrong := [each for each in over_windows if not isinstance(each, OverWindow)]:
            raise refuse(f"over_window: found {wrong[0]!r}, expected Over.partition_by(...).order_by(...).alias('w')")
        return OverWindowedTable((self._relation, [each._named() for each in over_windows]), self._t_env)

    # --- several tables -------------------------------------------------------------------------------------------

    def join(self, right: Table, join_predicate: Expression[Any] | None = None) -> Table:
        """Joins the matching rows of both tables."""
        return self._joined("join", right, JoinKind.INNER, join_predicate)

    def left_outer_join(self, right: Table, join_predicate: Expression[Any] | None = None) -> Table:
        """Joins the matching rows of both tables, and also emits unmatched rows of this table."""
        return self._joined("left_outer_join", right, JoinKind.LEFT, join_predicate)

    def right_outer_join(self, right: Table, join_predicate: Expression[Any] | None = None) -> Table:
        """Joins the matching rows of both tables, and also emits unmatched rows of the other table."""
        return self._joined("right_outer_join", right, JoinKind.RIGHT, join_predicate)

    def full_outer_join(self, right: Table, join_predicate: Expression[Any]) -> Table:
        """Joins the matching rows of both tables, and also emits unmatched rows of either."""
        return self._joined("full_outer_join", right, JoinKind.FULL, join_predicate)

    def _joined(self, method: str, right: Table, kind: JoinKind, predicate: Any) -> Table:
        other = self._other(method, right)
        condition = None
        if predicate is not None:
            [condition] = items_of(method, (predicate,), (*self._names, *other.schema.names))
        with at_users_line():
            return self._made(operations.join(self._relation, other, kind, condition, self._t_env._session))

    def join_lateral(self, table_function_call: Any, join_predicate: Expression[Any] | None = None) -> Table:
        """Joins every row with the rows that a table function returns for it."""
        with at_users_line():
            return self._made(
                lateral(self._relation, table_function_call, JoinKind.INNER, join_predicate, self._t_env._session)
            )

    def left_outer_join_lateral(self, table_function_call: Any, join_predicate: Expression[Any] | None = None) -> Table:
        """Like `join_lateral`, and also emits rows for which the function returns none."""
        with at_users_line():
            return self._made(
                lateral(self._relation, table_function_call, JoinKind.LEFT, join_predicate, self._t_env._session)
            )

    def minus(self, right: Table) -> Table:
        """The distinct rows that the other table lacks."""
        return self._united("minus", right, "EXCEPT", False)

    def minus_all(self, right: Table) -> Table:
        """The rows of this table without those of the other, counting duplicates."""
        return self._united("minus_all", right, "EXCEPT", True)

    def union(self, right: Table) -> Table:
        """The distinct rows of both tables."""
        return self._united("union", right, "UNION", False)

    def union_all(self, right: Table) -> Table:
        """The rows of both tables."""
        return self._united("union_all", right, "UNION", True)

    def intersect(self, right: Table) -> Table:
        """The distinct common rows of both tables."""
        return self._united("intersect", right, "INTERSECT", False)

    def intersect_all(self, right: Table) -> Table:
        """The common rows of both tables, counting duplicates."""
        return self._united("intersect_all", right, "INTERSECT", True)

    def _united(self, method: str, right: Table, kind: str, with_duplicates: bool) -> Table:
        other = self._other(method, right)
        with at_users_line():
            return self._made(operations.set_operation(self._relation, other, kind, with_duplicates))

    def _other(self, method: str, right: Table) -> Relation:
        if not isinstance(right, Table):
            raise refuse(f"{method}: found {right!r}, expected a table")
        if right._t_env is not self._t_env:
            raise refuse(f"{method}: the tables are of two environments. Make both in one")
        return right._relation

    # --- order ----------------------------------------------------------------------------------------------------

    def order_by(self, *fields: Expression[Any]) -> Table:
        """Sorts the rows: `col("a").desc`."""
        nodes = items_of("order_by", fields, self._names)
        items = [node if isinstance(node, OrderItem) else OrderItem(node) for node in nodes]
        with at_users_line():
            return self._made(operations.order_by(self._relation, items, self._t_env._session))

    def offset(self, offset: int) -> Table:
        """Skips the first rows."""
        return self._limited(None, _count("offset", offset))

    def fetch(self, fetch: int) -> Table:
        """The first rows."""
        return self._limited(_count("fetch", fetch), 0)

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """At most `fetch` rows, after skipping `offset`."""
        return self._limited(_count("limit", fetch), _count("limit, offset", offset))

    def _limited(self, count: int | None, offset: int) -> Table:
        with at_users_line():
            return self._made(operations.limit(self._relation, count, offset))

    # --- schema ---------------------------------------------------------------------------------------------------

    def get_schema(self) -> TableSchema:
        """The names and types of its columns."""
        return TableSchema(list(self._names), list(self._relation.schema.types))

    def get_resolved_schema(self) -> ResolvedSchema:
        """Its columns."""
        return resolved_schema(self._relation.schema)

    def print_schema(self) -> None:
        """Prints its columns as a tree."""
        print(shown_tree(self._relation.schema))

    def to_changelog(self, *arguments: Expression[Any]) -> Table:
        """The table's changes as append-only rows: an operation column, then the table's columns. Arguments are named:
        `descriptor("code").as_argument("op")`, `map_("INSERT", "I").as_argument("op_mapping")`."""
        return self._changelog("to_changelog", arguments)

    def from_changelog(self, *arguments: Expression[Any]) -> Table:
        """The table whose changes the rows encode; the arguments are those of FROM_CHANGELOG. Upserts require PARTITION
        BY, which only SQL supports."""
        return self._changelog("from_changelog", arguments)

    def _changelog(self, function: str, arguments: tuple[Expression[Any], ...]) -> Table:
        nodes: list[Any] = [getattr(each, "_node", each) for each in arguments]
        if wrong := [each for each in nodes if not isinstance(each, Argument)]:
            raise refuse(f"{function}: found {wrong[0]!r}, expected arguments with names, as_argument('op')")
        with at_users_line():
            return self._made(operations.changelog(self._relation, function, nodes, self._t_env._session))


def _texts(method: str, names: tuple[Any, ...]) -> list[str]:
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise refuse(f"{method}: found {wrong[0]!r}, expected names as text")
    return list(names)


def _count(method: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise refuse(f"{method}: found {count!r}, expected a number of rows")
    return count


add_pyflink_names(globals())
