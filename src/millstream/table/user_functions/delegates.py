"""Plain Python functions in the shape of the function classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.table.user_functions.function_classes import (
    AggregateFunction,
    AsyncScalarFunction,
    FunctionContext,
    ScalarFunction,
    TableFunction,
)

__all__ = [
    "DelegatingAsyncScalarFunction",
    "DelegatingPandasAggregateFunction",
    "DelegatingScalarFunction",
    "DelegationTableFunction",
    "PandasAggregateFunctionWrapper",
]


class DelegatingScalarFunction(ScalarFunction):
    """A plain function as a ScalarFunction."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def eval(self, *args: Any) -> Any:
        return self.func(*args)


class DelegatingAsyncScalarFunction(AsyncScalarFunction):
    """A plain asynchronous function as an AsyncScalarFunction."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    async def eval(self, *args: Any) -> Any:
        return await self.func(*args)


class DelegationTableFunction(TableFunction):
    """A plain function as a TableFunction."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def eval(self, *args: Any) -> Iterable[Any]:
        rows: Iterable[Any] = self.func(*args)
        return rows


class DelegatingPandasAggregateFunction(AggregateFunction):
    """A plain function of pandas Series as an AggregateFunction: its accumulator holds the value."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator.append(self.func(*args))


class PandasAggregateFunctionWrapper:
    """An AggregateFunction over pandas Series, called once for all rows of a group."""

    def __init__(self, func: AggregateFunction) -> None:
        self.func = func

    def open(self, function_context: FunctionContext) -> None:
        """Open the function."""
        self.func.open(function_context)

    def eval(self, *args: Any) -> Any:
        """The value of one group."""
        accumulator = self.func.create_accumulator()
        self.func.accumulate(accumulator, *args)
        return self.func.get_value(accumulator)

    def close(self) -> None:
        """Close the function."""
        self.func.close()
