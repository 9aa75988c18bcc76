"""The error of an expression in a running task, with its row, expression and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.errors import MillstreamError

__all__ = ["ExpressionError", "shown_call"]

_SHOWN_MAX = 80


class ExpressionError(MillstreamError):
    """An expression has no result for a row. `row` counts from 0 in the batch."""

    def __init__(self, problem: str, row: int, expression: str, values: Sequence[Any]) -> None:
        shown = ", ".join(_value_text(value) for value in values)
        of_values = f" for ({shown})" if values else ""
        super().__init__(f"{expression}: {problem}{of_values}, in row {row} of the batch")
        self.problem = problem
        self.row = row
        self.expression = expression
        self.values = tuple(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpressionError, (self.problem, self.row, self.expression, self.values)


def shown_call(name: str, values: Sequence[Any]) -> str:
    """Formats a call with its values.

    >>> shown_call("split", ("a b", None))
    "split('a b', NULL)"
    """
    return f"{name}({', '.join(map(_value_text, values))})"


def _value_text(value: Any) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"
