"""User-defined functions as plain data for the planner and the tasks.

`function` is a plain function, or an object with `eval` (and `open`, `close`), which is pickled for tasks unchanged.
The mode determines how it is called: once per row, once per batch with pandas Series or Arrow arrays, or asynchronously
for several rows concurrently.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from millstream.expressions.data_type import DataType

__all__ = ["CallMode", "UserFunction", "UserFunctionKind", "ValueOfNoRows", "of_no_rows"]


_ENGINE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class UserFunctionKind(Enum):
    SCALAR = "scalar"
    TABLE = "table"
    AGGREGATE = "aggregate"
    TABLE_AGGREGATE = "table aggregate"


class CallMode(Enum):
    PER_ROW = "per row"
    PANDAS = "pandas"
    ARROW = "arrow"
    ASYNC = "async"


@dataclass(frozen=True, eq=False)
class UserFunction:
    """A user-defined function. `argument_types` None accepts any arguments. Equality is identity.

    `result_types` has one type; for table functions, one per result column.
    """

    name: str
    function: Any
    result_types: tuple[DataType, ...]
    argument_types: tuple[DataType, ...] | None = None
    kind: UserFunctionKind = UserFunctionKind.SCALAR
    mode: CallMode = CallMode.PER_ROW
    is_deterministic: bool = True
    accumulator_type: DataType | None = None
    missing_methods: tuple[str, ...] = ()  # which of `retract` and `merge` an aggregate lacks

    @property
    def result_type(self) -> DataType:
        """The result type of a scalar or aggregate function."""
        return self.result_types[0]

    @property
    def call(self) -> Callable[..., Any]:
        """The callable that takes the arguments."""
        evaluate = getattr(self.function, "eval", None)
        if evaluate is not None and not inspect.isfunction(self.function):
            return evaluate  # type: ignore[no-any-return]
        return self.function  # type: ignore[no-any-return]

    @property
    def place(self) -> str:
        """Where the program defines the function, such as `job.py:12`; its name if unknown."""
        method = getattr(self.function, "get_value", None) or self.call
        code = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)
        if code is None or code.co_filename.startswith(_ENGINE):
            return self.name
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"

    def expected_arguments(self, count: int) -> str | None:
        """The function's expected arguments if it cannot be called with `count` arguments; None if it can, or if its
        signature is unknown."""
        accumulate = getattr(self.function, "accumulate", None)
        method, passed = (self.call, count) if accumulate is None else (accumulate, 1 + count)
        try:
            # A decorator's own signature counts, not that of the wrapped function.
            signature = inspect.signature(method, follow_wrapped=False)
        except (TypeError, ValueError):  # builtins have no signature
            return None
        try:
            signature.bind(*[None] * passed)
        except TypeError:
            names = ", ".join(map(str, list(signature.parameters.values())[passed - count :]))
            return f"the arguments ({names})"
        return None


class ValueOfNoRows:
    """A scalar function without arguments that returns the value of a user-defined aggregate for no rows."""

    def __init__(self, aggregate: UserFunction) -> None:
        self.aggregate = aggregate

    def open(self, context: Any) -> None:
        self.aggregate.function.open(context)

    def close(self) -> None:
        self.aggregate.function.close()

    def eval(self) -> Any:
        return self.aggregate.function.get_value(self.aggregate.function.create_accumulator())


def of_no_rows(aggregate: UserFunction) -> UserFunction:
    """A scalar function that returns the aggregate's value for no rows."""
    function = ValueOfNoRows(aggregate)
    return replace(aggregate, function=function, kind=UserFunctionKind.SCALAR, argument_types=(), missing_methods=())
