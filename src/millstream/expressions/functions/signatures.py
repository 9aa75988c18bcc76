"""Building blocks of signatures, so that a family of functions reads like a table.

A **parameter** says what it is in words ("a number") and to which type an argument is cast, or None if it does not take
it. `scalar` enters a function whose name is the first word of its syntax. The result may be NULL if an argument may,
unless `nulls` says otherwise. All errors speak alike:

    ABS takes a number, got STRING. Call it as ABS(number).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from millstream.expressions.coercion import can_cast, common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import (
    Arguments,
    Bind,
    Binding,
    FunctionDefinition,
    FunctionKind,
    SignatureError,
    define,
)
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

__all__ = [
    "ANY",
    "ARRAY",
    "BIGINT",
    "BOOLEAN",
    "BYTES",
    "DATE",
    "DOUBLE",
    "INT",
    "INTERVAL",
    "MAP",
    "NUMBER",
    "ROW",
    "STAMP",
    "STRING",
    "TEXT",
    "TEXT_OR_BYTES",
    "TIME",
    "TIME_POINT",
    "WHOLE",
    "Nulls",
    "Parameter",
    "either",
    "optional",
    "refusal",
    "repeated",
    "same_as",
    "scalar",
    "signature",
    "taken_as",
]

Nulls = Literal["any", "all", "always", "never", "own"]
"""When a result may be NULL: if any argument may, if all may, always, never, or as the result's rule itself says."""
Result = DataType | Callable[[Arguments], DataType]
"""The type of a result, or its rule; the rule gets the types that the arguments are cast to."""
STRING = VarCharType(LENGTH_MAX)


@dataclass(frozen=True)
class Parameter:
    """What one argument may be: in words, and the type it is cast to (None: not taken)."""

    noun: str
    taken: Callable[[DataType], DataType | None]
    is_optional: bool = False
    is_repeated: bool = False


def _of(noun: str, classes: tuple[type[DataType], ...], of_null: DataType) -> Parameter:
    """Takes types of these classes as they are; NULL becomes a type of them."""

    def taken(type_: DataType) -> DataType | None:
        if isinstance(type_, NullType):
            return of_null
        return type_ if isinstance(type_, classes) else None

    return Parameter(noun, taken)


def taken_as(noun: str, type_: DataType) -> Parameter:
    """Takes whatever can be cast to a type without saying so, and casts it."""

    def taken(from_: DataType) -> DataType | None:
        if from_.is_like(type_):
            return from_
        return type_.with_nullability(from_.is_nullable) if can_cast(from_.nullable(), type_, explicit=False) else None

    return Parameter(noun, taken)


def either(noun: str, *parameters: Parameter) -> Parameter:
    """Takes what one of these takes; the first that does, decides."""

    def taken(type_: DataType) -> DataType | None:
        return next((cast for each in parameters if (cast := each.taken(type_)) is not None), None)

    return Parameter(noun, taken)


def optional(parameter: Parameter) -> Parameter:
    """An argument that may be left out; only such follow it."""
    return replace(parameter, is_optional=True)


def repeated(parameter: Parameter) -> Parameter:
    """One or more arguments; the last parameter of a signature."""
    return replace(parameter, is_repeated=True)


ANY = Parameter("a value", lambda type_: type_)
NUMBER = _of("a number", (NumericType,), DoubleType())
WHOLE = _of("a whole number", (IntegralType,), IntType())
INT = taken_as("an INT", IntType())
BIGINT = taken_as("a BIGINT", BigIntType())
DOUBLE = taken_as("a number", DoubleType())
BOOLEAN = _of("a BOOLEAN", (BooleanType,), BooleanType())
TEXT = _of("text", (CharType, VarCharType), STRING)
BYTES = _of("bytes", (BinaryType, VarBinaryType), VarBinaryType(LENGTH_MAX))
TEXT_OR_BYTES = either("text or bytes", TEXT, BYTES)
DATE = _of("a DATE", (DateType,), DateType())
TIME = _of("a TIME", (TimeType,), TimeType())
STAMP = _of("a timestamp", (TimestampType, LocalZonedTimestampType), TimestampType(3))
TIME_POINT = _of(
    "a date, time or timestamp", (DateType, TimeType, TimestampType, LocalZonedTimestampType), TimestampType(3)
)
INTERVAL = _of("an interval", (YearMonthIntervalType, DayTimeIntervalType), DayTimeIntervalType())
ARRAY = _of("an array", (ArrayType,), ArrayType(NullType()))
MAP = _of("a map", (MapType,), MapType(NullType(), NullType()))
ROW = _of("a row", (RowType,), RowType())


