"""Building blocks of signatures, so that a family of functions can be declared as a table.

A **parameter** has a noun ("a number") and a rule that returns the type to cast an argument to, or None to reject it.
`scalar` registers a function under the first word of its syntax. The result is nullable if any argument is, unless
`nulls` specifies otherwise. All errors have the same form:

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
    "castable_to",
    "either",
    "optional",
    "refusal",
    "repeated",
    "same_as",
    "scalar",
    "signature",
]

Nulls = Literal["any", "all", "always", "never", "own"]
"""When a result is nullable: if any argument is, if all are, always, never, or as determined by the result's rule."""
Result = DataType | Callable[[Arguments], DataType]
"""The result type, or its rule, which takes the types that the arguments are cast to."""
STRING = VarCharType(LENGTH_MAX)


@dataclass(frozen=True)
class Parameter:
    """The accepted types of an argument: a noun, and the type to cast it to (None: rejected)."""

    noun: str
    accept: Callable[[DataType], DataType | None]
    is_optional: bool = False
    is_repeated: bool = False


def _of(noun: str, classes: tuple[type[DataType], ...], of_null: DataType) -> Parameter:
    """Accepts types of these classes unchanged; NULL becomes `of_null`."""

    def accept(type_: DataType) -> DataType | None:
        if isinstance(type_, NullType):
            return of_null
        return type_ if isinstance(type_, classes) else None

    return Parameter(noun, accept)


def castable_to(noun: str, type_: DataType) -> Parameter:
    """Accepts types that can be cast implicitly to a type, and casts them."""

    def accept(from_: DataType) -> DataType | None:
        if from_.is_like(type_):
            return from_
        return type_.with_nullability(from_.is_nullable) if can_cast(from_.nullable(), type_, explicit=False) else None

    return Parameter(noun, accept)


def either(noun: str, *parameters: Parameter) -> Parameter:
    """Accepts the types of any of these parameters; the first that accepts decides the cast."""

    def accept(type_: DataType) -> DataType | None:
        return next((cast for each in parameters if (cast := each.accept(type_)) is not None), None)

    return Parameter(noun, accept)


def optional(parameter: Parameter) -> Parameter:
    """An argument that may be omitted; only optional arguments may follow it."""
    return replace(parameter, is_optional=True)


def repeated(parameter: Parameter) -> Parameter:
    """One or more arguments; must be the last parameter of a signature."""
    return replace(parameter, is_repeated=True)


ANY = Parameter("a value", lambda type_: type_)
NUMBER = _of("a number", (NumericType,), DoubleType())
WHOLE = _of("an integer", (IntegralType,), IntType())
INT = castable_to("an INT", IntType())
BIGINT = castable_to("a BIGINT", BigIntType())
DOUBLE = castable_to("a number", DoubleType())
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
    """The result type is the type of the argument at a position."""
    return lambda arguments: arguments.types[position]


def refusal(name: str, syntax: str, expected: str, types: Sequence[DataType]) -> SignatureError:
    """The error of a function that does not accept arguments of these types."""
    shown = ", ".join(str(type_.nullable()) for type_ in types) or "nothing"
    return SignatureError(f"{name} takes {expected}, got {shown}. Call it as {syntax}.")


def signature(
    name: str,
    syntax: str,
    parameters: Sequence[Parameter],
    result: Result,
    nulls: Nulls = "any",
    common: Sequence[int] = (),
) -> Bind:
    """The type rule of a function: its parameters, its result, and the arguments to cast to a common type.

    `common` lists positions; -1 adds all positions after the last listed one.
    """
    fewest = sum(not parameter.is_optional for parameter in parameters)
    most = None if parameters and parameters[-1].is_repeated else len(parameters)

    def bind(arguments: Arguments) -> Binding:
        count = len(arguments)
        if count < fewest or (most is not None and count > most):
            raise refusal(name, syntax, _count_text(fewest, most), arguments.types)
        types: list[DataType] = []
        for position, type_ in enumerate(arguments.types):
            parameter = parameters[min(position, len(parameters) - 1)]
            cast_type = parameter.accept(type_)
            if cast_type is None:
                where = f" as argument {position + 1}" if len(parameters) > 1 else ""
                raise refusal(name, syntax, parameter.noun + where, [type_])
            types.append(cast_type.with_nullability(type_.is_nullable or isinstance(type_, NullType)))
        if common:
            _unify(name, syntax, types, common)
        cast = replace(arguments, types=tuple(types))
        type_of_result = result(cast) if callable(result) else result
        return Binding(tuple(types), with_nulls(type_of_result, types, nulls))

    return bind


def _count_text(fewest: int, most: int | None) -> str:
    if most is None:
        return f"{fewest} or more arguments"
    plural = "" if most == 1 else "s"
    if most == 0:
        return "no arguments"
    return f"{fewest} argument{plural}" if fewest == most else f"{fewest} to {most} arguments"


def _unify(name: str, syntax: str, types: list[DataType], common: Sequence[int]) -> None:
    """Casts the arguments at these positions to their common type."""
    named = [position for position in common if 0 <= position < len(types)]
    if -1 in common:
        named += range(max(named, default=-1) + 1, len(types))
    shared = common_type([types[position] for position in named])
    if shared is None:
        raise refusal(name, syntax, "arguments of one type", [types[position] for position in named])
    for position in named:
        types[position] = shared.with_nullability(types[position].is_nullable)


def with_nulls(result: DataType, types: Sequence[DataType], nulls: Nulls) -> DataType:
    """Applies a nullability rule to a result type."""
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
    """Registers a scalar function; `flags` are fields of `FunctionDefinition`; `bind` replaces the derived rule."""
    function_name = name or syntax.split("(", 1)[0].strip()
    rule = bind or signature(function_name, syntax, parameters, result, nulls, common)
    return define(FunctionDefinition(function_name, rule, syntax, doc, family, FunctionKind.SCALAR, **flags))
