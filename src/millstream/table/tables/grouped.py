"""Intermediate steps between a table and `select`: groups, windows, windowed groups, OVER windows.

Each collects its parts, and returns a Table when `select` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.expressions.user_functions import UserFunctionKind
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.sql.syntax import As, Name
from millstream.table.expression import Expression
from millstream.table.operations.column_lists import items_of
from millstream.table.operations.group_functions import aggregated, flat_aggregated, group_call
from millstream.table.operations.row_windows import window_select

if TYPE_CHECKING:
    from millstream.table.table import Table
    from millstream.table.table_environment import TableEnvironment

__all__ = [
    "AggregatedTable",
    "FlatAggregateTable",
    "GroupWindowedTable",
    "GroupedTable",
    "OverWindowedTable",
    "WindowGroupedTable",
]


class _TableParts:
    """The collected parts: a relation, and the operations on it."""

    _step = ""
    _next = "select(...), which gives a table"

    def __init__(self, parts: Any, t_env: TableEnvironment) -> None:
        if not isinstance(parts, tuple):
            raise refuse(f"{type(self).__name__}: {self._step} of a table gives one")
        self._parts = parts
        self._t_env = t_env

    def _table(self, relation: Any) -> Table:
        from millstream.table.table import Table

        return Table(relation, self._t_env)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refuse(f"{type(self).__name__} has no {name!r}: after {self._step} comes {self._next}")


class GroupedTable(_TableParts):
    """Rows in groups."""

    _step = "group_by(...)"

    def __init__(self, java_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """Groups and aggregates."""
        relation, groups = self._parts
        items = items_of("select", fields, relation.schema.names)
        with at_users_line():
            return self._table(operations.aggregate_select(relation, groups, items, self._t_env._session))

    def aggregate(self, func: Any) -> AggregatedTable:
        """Applies an aggregate to each group: `aggregate(func(col("b")).alias("c"))`, or `aggregate(func)` for a
        function of rows."""
        relation, groups = self._parts
        return _aggregated(self._t_env, relation, groups, None, func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """Applies a table aggregate to each group."""
        relation, groups = self._parts
        return _flat_aggregated(self._t_env, relation, groups, func)


class GroupWindowedTable(_TableParts):
    """Rows in windows."""

    _step = "window(...)"
    _next = "group_by(col('w'), ...) with the window's alias"

    def __init__(self, java_group_windowed_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_group_windowed_table, t_env)

    def group_by(self, *fields: Expression[Any]) -> WindowGroupedTable:
        """Groups by the window's alias, and optionally columns."""
        relation, window = self._parts
        nodes = items_of("group_by", fields, (*relation.schema.names, window.alias))
        groups = [node for node in nodes if not (isinstance(node, Name) and node.parts == (window.alias,))]
        if len(groups) == len(nodes):
            raise refuse(f"group_by: the window is not among the groups. Write group_by(col({window.alias!r}), ...)")
        return WindowGroupedTable((relation, window, groups), self._t_env)


class WindowGroupedTable(_TableParts):
    """Rows in groups and windows."""

    _step = "group_by(...)"

    def __init__(self, java_window_grouped_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_window_grouped_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """Projects groups, aggregates, and the window's `start`, `end` and `rowtime`."""
        relation, window, groups = self._parts
        items = [_of_window(node, window.alias) for node in items_of("select", fields, relation.schema.names)]
        with at_users_line():
            return self._table(window_select(relation, _shape(window), groups, items, self._t_env._session))

    def aggregate(self, func: Any) -> AggregatedTable:
        """Applies an aggregate to each group in each window."""
        relation, window, groups = self._parts
        return _aggregated(self._t_env, relation, groups, window, func)


class OverWindowedTable(_TableParts):
    """Rows, each with windows around it."""

    _step = "over_window(...)"

    def __init__(self, java_over_windowed_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_over_windowed_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """Projects columns, and aggregates over windows: `col("a").sum.over(col("w"))`."""
        relation, windows = self._parts
        items = items_of("select", fields, relation.schema.names)
        with at_users_line():
            return self._table(operations.over_select(relation, windows, items, self._t_env._session))


class AggregatedTable(_TableParts):
    """The result of an aggregate."""

    _step = "aggregate(...)"

    def __init__(self, java_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """Projects columns of the groups and of the aggregate's result."""
        relation, groups, window, made = self._parts
        names = [*_names_of(groups), *made.columns]
        items = [_of_window(node, window.alias) if window else node for node in items_of("select", fields, names)]
        with at_users_line():
            shape = None if window is None else _shape(window)
            return self._table(aggregated(relation, groups, shape, made, items, self._t_env._session))


class FlatAggregateTable(_TableParts):
    """The result of a table aggregate."""

    _step = "flat_aggregate(...)"

    def __init__(self, java_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """Projects columns of the groups and of the table aggregate's rows."""
        relation, groups, made = self._parts
        items = items_of("select", fields, [*_names_of(groups), *made.columns])
        with at_users_line():
            return self._table(flat_aggregated(relation, groups, made, items, self._t_env._session))


def _aggregated(t_env: TableEnvironment, relation: Any, groups: Any, window: Any, func: Any) -> AggregatedTable:
    names = [*_names_of(groups), *([window.alias] if window else [])]
    made = group_call("aggregate", func, relation, UserFunctionKind.AGGREGATE, names)
    return AggregatedTable((relation, groups, window, made), t_env)


def _flat_aggregated(t_env: TableEnvironment, relation: Any, groups: Any, func: Any) -> FlatAggregateTable:
    made = group_call("flat_aggregate", func, relation, UserFunctionKind.TABLE_AGGREGATE, _names_of(groups))
    return FlatAggregateTable((relation, groups, made), t_env)


def _names_of(groups: Any) -> list[str]:
    """The names of the named groups."""
    named = [group.names[0] if isinstance(group, As) else group for group in groups]
    return [each.parts[-1] if isinstance(each, Name) else each for each in named if isinstance(each, Name | str)]


def _shape(window: Any) -> operations.GroupWindow:
    return operations.GroupWindow(window.kind, window.alias, window.time, window.size, window.slide)


def _of_window(node: Any, alias: str) -> Any:
    """Resolves `col("w").rowtime` and `.proctime` to the window's time attributes, not those of a stream."""
    from dataclasses import replace

    from millstream.sql.syntax import Call

    if isinstance(node, As):
        return replace(node, operand=_of_window(node.operand, alias))
    is_windows = isinstance(node, Call) and len(node.arguments) == 1 and node.arguments[0] == Name((alias,))
    if is_windows and node.name in ("ROWTIME", "PROCTIME"):
        return replace(node, name=f"WINDOW_{node.name}")
    return node
