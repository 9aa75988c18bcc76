"""Typed expressions over the columns of one row: frozen data, made by the planner, run by `runtime.expressions`.

CAST, CASE, AND and the like are calls as any other. The arguments of a call already have the types its function takes:
where the program wrote others, the planner put casts between. `site` says where it was written, for errors at run time;
it takes no part in equality, so that common parts are found.

A literal's value is a Python one: int, bool, float, str, bytes, decimal.Decimal, datetime.date, .time, .datetime (of
TIMESTAMP_LTZ in UTC), .timedelta for days to seconds, an int of months, list, dict, tuple of a row; None is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.expressions.data_type import DataType

__all__ = ["Call", "Column", "Literal", "RowExpression", "UserCall", "columns_of", "mapped", "walk"]


@dataclass(frozen=True)
class RowExpression:
    """Anything with a value in a row."""

    type: DataType


@dataclass(frozen=True)
class Column(RowExpression):
    """The column at `index` of the input."""

    index: int


@dataclass(frozen=True)
class Literal(RowExpression):
    """A constant. Values that Python holds equal (1, 1.0, True) differ by their type."""

    value: Any = None

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.type == other.type and repr(self.value) == repr(other.value)


@dataclass(frozen=True)
class Call(RowExpression):
    """A built-in function of `expressions.functions`, by its name there. `options` are words of its syntax."""

    function: str
    arguments: tuple[RowExpression, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    site: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class UserCall(RowExpression):
    """A scalar function of the program's."""

    function: Any
    arguments: tuple[RowExpression, ...] = ()
    site: str | None = field(default=None, compare=False)


def walk(expression: RowExpression) -> Iterator[RowExpression]:
    """The expression and all inside it, outermost first."""
    yield expression
    for argument in getattr(expression, "arguments", ()):
        yield from walk(argument)


def columns_of(*expressions: RowExpression) -> frozenset[int]:
    """The columns that are looked at.

    >>> from millstream.expressions.types import BigIntType
    >>> columns_of(Call(BigIntType(), "+", (Column(BigIntType(), 2), Literal(BigIntType(), 1))))
    frozenset({2})
    """
    return frozenset(e.index for whole in expressions for e in walk(whole) if isinstance(e, Column))


def mapped(expression: RowExpression, change: Callable[[RowExpression], RowExpression]) -> RowExpression:
    """The expression with every part changed, innermost first; what stays as it is, is not made anew."""
    if isinstance(expression, Call | UserCall):
        arguments = tuple(mapped(argument, change) for argument in expression.arguments)
        if any(new is not old for new, old in zip(arguments, expression.arguments, strict=True)):
            expression = replace(expression, arguments=arguments)
    return change(expression)
