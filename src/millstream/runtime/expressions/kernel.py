"""What a kernel is: a function over columns that does what one SQL function does, for all rows at once.

A kernel gets Arrow arrays of just the types its definition was bound to, all of one length, or a scalar where the
argument is one value for all rows. It gives an array of the Arrow type of the call's result, of that length; of scalars
alone it may give a scalar. NULL is Arrow's null. A value that cannot be computed (a division by zero, text that is no
number) raises `ValueProblem` with the position of the first such row; the program adds the expression and the record.

Kernels are pure but for what `CallContext` gives. They are entered by name with `kernel`, one module per family; the
same name in `references` is the slow and obvious way: a Python function of the values of one row.
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
    "Kernel",
    "SessionFacts",
    "Value",
    "ValueProblem",
    "kernel",
    "load_kernels",
    "load_references",
    "reference",
]

Value: TypeAlias = pa.Array | pa.Scalar
"""A column, or one value for all rows."""


class ValueProblem(Exception):
    """The function has no result for the value in row `row`; the text says why."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class SessionFacts:
    """What functions may know beyond their arguments. `now_us`: the epoch's moment; `draws`: chance, which the machine
    has where there is no task."""

    zone: str = "UTC"
    now_us: int = 0
    watermark_ms: int | None = None
    catalog: str = "default_catalog"
    database: str = "default_database"
    draws: Draws | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CallContext:
    """The call a kernel works for, and how many rows there are."""

    call: Call
    rows: int
    session: SessionFacts
    place: int = 0  # tells equal calls of one program apart

    @property
    def type(self) -> DataType:
        """The type of the result."""
        return self.call.type

    @property
    def argument_types(self) -> tuple[DataType, ...]:
        """The types of the arguments."""
        return tuple(argument.type for argument in self.call.arguments)

    def option(self, name: str, default: Any = None) -> Any:
        """A word of the call's syntax."""
        return dict(self.call.options).get(name, default)


Kernel = Callable[..., Value]
"""(context, *arguments) → the result."""
KERNELS: dict[str, Kernel] = {}
REFERENCES: dict[str, Callable[..., Any]] = {}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(*names: str) -> Callable[[_Function], _Function]:
    """Enter a kernel under the names of functions."""

    def enter(function: _Function) -> _Function:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"the kernel {name} is there already")
            KERNELS[name] = function
        return function

    return enter


def reference(*names: str) -> Callable[[_Function], _Function]:
    """Enter the slow way of functions: (context, *values) → value, for one row; None is NULL."""

    def enter(function: _Function) -> _Function:
        for name in names:
            if name in REFERENCES:
                raise ValueError(f"the reference {name} is there already")
            REFERENCES[name] = function
        return function

    return enter


@cache
def load_kernels() -> None:
    """Enter the kernels of all families."""
    _import_all("millstream.runtime.expressions.kernels")


@cache
def load_references() -> None:
    """Enter the slow ways of all families."""
    _import_all("millstream.runtime.expressions.references")


def _import_all(package: str) -> None:
    """Every module of a package is a family; importing it enters its functions."""
    folder = importlib.import_module(package)
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{package}.{module.name}")
