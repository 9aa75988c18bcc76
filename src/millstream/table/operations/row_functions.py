"""Functions over whole rows: `map`, `flat_map`, and table functions joined to each row.

A function passed without arguments receives the row as a `Row`, or as a DataFrame if it is a pandas function. It is
wrapped in a function of all columns, so that tasks only process columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millstream.common.types import Row
from millstream.expressions.nested_types import RowType
from millstream.expressions.user_functions import CallMode, UserFunction, UserFunctionKind
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.planner.relations import JoinKind, Relation
from millstream.planner.session import PlannerSession
from millstream.sql.syntax import As, Call, FieldAccess, Name
from millstream.table.expression import Expression
from millstream.table.expression_methods.syntax_holder import node_of
from millstream.table.user_functions.delegates import FunctionShell
from millstream.table.user_functions.wrappers import UserDefinedFunctionWrapper

__all__ = ["FrameCaller", "flat_mapped", "lateral", "mapped"]


class _RowCaller(FunctionShell):
    """Calls a row function with the columns of one row."""

    def __init__(self, function: UserFunction, names: tuple[str, ...]) -> None:
        super().__init__(function.function)
        self._make = Row(*names)

    def eval(self, *columns: Any) -> Any:
        return self._call(self._make(*columns))


class FrameCaller(FunctionShell):
    """Calls a DataFrame function with the columns as Series."""

    def __init__(self, function: UserFunction, names: tuple[str, ...]) -> None:
        super().__init__(function.function)
        self._names = names

    def eval(self, *columns: Any) -> Any:
        import pandas as pd

        return self._call(pd.DataFrame(dict(zip(self._names, columns, strict=True))))


def _call_of(method: str, func: Any, relation: Relation, kind: UserFunctionKind) -> tuple[Call, tuple[str, ...]]:
    """The call of a method's function argument, and the names of its columns; a function without arguments is called
    with the row."""
    if isinstance(func, UserDefinedFunctionWrapper):
        function = func._user_function
        caller = FrameCaller if function.mode is CallMode.PANDAS else _RowCaller
        names = relation.schema.names
        whole = replace(function, function=caller(function, names), argument_types=None)
        columns = tuple(Name((name,)) for name in names)
        call, aliases = Call(function.name, columns, options=(("function", whole),)), func._alias_names
    elif isinstance(func, Expression):
        node = node_of(func)
        aliases = node.names if isinstance(node, As) else ()
        call = node.operand if isinstance(node, As) else node  # type: ignore[assignment]
    else:
        raise refuse(f"{method}: found {func!r}, expected a function made by {_decorator(kind)}, or a call of one")
    actual_kind = getattr(dict(getattr(call, "options", ())).get("function"), "kind", kind)
    if not isinstance(call, Call) or actual_kind is not kind:
        raise refuse(f"{method}: found {func!r}, expected a {kind.value} function, made by {_decorator(kind)}")
    return call, aliases


def _decorator(kind: UserFunctionKind) -> str:
    return "udtf(...)" if kind is UserFunctionKind.TABLE else "udf(...)"


def mapped(relation: Relation, func: Any, session: PlannerSession) -> Relation:
    """The fields of a scalar function's result for each row."""
    call, aliases = _call_of("map", func, relation, UserFunctionKind.SCALAR)
    function = dict(call.options).get("function")
    fields: Sequence[str] = ("f0",)
    items: list[Any] = [call]
    if isinstance(function, UserFunction) and isinstance(function.result_type, RowType):
        fields = function.result_type.names
        items = [FieldAccess(call, name) for name in fields]
    if aliases and len(aliases) != len(items):
        raise refuse(f"map: found {len(aliases)} names for {len(items)} columns: {', '.join(fields)}")
    named = [As(item, (name,)) for item, name in zip(items, aliases or fields, strict=True)]
    return operations.select(relation, named, session)


def flat_mapped(relation: Relation, func: Any, session: PlannerSession) -> Relation:
    """Replaces each row by the rows that a table function returns for it."""
    call, aliases = _call_of("flat_map", func, relation, UserFunctionKind.TABLE)
    made = operations.flat_map(relation, call, _column_names(call, aliases), session)
    return operations.with_distinct_names("flat_map", made)


def lateral(relation: Relation, func: Any, kind: JoinKind, predicate: Any, session: PlannerSession) -> Relation:
    """Joins each row with the rows that a table function returns for it."""
    call, aliases = _call_of("join_lateral", func, relation, UserFunctionKind.TABLE)
    condition = None if predicate is None else node_of(predicate)
    made = operations.join_table_function(relation, call, _column_names(call, aliases), kind, session, condition)
    return operations.with_distinct_names("join_lateral", made)


def _column_names(call: Call, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a table function's columns: the aliases, the field names of its row type, or default names of the
    planner."""
    function = dict(call.options).get("function")
    return aliases or getattr(function, "column_names", ())
