"""Expressions in the notation of Flink's plans: `>($2, 5)` in the syntax tree, `>(price, 5)` in the optimised plan, and
`(price > 5)` in the execution plan."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from enum import Enum

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall
from millstream.expressions.types import DayTimeIntervalType, DecimalType, YearMonthIntervalType

__all__ = ["Notation", "expression_text"]

_INFIX = frozenset({"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "LIKE", "SIMILAR TO"})


class Notation(Enum):
    """The notation of calls and columns."""

    LOGICAL = "columns by number, calls prefix"
    PHYSICAL = "columns by name, calls prefix"
    EXECUTION = "columns by name, calls infix"


def expression_text(expression: RowExpression, names: Sequence[str], notation: Notation) -> str:
    """The text of an expression over columns with these names."""
    if isinstance(expression, Column):
        return f"${expression.index}" if notation is Notation.LOGICAL else names[expression.index]
    if isinstance(expression, Literal):
        return _literal(expression)
    if isinstance(expression, Call):
        return _call(expression, names, notation)
    if isinstance(expression, UserCall):
        inside = ", ".join(expression_text(each, names, notation) for each in expression.arguments)
        return f"{getattr(expression.function, 'name', 'function')}({inside})"
    return repr(expression)


def _call(call: Call, names: Sequence[str], notation: Notation) -> str:
    parts = [expression_text(each, names, notation) for each in call.arguments]
    if call.function == "FIELD":
        return f"{parts[0]}.{dict(call.options)['name']}"
    if call.function == "ITEM":
        return f"{parts[0]}[{parts[1]}]" if notation is Notation.EXECUTION else f"ITEM({', '.join(parts)})"
    if call.function in ("CAST", "TRY_CAST"):
        if notation is Notation.LOGICAL:
            return f"{call.function}({parts[0]}):{call.type}"
        return f"{call.function}({parts[0]} AS {call.type.nullable()})"
    if call.function.startswith("IS ") and len(parts) == 1 and notation is Notation.EXECUTION:
        return f"{parts[0]} {call.function}"
    if call.function in _INFIX and len(parts) > 1 and notation is Notation.EXECUTION:
        return "(" + f" {call.function} ".join(parts) + ")"
    words = [f"FLAG({value})" for _, value in call.options if isinstance(value, str)]
    return f"{call.function}({', '.join(words + parts)})"


def _literal(literal: Literal) -> str:
    value, type_ = literal.value, literal.type
    if value is None:
        return "null" if type_.name == "NULL" else f"null:{type_.nullable()}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(type_, DayTimeIntervalType) and isinstance(value, datetime.timedelta):
        return f"{round(value / datetime.timedelta(milliseconds=1))}:INTERVAL {type_.resolution.value}"
    if isinstance(type_, YearMonthIntervalType):
        return f"{value}:INTERVAL {type_.resolution.value}"
    if isinstance(type_, DecimalType) and isinstance(value, decimal.Decimal):
        return f"{value}:{type_.nullable()}"
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)
