"""What is between a table and a `select` over groups: groups, windows, windows with groups, rows around rows.

Each holds what was said so far, and gives a Table when it is told what to select.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import NotYetError
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.sql.syntax import Name
from millstream.table.expression import Expression
from millstream.table.operations.column_lists import items_of

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

_SECOND_HALF = "tables that change (issue 19)"


class _TableParts:
    """What was said so far: a relation, and what is to be done with it."""

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
        """What an aggregate makes of each group."""
        raise NotYetError.of("GroupedTable.aggregate", _SECOND_HALF, "group_by(...).select(func(col(...)))")

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """The rows that a table aggregate makes of each group."""
        raise NotYetError.of("GroupedTable.flat_aggregate", _SECOND_HALF)


class GroupWindowedTable(_TableParts):
    """Rows in windows."""

    _step = "window(...)"
    _next = "group_by(col('w'), ...) with the window's alias"

    def __init__(self, java_group_windowed_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_group_windowed_table, t_env)

    def group_by(self, *fields: Expression[Any]) -> WindowGroupedTable:
        """Groups in windows: the window's alias, and columns perhaps."""
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
        """Groups, aggregates, and the window's `start`, `end` and `rowtime`."""
        relation, window, groups = self._parts
        shape = operations.GroupWindow(window.kind, window.alias, window.time, window.size, window.slide)
        items = [_of_window(node, window.alias) for node in items_of("select", fields, relation.schema.names)]
        with at_users_line():
            return self._table(operations.window_select(relation, shape, groups, items, self._t_env._session))

    def aggregate(self, func: Any) -> AggregatedTable:
        """What an aggregate makes of each group in each window."""
        raise NotYetError.of("WindowGroupedTable.aggregate", _SECOND_HALF, "group_by(...).select(func(col(...)))")


class OverWindowedTable(_TableParts):
    """Rows with the rows around them."""

    _step = "over_window(...)"

    def __init__(self, java_over_windowed_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_over_windowed_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """Columns, and aggregates over windows: `col("a").sum.over(col("w"))`."""
        relation, windows = self._parts
        items = items_of("select", fields, relation.schema.names)
        with at_users_line():
            return self._table(operations.over_select(relation, windows, items, self._t_env._session))


class AggregatedTable(_TableParts):
    """What an aggregate gave."""

    _step = "aggregate(...)"

    def __init__(self, java_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """The columns that are wanted."""
        raise NotYetError.of("AggregatedTable.select", _SECOND_HALF)


class FlatAggregateTable(_TableParts):
    """What a table aggregate gave."""

    _step = "flat_aggregate(...)"

    def __init__(self, java_table: Any, t_env: TableEnvironment) -> None:
        super().__init__(java_table, t_env)

    def select(self, *fields: Expression[Any]) -> Table:
        """The columns that are wanted."""
        raise NotYetError.of("FlatAggregateTable.select", _SECOND_HALF)


def _of_window(node: Any, alias: str) -> Any:
    """`col("w").rowtime` and `.proctime` are the window's, not a stream's."""
    from dataclasses import replace

    from millstream.sql.syntax import As, Call

    if isinstance(node, As):
        return replace(node, operand=_of_window(node.operand, alias))
    is_windows = isinstance(node, Call) and len(node.arguments) == 1 and node.arguments[0] == Name((alias,))
    if is_windows and node.name in ("ROWTIME", "PROCTIME"):
        return replace(node, name=f"WINDOW_{node.name}")
    return node
