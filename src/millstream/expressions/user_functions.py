"""A function of the program's, as the planner and the tasks know it: plain data around what the program wrote.

`function` is a plain function, or an object with `eval` (and `open`, `close`); it travels to the tasks as it is. How it
is called is its mode: once for every row, or once for a batch of rows with pandas Series or Arrow arrays, or, where it
is asynchronous, many rows at a time.
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
    """One function. `argument_types` None: whatever it is given. Two are equal if they are one object.

    `result_types` has one type, but for table functions, where it has one for each column of the result.
    """

    name: str
    function: Any
    result_types: tuple[DataType, ...]
    argument_types: tuple[DataType, ...] | None = None
    kind: UserFunctionKind = UserFunctionKind.SCALAR
    mode: CallMode = CallMode.PER_ROW
    is_deterministic: bool = True
    accumulator_type: DataType | None = None
    missing_methods: tuple[str, ...] = ()  # of `retract` and `merge`, those an aggregate has not

    @property
    def result_type(self) -> DataType:
        """The type of a scalar or an aggregate."""
        return self.result_types[0]

    @property
    def call(self) -> Callable[..., Any]:
        """What is called with the arguments."""
        evaluate = getattr(self.function, "eval", None)
        if evaluate is not None and not inspect.isfunction(self.function):
            return evaluate  # type: ignore[no-any-return]
        return self.function  # type: ignore[no-any-return]

    @property
    def place(self) -> str:
        """Where the program defines it: `job.py:12`; its name where Python does not know."""
        called = getattr(self.function, "get_value", None) or self.call
        code = getattr(inspect.unwrap(getattr(called, "__func__", called)), "__code__", None)
        if code is None or code.co_filename.startswith(_ENGINE):
            return self.name
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"

    def other_arguments(self, count: int) -> str | None:
        """The arguments that it takes where it cannot be called with so many; None where it can be, or nobody knows
        before it is."""
        accumulate = getattr(self.function, "accumulate", None)
        called, given = (self.call, count) if accumulate is None else (accumulate, 1 + count)
        try:
            # What a decorator passes on is its own affair.
            signature = inspect.signature(called, follow_wrapped=False)
        except (TypeError, ValueError):  # of what is built in
            return None
        try:
            signature.bind(*[None] * given)
        except TypeError:
            names = ", ".join(map(str, list(signature.parameters.values())[given - count :]))
            return f"the arguments ({names})"
        return None


class ValueOfNoRows:
    """What an aggregate of the program's gives of no rows, as a scalar function without arguments."""

    def __init__(self, aggregate: UserFunction) -> None:
        self.aggregate = aggregate

    def open(self, context: Any) -> None:
        self.aggregate.function.open(context)

    def close(self) -> None:
        self.aggregate.function.close()

    def eval(self) -> Any:
        return self.aggregate.function.get_value(self.aggregate.function.create_accumulator())


def of_no_rows(aggregate: UserFunction) -> UserFunction:
    """A scalar function that gives what an aggregate, called for every row, gives of no rows."""
    function = ValueOfNoRows(aggregate)
    return replace(aggregate, function=function, kind=UserFunctionKind.SCALAR, argument_types=(), missing_methods=())
