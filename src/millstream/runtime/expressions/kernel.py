"""Kernels: functions over columns that evaluate one SQL function for all rows at once.

A kernel takes Arrow arrays of exactly the types its definition was bound to, all of one length, or a scalar for an
argument that is constant. It returns an array of that length and of the Arrow type of the call's result; if all
arguments are scalars, it may return a scalar. NULL is Arrow's null. For a value without a result (division by zero,
malformed number) it raises `EvaluationError` with the position of the first failing row; the program adds the
expression and the record.

Kernels are pure except for `CallContext`. `kernel` registers them by name, one module per family; `references` has the
slow, obvious implementation under the same name: a Python function of the values of one row.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call
from millstream.runtime.expressions.draws import Draws

__all__ = [
    "KERNELS",
    "REFERENCES",
    "CallContext",
    "EvaluationError",
    "Kernel",
    "SessionFacts",
    "Value",
    "kernel",
    "load_kernels",
    "load_references",
    "reference",
]

Value: TypeAlias = pa.Array | pa.Scalar
"""A column, or one value for all rows."""


class EvaluationError(Exception):
    """The function has no result for the value in row `row`; the message states the reason."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class SessionFacts:
    """Inputs of functions beyond their arguments. `now_us`: the time of the epoch; `draws`: random numbers of the task,
    None outside a task (the machine's are then used)."""

    zone: str = "UTC"
    now_us: int = 0
    watermark_ms: int | None = None
    catalog: str = "default_catalog"
    database: str = "default_database"
    draws: Draws | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CallContext:
    """The call that a kernel evaluates, and the number of rows."""

    call: Call
    rows: int
    session: SessionFacts
    place: int = 0  # distinguishes equal calls in one program

    @property
    def type(self) -> DataType:
        """The type of the result."""
        return self.call.type

    @property
    def argument_types(self) -> tuple[DataType, ...]:
        """The types of the arguments."""
        return tuple(argument.type for argument in self.call.arguments)

    def option(self, name: str, default: Any = None) -> Any:
        """An option of the call's syntax."""
        return dict(self.call.options).get(name, default)


Kernel = Callable[..., Value]
"""(context, *arguments) → the result."""
KERNELS: dict[str, Kernel] = {}
REFERENCES: dict[str, Callable[..., Any]] = {}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(*names: str) -> Callable[[_Function], _Function]:
    """Registers a kernel for the named functions."""

    def register(function: _Function) -> _Function:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"the kernel {name} is already registered")
            KERNELS[name] = function
        return function

    return register


def reference(*names: str) -> Callable[[_Function], _Function]:
    """Registers the reference of functions: (context, *values) → value, for one row; None is NULL."""

    def register(function: _Function) -> _Function:
        for name in names:
            if name in REFERENCES:
                raise ValueError(f"the reference {name} is already registered")
            REFERENCES[name] = function
        return function

    return register


@cache
def load_kernels() -> None:
    """Registers the kernels of all families."""
    _import_all("millstream.runtime.expressions.kernels")


@cache
def load_references() -> None:
    """Registers the references of all families."""
    _import_all("millstream.runtime.expressions.references")


def _import_all(package: str) -> None:
    """Imports every module of a package, one per family; the import registers its functions."""
    folder = importlib.import_module(package)
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{package}.{module.name}")
