"""CASE, COALESCE, IF, IFNULL, NULLIF.

The arguments of a CASE are condition, value, condition, value, …, and last the ELSE value. All functions except NULLIF
evaluate only the conditions up to the first that is true, and the chosen value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.expressions.coercion import common_type, leading_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.comparison import compared_type
from millstream.expressions.functions.registry import Arguments, Binding
from millstream.expressions.functions.signatures import refusal, scalar
from millstream.expressions.nanosecond_range import uncast_times
from millstream.expressions.types import BooleanType, NullType

__all__: list[str] = []

FAMILY = "conditional"


def _nullable(type_: DataType) -> bool:
    return type_.is_nullable or isinstance(type_, NullType)


def _conditions(name: str, syntax: str, types: Sequence[DataType]) -> list[DataType]:
    for type_ in types:
        if not isinstance(type_, BooleanType | NullType):
            raise refusal(name, syntax, "a condition of BOOLEAN", [type_])
    return [BooleanType(_nullable(type_)) for type_ in types]


def _values(name: str, syntax: str, types: Sequence[DataType]) -> tuple[DataType, list[DataType]]:
    """The common type of values, and the type to which each is cast."""
    common = leading_type(types) if name in ("CASE", "IF") else common_type(types)
    if common is None:
        raise refusal(name, syntax, "values of one type", types)
    return common, [common.with_nullability(_nullable(type_)) for type_ in types]


def _bind_case(arguments: Arguments) -> Binding:
    syntax = "CASE WHEN condition THEN value … ELSE value END"
    types = arguments.types
    if len(types) < 2:
        raise refusal("CASE", syntax, "conditions and values", types)
    pairs = len(types) // 2
    conditions = _conditions("CASE", syntax, types[0 : 2 * pairs : 2])
    values = [*types[1 : 2 * pairs : 2], *types[2 * pairs :]]
    common, cast = _values("CASE", syntax, values)
    interleaved = [each for pair in zip(conditions, cast, strict=False) for each in pair] + cast[pairs:]
    nullable = common.is_nullable or len(types) % 2 == 0
    return Binding(tuple(interleaved), common.with_nullability(nullable))


def _bind_if(arguments: Arguments) -> Binding:
    syntax = "IF(condition, value, otherwise)"
    if len(arguments) != 3:
        raise refusal("IF", syntax, "3 arguments", arguments.types)
    condition = _conditions("IF", syntax, arguments.types[:1])
    common, cast = _values("IF", syntax, arguments.types[1:])
    nullable = any(map(_nullable, arguments.types))
    return Binding((*condition, *cast), common.with_nullability(nullable))


def _bind_first(name: str, syntax: str, count: int | None) -> Callable[[Arguments], Binding]:
    def bind(arguments: Arguments) -> Binding:
        if not len(arguments) or (count is not None and len(arguments) != count):
            expected = f"{count} arguments" if count is not None else "one or more arguments"
            raise refusal(name, syntax, expected, arguments.types)
        common, cast = _values(name, syntax, arguments.types)
        return Binding(tuple(cast), common.with_nullability(all(map(_nullable, arguments.types))))

    return bind


def _bind_nullif(arguments: Arguments) -> Binding:
    syntax = "NULLIF(value, other)"
    if len(arguments) != 2:
        raise refusal("NULLIF", syntax, "2 arguments", arguments.types)
    first, second = arguments.types
    compared = compared_type("NULLIF", arguments.types, syntax)
    if isinstance(first, NullType):
        return Binding((compared.nullable(), compared.with_nullability(_nullable(second))), compared.nullable())
    # The second argument is cast for the comparison if it fits; the first keeps its type, which is the result type.
    fits = common_type([first, second]) == first.with_nullability(compared.is_nullable)
    other = first if fits and uncast_times([first, second], compared) is None else second
    return Binding((first, other.with_nullability(_nullable(second))), first.nullable())


def _define() -> None:
    result = BooleanType()
    lazy: dict[str, Any] = {"is_lazy": True, "may_fail": False}
    case = "CASE WHEN condition THEN value … ELSE value END"
    scalar(
        case, (), result, "The value of the first condition that is TRUE.", FAMILY, name="CASE", bind=_bind_case, **lazy
    )
    either = "IF(condition, value, otherwise)"
    scalar(either, (), result, "A value if the condition is TRUE, else the other.", FAMILY, bind=_bind_if, **lazy)
    first = "The first value that is not NULL."
    coalesce, ifnull = "COALESCE(value, …)", "IFNULL(value, otherwise)"
    scalar(coalesce, (), result, first, FAMILY, bind=_bind_first("COALESCE", coalesce, None), **lazy)
    scalar(ifnull, (), result, first, FAMILY, bind=_bind_first("IFNULL", ifnull, 2), **lazy)
    unless = "The first value, or NULL if it equals the second."
    scalar("NULLIF(value, other)", (), result, unless, FAMILY, bind=_bind_nullif, may_fail=False)


_define()
