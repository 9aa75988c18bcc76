"""Typed expressions over the columns of a row: frozen data, built by the planner, run by `runtime.expressions`.

CAST, CASE, AND and similar constructs are ordinary calls. The arguments of a call already have the types that its
function accepts; the planner inserts casts where necessary. `site` is the position in the program, for run-time errors.
Equality ignores it, so that common subexpressions are recognised.

Values of literals are Python values: int, bool, float, str, bytes, decimal.Decimal, datetime.date, .time, .datetime (in
UTC for TIMESTAMP_LTZ), .timedelta for day-time intervals, int for months, list, dict, tuple for a row; None is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.expressions.data_type import DataType

__all__ = ["Call", "Column", "Literal", "RowExpression", "UserCall", "columns_of", "transform", "walk"]


@dataclass(frozen=True)
class RowExpression:
    """An expression that is evaluated per row."""

    type: DataType


@dataclass(frozen=True)
class Column(RowExpression):
    """The column at `index` of the input."""

    index: int


@dataclass(frozen=True)
class Literal(RowExpression):
    """A constant. Values that Python considers equal (1, 1.0, True) differ by their type."""

    value: Any = None

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.type == other.type and repr(self.value) == repr(other.value)


@dataclass(frozen=True)
class Call(RowExpression):
    """A call of a built-in function by its name in `expressions.functions`. `options` are keywords of its syntax."""

    function: str
    arguments: tuple[RowExpression, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    site: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class UserCall(RowExpression):
    """A call of a user-defined scalar function."""

    function: Any
    arguments: tuple[RowExpression, ...] = ()
    site: str | None = field(default=None, compare=False)


def walk(expression: RowExpression) -> Iterator[RowExpression]:
    """The expression and all its subexpressions, outermost first."""
    yield expression
    for argument in getattr(expression, "arguments", ()):
        yield from walk(argument)


def columns_of(*expressions: RowExpression) -> frozenset[int]:
    """The indexes of the columns that the expressions read.

    >>> from millstream.expressions.types import BigIntType
    >>> columns_of(Call(BigIntType(), "+", (Column(BigIntType(), 2), Literal(BigIntType(), 1))))
    frozenset({2})
    """
    return frozenset(e.index for whole in expressions for e in walk(whole) if isinstance(e, Column))


def transform(expression: RowExpression, change: Callable[[RowExpression], RowExpression]) -> RowExpression:
    """Transforms all subexpressions, innermost first; unchanged ones are reused."""
    if isinstance(expression, Call | UserCall):
        arguments = tuple(transform(argument, change) for argument in expression.arguments)
        if any(new is not old for new, old in zip(arguments, expression.arguments, strict=True)):
            expression = replace(expression, arguments=arguments)
    return change(expression)
