"""The registry of built-in functions: static properties of each function, by name.

A **definition** consists of a name, a type rule and a line of documentation. The rule (`bind`) takes the argument
types, with the values of constants, and returns the types to cast them to and the result type, or raises a
`SignatureError` that states the accepted arguments. Each family's module calls `define`; kernels of the same name are
in `runtime.expressions.kernels`, aggregates in `aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType

__all__ = ["Arguments", "Binding", "FunctionDefinition", "FunctionKind", "SignatureError", "define", "definition_of"]


class SignatureError(ProgramError):
    """A function does not accept these arguments; the message states which it accepts."""


class FunctionKind(Enum):
    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"  # returns rows, such as UNNEST
    WINDOW = "window"  # ROW_NUMBER, LAG


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call: types, and the values of constants (`NOT_CONSTANT` for others)."""

    types: tuple[DataType, ...]
    constants: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.types)

    def constant(self, position: int) -> Any:
        """The constant at a position, or NOT_CONSTANT."""
        return self.constants[position] if position < len(self.constants) else NOT_CONSTANT


NOT_CONSTANT = object()


@dataclass(frozen=True)
class Binding:
    """The types to cast the arguments to, and the result type."""

    arguments: tuple[DataType, ...]
    result: DataType


Bind = Callable[[Arguments], Binding]


@dataclass(frozen=True)
class FunctionDefinition:
    """A built-in function. `syntax` shows how to call it, `doc` is one sentence; `method` is its Table API name."""

    name: str
    bind: Bind
    syntax: str
    doc: str
    family: str
    kind: FunctionKind = FunctionKind.SCALAR
    deterministic: bool = True
    is_lazy: bool = False  # may skip arguments: AND, CASE, COALESCE
    may_fail: bool = True  # may raise for some values, so it is evaluated only for rows that need it
    is_expensive: bool = False  # over 50 ns per value: evaluated once per distinct value if that is cheaper
    method: str | None = None


_DEFINITIONS: dict[str, FunctionDefinition] = {}


def define(definition: FunctionDefinition) -> FunctionDefinition:
    """Registers a function; names are unique."""
    if definition.name in _DEFINITIONS:
        raise ValueError(f"the function {definition.name} is defined twice")
    _DEFINITIONS[definition.name] = definition
    return definition


def definition_of(name: str) -> FunctionDefinition | None:
    """The built-in function with a name, case-insensitive."""
    _load()
    return _DEFINITIONS.get(name) or _DEFINITIONS.get(name.upper())


def definitions() -> Iterator[FunctionDefinition]:
    """All built-in functions, by name."""
    _load()
    return iter(sorted(_DEFINITIONS.values(), key=lambda each: each.name))


def _load() -> None:
    """Imports the families on first use."""
    from millstream.expressions.functions import families

    families.load()


def bound(definition: FunctionDefinition, types: Sequence[DataType], *constants: Any) -> Binding:
    """Binds a call with argument types and constants."""
    return definition.bind(Arguments(tuple(types), tuple(constants)))
