"""Reads comparisons of instants from conditions: each side is a column plus a constant."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import LocalZonedTimestampType, TimestampType

__all__ = ["Comparison", "TimeTerm", "comparison_of", "is_moment", "time_term"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class TimeTerm:
    """A column plus `offset_ms`."""

    column: int
    offset_ms: int = 0


@dataclass(frozen=True)
class Comparison:
    """Two compared expressions; `mirrored` swaps them."""

    left: RowExpression
    function: str
    right: RowExpression

    @property
    def mirrored(self) -> Comparison:
        return Comparison(self.right, _MIRRORED[self.function], self.left)


def is_moment(expression: RowExpression) -> bool:
    """Whether an expression is a point in time."""
    return isinstance(expression.type, TimestampType | LocalZonedTimestampType)


def comparison_of(part: RowExpression) -> Comparison | None:
    """The comparison of two instants in a conjunct; None for any other conjunct."""
    if not isinstance(part, Call) or part.function not in _MIRRORED or len(part.arguments) != 2:
        return None
    left, right = part.arguments
    return Comparison(left, part.function, right) if is_moment(left) and is_moment(right) else None


def time_term(expression: RowExpression) -> TimeTerm | None:
    """A column of instants plus or minus a day-time constant; None for any other expression."""
    if isinstance(expression, Column):
        return TimeTerm(expression.index) if is_moment(expression) else None
    if not isinstance(expression, Call) or expression.function not in ("+", "-") or len(expression.arguments) != 2:
        return None
    inner, moved_by = expression.arguments
    if expression.function == "+" and isinstance(inner, Literal):
        inner, moved_by = moved_by, inner
    if not isinstance(moved_by, Literal) or not isinstance(moved_by.value, datetime.timedelta):
        return None
    term = time_term(inner)
    milliseconds, rest = divmod(moved_by.value, datetime.timedelta(milliseconds=1))
    if term is None or rest:
        return None
    sign = 1 if expression.function == "+" else -1
    return TimeTerm(term.column, term.offset_ms + sign * milliseconds)
