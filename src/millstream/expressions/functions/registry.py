"""What is known of a function without running it, and where to find it by its name.

A **definition** is a name, a rule of types and a line of documentation. The rule (`bind`) gets the arguments' types,
and their values where they are constants, and says what types they are to be cast to and what the result is, or raises
a `SignatureError` that says what the function takes. Modules of families call `define`; kernels of the same name stand
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
    """A function does not take these arguments; the message says which it takes."""


class FunctionKind(Enum):
    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"  # gives rows: UNNEST and the like
    WINDOW = "window"  # ROW_NUMBER, LAG


@dataclass(frozen=True)
class Arguments:
    """What a call is given: types, and values where they are constants (`NOT_CONSTANT` else)."""

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
    """The types the arguments are cast to, and the type of the result."""

    arguments: tuple[DataType, ...]
    result: DataType


Bind = Callable[[Arguments], Binding]


@dataclass(frozen=True)
class FunctionDefinition:
    """One function. `syntax` is how it is called, `doc` one sentence; `method` is its name in the Table API."""

    name: str
    bind: Bind
    syntax: str
    doc: str
    family: str
    kind: FunctionKind = FunctionKind.SCALAR
    deterministic: bool = True
    is_lazy: bool = False  # may not look at all its arguments: AND, CASE, COALESCE
    may_fail: bool = True  # can raise for some values: it is run only on rows that reach it
    is_expensive: bool = False  # costs more than 50 ns a value: run by distinct value where that pays
    method: str | None = None


_DEFINITIONS: dict[str, FunctionDefinition] = {}


def define(definition: FunctionDefinition) -> FunctionDefinition:
    """Enter a function. A name is given once."""
    if definition.name in _DEFINITIONS:
        raise ValueError(f"the function {definition.name} is defined twice")
    _DEFINITIONS[definition.name] = definition
    return definition


def definition_of(name: str) -> FunctionDefinition | None:
    """The built-in function of this name, whatever its case."""
    _load()
    return _DEFINITIONS.get(name) or _DEFINITIONS.get(name.upper())


def definitions() -> Iterator[FunctionDefinition]:
    """All built-in functions, by name."""
    _load()
    return iter(sorted(_DEFINITIONS.values(), key=lambda each: each.name))


def _load() -> None:
    """Families are imported when the first function is asked for."""
    from millstream.expressions.functions import families

    families.load()


def bound(definition: FunctionDefinition, types: Sequence[DataType], *constants: Any) -> Binding:
    """The binding of a call with these types."""
    return definition.bind(Arguments(tuple(types), tuple(constants)))
