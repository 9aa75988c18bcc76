"""`aggregate` and `flat_aggregate`: functions over the rows of a group, whose results are columns.

A function passed without arguments receives each row as a `Row`, or a group's rows as a DataFrame if it is a pandas
function. The following `select` refers to groups, results and the window. It is rewritten to the `select` of
`group_by`, with the call substituted for its results. A table aggregate becomes an aggregate that returns a list of
rows, which is unnested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from millstream.common.types import Row
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.user_functions import CallMode, UserFunction, UserFunctionKind
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql.syntax import Aggregated, As, Call, FieldAccess, Name, Star
from millstream.table.expression import Expression
from millstream.table.expression_methods.syntax_holder import node_of
from millstream.table.operations.row_functions import FrameCaller
from millstream.table.operations.row_windows import window_select
from millstream.table.user_functions.delegates import FunctionShell
from millstream.table.user_functions.wrappers import UserDefinedFunctionWrapper

__all__ = ["GroupCall", "aggregated", "flat_aggregated", "group_call"]

_ROWS = "$rows"
_TEMPORARY = "TMP_0$"
"""Flink's names for the fields of a result without an alias."""
_PROPERTIES = ("WINDOW_START", "WINDOW_END", "WINDOW_ROWTIME", "WINDOW_PROCTIME")


class _AggregateShell(FunctionShell):
    """An aggregate function that delegates every method."""

    def create_accumulator(self) -> Any:
        return self._function.create_accumulator()

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        self._function.accumulate(accumulator, *args)

    def retract(self, accumulator: Any, *args: Any) -> None:
        self._function.retract(accumulator, *args)

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        self._function.merge(accumulator, accumulators)

    def get_value(self, accumulator: Any) -> Any:
        return self._function.get_value(accumulator)


class _RowAggregate(_AggregateShell):
    """Passes the columns of a row to the function as a Row."""

    def __init__(self, function: Any, names: tuple[str, ...]) -> None:
        super().__init__(function)
        self._make = Row(*names)

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        self._function.accumulate(accumulator, self._make(*args))

    def retract(self, accumulator: Any, *args: Any) -> None:
        self._function.retract(accumulator, self._make(*args))

    def emit_value(self, accumulator: Any) -> Any:
        return self._function.emit_value(accumulator)


class _EmittedRows(_AggregateShell):
    """Adapts a table aggregate to an aggregate that returns the list of emitted rows."""

    def __init__(self, function: Any, width: int) -> None:
        super().__init__(function)
        self._width = width

    def get_value(self, accumulator: Any) -> Any:
        emitted = list(self._function.emit_value(accumulator) or ())
        return emitted if self._width > 1 else [each if isinstance(each, Row | tuple) else (each,) for each in emitted]

    def emit_value(self, accumulator: Any) -> Any:
        return self._function.emit_value(accumulator)


@dataclass(frozen=True)
class GroupCall:
    """A call of a function over the rows of a group, and its result columns by name and field."""

    call: Aggregated
    columns: Mapping[str, str | None]

    def of(self, name: str) -> Any:
        """The expression of a result column."""
        field = self.columns[name]
        return self.call if field is None else FieldAccess(self.call, field)


def group_call(
    method: str, func: Any, relation: Relation, kind: UserFunctionKind, groups: Collection[str] = ()
) -> GroupCall:
    """The call of a method's function argument. `groups`: the names of the groups, and of the window."""
    aliases: tuple[str, ...] = ()
    node: Any = None
    if isinstance(func, UserDefinedFunctionWrapper):
        node, aliases = _of_whole_rows(func._user_function, relation.schema.names), func._alias_names
    elif isinstance(func, Expression):
        node = node_of(func)
        if isinstance(node, As):
            node, aliases = node.operand, node.names
    call = node.call if isinstance(node, Aggregated) else node
    function = dict(getattr(call, "options", ())).get("function")
    word = "udtaf(...)" if kind is UserFunctionKind.TABLE_AGGREGATE else "udaf(...)"
    if isinstance(call, Call) and function is None and kind is UserFunctionKind.AGGREGATE:
        return GroupCall(_aggregated(node), dict.fromkeys(_distinct_names(method, groups, aliases[:1], ("f0",))))
    if not isinstance(function, UserFunction) or function.kind is not kind:
        raise refuse(f"{method}: found {func!r}, expected a function made by {word}, or a call of one")
    row = function.result_type if isinstance(function.result_type, RowType) else None
    fields = row.names if row is not None else ("f0",)
    if aliases and len(aliases) != len(fields):
        raise refuse(f"{method}: found {len(aliases)} names for {len(fields)} columns: {', '.join(fields)}")
    names = _distinct_names(method, groups, aliases, fields)
    columns = dict(zip(names, fields if row is not None else [None], strict=True))
    if kind is UserFunctionKind.TABLE_AGGREGATE:
        node = Aggregated(replace(call, options=(("function", _as_list(function)),)))
    return GroupCall(_aggregated(node), columns)