def same_as(position: int) -> Callable[[Arguments], DataType]:
    """The result has the type of the argument at a position."""
    return lambda arguments: arguments.types[position]


def refusal(name: str, syntax: str, expected: str, types: Sequence[DataType]) -> SignatureError:
    """The error of a function that does not take arguments of these types."""
    found = ", ".join(str(type_.nullable()) for type_ in types) or "nothing"
    return SignatureError(f"{name} takes {expected}, got {found}. Call it as {syntax}.")


def signature(
    name: str,
    syntax: str,
    parameters: Sequence[Parameter],
    result: Result,
    nulls: Nulls = "any",
    common: Sequence[int] = (),
) -> Bind:
    """The rule of types of a function: its parameters, its result, which arguments are cast to one common type.

    `common` names positions; -1 among them: the last one named, and all that follow it.
    """
    fewest = sum(not parameter.is_optional for parameter in parameters)
    most = None if parameters and parameters[-1].is_repeated else len(parameters)

    def bind(arguments: Arguments) -> Binding:
        count = len(arguments)
        if count < fewest or (most is not None and count > most):
            raise refusal(name, syntax, _numbered(fewest, most), arguments.types)
        types: list[DataType] = []
        for position, type_ in enumerate(arguments.types):
            parameter = parameters[min(position, len(parameters) - 1)]
            taken = parameter.taken(type_)
            if taken is None:
                where = f" as argument {position + 1}" if len(parameters) > 1 else ""
                raise refusal(name, syntax, parameter.noun + where, [type_])
            types.append(taken.with_nullability(type_.is_nullable or isinstance(type_, NullType)))
        if common:
            _unify(name, syntax, types, common)
        cast = replace(arguments, types=tuple(types))
        type_of_result = result(cast) if callable(result) else result
        return Binding(tuple(types), with_nulls(type_of_result, types, nulls))

    return bind


def _numbered(fewest: int, most: int | None) -> str:
    if most is None:
        return f"{fewest} or more arguments"
    plural = "" if most == 1 else "s"
    if most == 0:
        return "no arguments"
    return f"{fewest} argument{plural}" if fewest == most else f"{fewest} to {most} arguments"


def _unify(name: str, syntax: str, types: list[DataType], common: Sequence[int]) -> None:
    """Give the arguments at these positions one type."""
    named = [position for position in common if 0 <= position < len(types)]
    if -1 in common:
        named += range(max(named, default=-1) + 1, len(types))
    together = common_type([types[position] for position in named])
    if together is None:
        raise refusal(name, syntax, "arguments of one type", [types[position] for position in named])
    for position in named:
        types[position] = together.with_nullability(types[position].is_nullable)


def with_nulls(result: DataType, types: Sequence[DataType], nulls: Nulls) -> DataType:
    """A result's type with NULL or without, by a rule."""
    if nulls == "own":
        return result
    flags = [type_.is_nullable for type_ in types]
    nullable = {"any": any(flags), "all": bool(flags) and all(flags), "always": True, "never": False}[nulls]
    return result.with_nullability(nullable)


def scalar(
    syntax: str,
    parameters: Sequence[Parameter],
    result: Result,
    doc: str,
    family: str,
    *,
    name: str | None = None,
    nulls: Nulls = "any",
    common: Sequence[int] = (),
    bind: Bind | None = None,
    **flags: Any,
) -> FunctionDefinition:
    """Enter a scalar function; `flags` are those of `FunctionDefinition`. `bind` replaces the rule made of the rest."""
    called = name or syntax.split("(", 1)[0].strip()
    rule = bind or signature(called, syntax, parameters, result, nulls, common)
    return define(FunctionDefinition(called, rule, syntax, doc, family, FunctionKind.SCALAR, **flags))
