"""The wrappers that the decorators of `udf` create: functions with types, callable with expressions.

Calling a wrapper while building a query returns an expression; the wrapped function is called while the query runs. The
call carries the function as an option (`function`), so it needs no registered name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from millstream.datastream.streams.lost_changes import warn_of_lost_changes
from millstream.expressions.canonical_types import construction_hint
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.user_functions import CallMode, UserFunction, UserFunctionKind
from millstream.graph.site import refuse, refuse_type
from millstream.sql.syntax import Aggregated, As, Call
from millstream.table.expression import Expression
from millstream.table.expression_methods.syntax_holder import node_of
from millstream.table.schemas.type_arguments import checked_type
from millstream.table.user_functions.delegates import FrameResult, PandasAggregateFunctionWrapper
from millstream.table.user_functions.function_classes import (
    AggregateFunction,
    ImperativeAggregateFunction,
    TableAggregateFunction,
    UserDefinedFunction,
)

__all__ = [
    "UserDefinedAggregateFunctionWrapper",
    "UserDefinedAsyncScalarFunctionWrapper",
    "UserDefinedFunctionWrapper",
    "UserDefinedScalarFunctionWrapper",
    "UserDefinedTableFunctionWrapper",
]

_MODES = {"general": CallMode.PER_ROW, "pandas": CallMode.PANDAS, "arrow": CallMode.ARROW}


class UserDefinedFunctionWrapper:
    """A function with its types."""

    _kind = UserFunctionKind.SCALAR

    def __init__(
        self,
        func: Any,
        input_types: Any,
        func_type: str = "general",
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> None:
        word = type(self)._kind.value
        if isinstance(func, type):
            raise refuse(f"a {word} function: found the class {func.__name__}. Pass an instance: {func.__name__}()")
        if not callable(func) and not isinstance(func, UserDefinedFunction):
            raise refuse_type(
                f"a {word} function: found {func!r} ({type(func).__name__}), expected a function, or an object "
                "of a class derived from ScalarFunction, TableFunction or AggregateFunction"
            )
        if func_type not in _MODES:
            raise refuse(
                f"func_type: found {func_type!r}, expected one of {', '.join(map(repr, _MODES))}: called for every "
                "row, with pandas Series, or with Arrow arrays"
            )
        self._func = func
        self._input_types = None if input_types is None else _types("input_types", input_types)
        self._func_type = func_type
        self._name = name or _name_of(func)
        self._deterministic = _determinism(func, deterministic)
        self._alias_names: tuple[str, ...] = ()
        _warn_of_lost_changes(func, self._name)
        if not isinstance(func, UserDefinedFunction):
            functools.update_wrapper(self, func)

    @property
    def _result_types(self) -> tuple[DataType, ...]:
        raise NotImplementedError

    def alias(self, *alias_names: str) -> UserDefinedFunctionWrapper:
        """Names its result columns, for `map`, `flat_map` and similar."""
        self._alias_names = alias_names
        return self

    def __call__(self, *args: Any) -> Expression[Any]:
        """An expression that calls the function with these arguments."""
        node: Any = self._call_node(tuple(map(node_of, args)))
        return Expression(As(node, self._alias_names) if self._alias_names else node)

    def _call_node(self, arguments: tuple[Any, ...]) -> Any:
        return Call(self._name, arguments, options=(("function", self._user_function),))

    @functools.cached_property
    def _user_function(self) -> UserFunction:
        """The function's description for the planner and tasks; always the same object."""
        return UserFunction(
            name=self._name,
            function=self._function_inside,
            result_types=self._result_types,
            argument_types=self._input_types,
            kind=type(self)._kind,
            mode=self._mode,
            is_deterministic=self._deterministic,
            accumulator_type=self._accumulator,
        )

    @property
    def _function_inside(self) -> Any:
        return self._func

    @property
    def _mode(self) -> CallMode:
        return _MODES[self._func_type]

    @property
    def _accumulator(self) -> DataType | None:
        return None


