"""Adapters from plain Python functions to the function classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from millstream.expressions.nested_types import RowType
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
    "FrameResult",
    "FunctionShell",
    "PandasAggregateFunctionWrapper",
]


class FunctionShell:
    """Wraps a function of any form, and delegates `open` and `close`."""

    def __init__(self, function: Any) -> None:
        self._function = function

    @property
    def _call(self) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._function, "eval", self._function)
        return call

    def open(self, function_context: FunctionContext) -> None:
        """Calls the function's `open`, if defined."""
        if hasattr(self._function, "open"):
            self._function.open(function_context)

    def close(self) -> None:
        """Calls the function's `close`, if defined."""
        if hasattr(self._function, "close"):
            self._function.close()


class FrameResult(FunctionShell):
    """A Series function that returns a DataFrame for a declared row type: its columns become the row's fields."""

    def __init__(self, function: Any, row_type: RowType) -> None:
        super().__init__(function)
        self._row_type = row_type

    def eval(self, *args: Any) -> Any:
        """The function's result; a DataFrame as an Arrow column of rows."""
        result = self._call(*args)
        if not hasattr(result, "iloc") or getattr(result, "ndim", 1) != 2:
            return result
        if result.shape[1] != len(self._row_type.fields):
            raise ValueError(
                f"it returned a DataFrame of {result.shape[1]} columns, expected {len(self._row_type.fields)}: "
                + ", ".join(self._row_type.names)
            )
        types = [field.data_type.arrow for field in self._row_type.fields]
        columns = [pa.Array.from_pandas(result.iloc[:, place], type=type_) for place, type_ in enumerate(types)]
        return pa.StructArray.from_arrays(columns, list(self._row_type.names))


class DelegatingScalarFunction(ScalarFunction):
    """Adapts a plain function to ScalarFunction."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def eval(self, *args: Any) -> Any:
        return self.func(*args)


class DelegatingAsyncScalarFunction(AsyncScalarFunction):
    """Adapts a plain asynchronous function to AsyncScalarFunction."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    async def eval(self, *args: Any) -> Any:
        return await self.func(*args)


class DelegationTableFunction(TableFunction):
    """Adapts a plain function to TableFunction."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def eval(self, *args: Any) -> Iterable[Any]:
        rows: Iterable[Any] = self.func(*args)
        return rows


class DelegatingPandasAggregateFunction(AggregateFunction):
    """Adapts a plain function of pandas Series to AggregateFunction; its result is the accumulator."""

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
        """Opens the function."""
        self.func.open(function_context)

    def eval(self, *args: Any) -> Any:
        """The value of one group."""
        accumulator = self.func.create_accumulator()
        self.func.accumulate(accumulator, *args)
        return self.func.get_value(accumulator)

    def close(self) -> None:
        """Closes the function."""
        self.func.close()
