"""User functions in queries: decorators and base classes.

`func_type="general"` (the default) calls a function per row, `"pandas"` with a Series per argument, `"arrow"` (beyond
PyFlink) with an Arrow array. All run in the task's process, without serialisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.pyflink_names import add_pyflink_names
from millstream.table.user_functions.delegates import (
    DelegatingAsyncScalarFunction,
    DelegatingPandasAggregateFunction,
    DelegatingScalarFunction,
    DelegationTableFunction,
    PandasAggregateFunctionWrapper,
)
from millstream.table.user_functions.function_classes import (
    AggregateFunction,
    AsyncScalarFunction,
    FunctionContext,
    ImperativeAggregateFunction,
    ScalarFunction,
    TableAggregateFunction,
    TableFunction,
    UserDefinedFunction,
)
from millstream.table.user_functions.wrappers import (
    UserDefinedAggregateFunctionWrapper,
    UserDefinedAsyncScalarFunctionWrapper,
    UserDefinedFunctionWrapper,
    UserDefinedScalarFunctionWrapper,
    UserDefinedTableFunctionWrapper,
    is_asynchronous,
)

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "DelegatingAsyncScalarFunction",
    "DelegatingPandasAggregateFunction",
    "DelegatingScalarFunction",
    "DelegationTableFunction",
    "FunctionContext",
    "ImperativeAggregateFunction",
    "PandasAggregateFunctionWrapper",
    "ScalarFunction",
    "TableAggregateFunction",
    "TableFunction",
    "UserDefinedAggregateFunctionWrapper",
    "UserDefinedAsyncScalarFunctionWrapper",
    "UserDefinedFunction",
    "UserDefinedFunctionWrapper",
    "UserDefinedScalarFunctionWrapper",
    "UserDefinedTableFunctionWrapper",
    "udaf",
    "udf",
    "udtaf",
    "udtf",
]


def udf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Creates a scalar function, which returns one value per row, from a plain function (as a decorator or by a call),
    a ScalarFunction, or an asynchronous function.

    >>> from millstream.table.types import DataTypes
    >>> from millstream.table.expressions import col
    >>> @udf(result_type=DataTypes.BIGINT())
    ... def add(a, b):
    ...     return a + b
    >>> print(add(col("x"), 3))
    add(x, 3)
    """

    def wrapped(function: Any) -> UserDefinedScalarFunctionWrapper:
        wrapper = UserDefinedScalarFunctionWrapper
        if is_asynchronous(function):
            wrapper = UserDefinedAsyncScalarFunctionWrapper
        return wrapper(function, input_types, result_type, func_type, deterministic, name)

    return _decorated(f, wrapped)


def udtf(
    f: Any = None,
    input_types: Any = None,
    result_types: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Any:
    """Creates a table function, which returns any number of rows per row. `result_types`: the types of its columns."""

    def wrapped(function: Any) -> UserDefinedTableFunctionWrapper:
        return UserDefinedTableFunctionWrapper(function, input_types, result_types, deterministic, name)

    return _decorated(f, wrapped)


def udaf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Creates an aggregate, which returns one value for many rows, from an AggregateFunction; with `func_type="pandas"`
    also from a plain function of Series."""

    def wrapped(function: Any) -> UserDefinedAggregateFunctionWrapper:
        return UserDefinedAggregateFunctionWrapper(
            function, input_types, result_type, accumulator_type, func_type, deterministic, name
        )

    return _decorated(f, wrapped)


def udtaf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Creates a table aggregate, which returns several rows for many rows, from a TableAggregateFunction."""

    def wrapped(function: Any) -> UserDefinedAggregateFunctionWrapper:
        return UserDefinedAggregateFunctionWrapper(
            function, input_types, result_type, accumulator_type, func_type, deterministic, name, True
        )

    return _decorated(f, wrapped)


def _decorated(function: Any, wrapped: Callable[[Any], UserDefinedFunctionWrapper]) -> Any:
    """The wrapper of a function; the decorator if no function is given."""
    return wrapped if function is None else wrapped(function)


add_pyflink_names(globals())