class UserDefinedScalarFunctionWrapper(UserDefinedFunctionWrapper):
    """A scalar function."""

    def __init__(
        self,
        func: Any,
        input_types: Any,
        result_type: Any,
        func_type: str = "general",
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(func, input_types, func_type, deterministic, name)
        self._result_type = _returned(_one_type("udf", "result_type", result_type))

    @property
    def _function_inside(self) -> Any:
        if self._func_type == "pandas" and isinstance(self._result_type, RowType):
            return FrameResult(self._func, self._result_type)
        return self._func

    @property
    def _result_types(self) -> tuple[DataType, ...]:
        return (self._result_type,)


class UserDefinedAsyncScalarFunctionWrapper(UserDefinedScalarFunctionWrapper):
    """An asynchronous scalar function."""

    @property
    def _mode(self) -> CallMode:
        if self._func_type != "general":
            raise refuse(f"an asynchronous function: found func_type={self._func_type!r}, expected 'general'")
        return CallMode.ASYNC


class UserDefinedTableFunctionWrapper(UserDefinedFunctionWrapper):
    """A table function."""

    _kind = UserFunctionKind.TABLE

    def __init__(
        self,
        func: Any,
        input_types: Any,
        result_types: Any,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(func, input_types, "general", deterministic, name)
        self._columns = tuple(map(_returned, _types("result_types", result_types)))
        self._column_names: tuple[str, ...] = ()
        if len(self._columns) == 1 and isinstance(self._columns[0], RowType):
            self._column_names, self._columns = self._columns[0].names, self._columns[0].types

    @property
    def _result_types(self) -> tuple[DataType, ...]:
        return self._columns


class UserDefinedAggregateFunctionWrapper(UserDefinedFunctionWrapper):
    """An aggregate or a table aggregate."""

    def __init__(
        self,
        func: Any,
        input_types: Any,
        result_type: Any,
        accumulator_type: Any,
        func_type: str,
        deterministic: bool | None,
        name: str | None,
        is_table_aggregate: bool = False,
    ) -> None:
        super().__init__(func, input_types, func_type, deterministic, name)
        decorator = "udtaf" if is_table_aggregate else "udaf"
        expected = TableAggregateFunction if is_table_aggregate else AggregateFunction
        if func_type == "general" and not isinstance(func, expected):
            raise refuse_type(
                f"{decorator}: found {func!r}, expected an object of a class derived from {expected.__name__}; a plain "
                "function of pandas Series is given with func_type='pandas'"
            )
        if isinstance(func, ImperativeAggregateFunction):
            result_type = result_type if result_type is not None else func.get_result_type()
            if func_type == "general" and accumulator_type is None:
                accumulator_type = func.get_accumulator_type()
        self._result_type = _returned(_one_type(decorator, "result_type", result_type))
        self._accumulator_type = None if accumulator_type is None else checked_type(decorator, accumulator_type)
        self._is_table_aggregate = is_table_aggregate

    def _call_node(self, arguments: tuple[Any, ...]) -> Any:
        return Aggregated(super()._call_node(arguments))

    @functools.cached_property
    def _user_function(self) -> UserFunction:
        kind = UserFunctionKind.TABLE_AGGREGATE if self._is_table_aggregate else UserFunctionKind.AGGREGATE
        return UserFunction(
            name=self._name,
            function=self._function_inside,
            result_types=self._result_types,
            argument_types=self._input_types,
            kind=kind,
            mode=self._mode,
            is_deterministic=self._deterministic,
            accumulator_type=self._accumulator_type,
            missing_methods=self._missing_methods,
        )

    @property
    def _missing_methods(self) -> tuple[str, ...]:
        """The optional methods that the function does not override."""
        function = type(self._func)
        general = ImperativeAggregateFunction
        return tuple(name for name in ("retract", "merge") if getattr(function, name, None) is getattr(general, name))

    @property
    def _function_inside(self) -> Any:
        if self._func_type == "pandas" and isinstance(self._func, AggregateFunction):
            return PandasAggregateFunctionWrapper(self._func)
        return self._func

    @property
    def _result_types(self) -> tuple[DataType, ...]:
        return (self._result_type,)


def _warn_of_lost_changes(func: Any, name: str) -> None:
    methods = ("eval", "accumulate", "get_value", "emit_value", "retract", "merge")
    calls = [getattr(func, each) for each in methods if hasattr(func, each)] or [func]
    for call in calls:
        warn_of_lost_changes(name, f"the function {name}", call)


def _types(parameter: str, declared_types: Any) -> tuple[DataType, ...]:
    """One type or several, as a tuple."""
    several = (
        declared_types
        if isinstance(declared_types, Sequence) and not isinstance(declared_types, str)
        else [declared_types]
    )
    return tuple(checked_type(parameter, each) for each in several)


def _one_type(decorator: str, parameter: str, data_type: Any) -> DataType:
    if data_type is None:
        raise refuse(f"{decorator}: {parameter}= is missing, expected a data type such as DataTypes.BIGINT()")
    return checked_type(f"{decorator}, {parameter}", data_type)


def _returned(data_type: DataType) -> DataType:
    """Checks that a function can return this type: returned values are checked by type, not by encoding."""
    way = construction_hint(data_type)
    if way is not None:
        raise refuse(f"a function that returns {data_type}: {way}")
    return data_type


def _name_of(func: Any) -> str:
    if isinstance(func, functools.partial):
        return _name_of(func.func)
    return str(getattr(func, "__name__", type(func).__name__))


def _determinism(func: Any, deterministic: bool | None) -> bool:
    if not isinstance(func, UserDefinedFunction):
        return deterministic is not False
    by_method = func.is_deterministic()
    if deterministic is not None and deterministic != by_method:
        raise refuse(
            f"deterministic: found {deterministic}, but {type(func).__name__}.is_deterministic() returns {by_method}. "
            "Use the same value in both"
        )
    return by_method


def is_asynchronous(func: Any) -> bool:
    """Whether a function is asynchronous."""
    called: Any = getattr(func, "eval", func)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(func).__call__)