def _distinct_names(
    method: str, groups: Collection[str], aliases: tuple[str, ...], fields: tuple[str, ...]
) -> list[str]:
    """The names of the result's columns, distinct from group names. As in Flink, a field with a group's name gets a
    prefix, and an alias equal to a group's name is rejected."""
    if twice := [alias for place, alias in enumerate(aliases) if alias in groups or alias in aliases[:place]]:
        other = "a group has that name, too" if twice[0] in groups else "two columns of the result have it"
        raise refuse(f"{method}: the name {twice[0]!r} is ambiguous: {other}. Give the result other names by alias()")
    return list(aliases) or [f"{_TEMPORARY}{field}" if field in groups else field for field in fields]


def _aggregated(node: Any) -> Aggregated:
    return node if isinstance(node, Aggregated) else Aggregated(node)


def _of_whole_rows(function: UserFunction, names: tuple[str, ...]) -> Aggregated:
    """Calls a function with all columns, which it receives as one row."""
    inside: Any = _RowAggregate(function.function, names)
    if function.mode is CallMode.PANDAS:
        inside = FrameCaller(function, names)
    whole = replace(function, function=inside, argument_types=None)
    columns = tuple(Name((name,)) for name in names)
    return Aggregated(Call(function.name, columns, options=(("function", whole),)))


def _as_list(function: UserFunction) -> UserFunction:
    """Adapts a table aggregate to an aggregate that returns a list of rows."""
    row = function.result_type
    if not isinstance(row, RowType):
        row = RowType.of(["f0"], [row])
    return replace(
        function,
        function=_EmittedRows(function.function, len(row.fields)),
        kind=UserFunctionKind.AGGREGATE,
        result_types=(ArrayType(row),),
    )


# --- select -----------------------------------------------------------------------------------------------------------


def aggregated(
    relation: Relation,
    groups: Sequence[Any],
    window: operations.GroupWindow | None,
    made: GroupCall,
    items: Sequence[Any],
    session: PlannerSession,
) -> Relation:
    """The items over groups, the results of an aggregate and the window."""
    places = _group_places(groups) | {name: made.of(name) for name in made.columns}
    chosen = [each for item in items for each in _written_out(item, places)]
    return _selected(relation, groups, window, [_replaced(item, places) for item in chosen], session)


def flat_aggregated(
    relation: Relation,
    groups: Sequence[Any],
    made: GroupCall,
    items: Sequence[Any],
    session: PlannerSession,
) -> Relation:
    """The items over groups and the rows of a table aggregate."""
    named = [As(place, (name,)) for name, place in _group_places(groups).items()]
    inside = _selected(relation, groups, None, [*named, As(made.call, (_ROWS,))], session)
    rows = operations.unnest(inside, Name((_ROWS,)), tuple(made.columns), session)
    places = {name: Name((name,)) for name in (*_group_places(groups), *made.columns)}
    return operations.select(rows, [each for item in items for each in _written_out(item, places)], session)


def _selected(
    relation: Relation,
    groups: Sequence[Any],
    window: operations.GroupWindow | None,
    items: Sequence[Any],
    session: PlannerSession,
) -> Relation:
    if window is None:
        return operations.aggregate_select(relation, groups, items, session)
    return window_select(relation, window, groups, items, session)


def _group_places(groups: Sequence[Any]) -> dict[str, Any]:
    """The named groups and their expressions."""
    places: dict[str, Any] = {}
    for group in groups:
        if isinstance(group, As):
            places[group.names[0]] = group.operand
        elif isinstance(group, Name):
            places[group.parts[-1]] = group
    return places


def _written_out(item: Any, places: Mapping[str, Any]) -> list[Any]:
    return [Name((name,)) for name in places] if isinstance(item, Star) else [item]


def _replaced(item: Any, places: Mapping[str, Any]) -> Any:
    """An item with result names replaced by their expressions; a column keeps its name."""
    inner = _inside(item, places)
    if isinstance(item, Name) and inner != item:
        return As(inner, (item.parts[-1],))
    return inner


def _inside(node: Any, places: Mapping[str, Any]) -> Any:
    if isinstance(node, tuple):
        return tuple(_inside(part, places) for part in node)
    if isinstance(node, Name) and len(node.parts) == 1:
        return places.get(node.parts[0], node)
    if not is_dataclass(node) or isinstance(node, type) or (isinstance(node, Call) and node.name in _PROPERTIES):
        return node
    changed = {
        field.name: _inside(value, places)
        for field in fields(node)
        if field.name not in ("span", "options", "target")
        and (is_dataclass(value := getattr(node, field.name)) or isinstance(value, tuple))
    }
    return replace(node, **changed) if changed else node
