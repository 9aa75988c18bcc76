"""Renders expressions as SQL, for errors and displayed plans."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall
from millstream.expressions.types import DayTimeIntervalType, YearMonthIntervalType

__all__ = ["sql_text"]

_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "||", "AND", "OR", "LIKE", "SIMILAR TO"}
_INFIX |= {"IS DISTINCT FROM", "IS NOT DISTINCT FROM"}


def sql_text(expression: RowExpression, names: Sequence[str] | None = None) -> str:
    """The expression in SQL syntax. Columns are printed by name, or by position: `$2` is the third.

    >>> from millstream.expressions.types import BigIntType
    >>> sum_ = Call(BigIntType(), "+", (Column(BigIntType(), 0), Literal(BigIntType(), 1)))
    >>> sql_text(sum_, ["price"]), sql_text(Call(BigIntType(), "ABS", (sum_,)))
    ('price + 1', 'ABS($0 + 1)')
    """
    if isinstance(expression, Column):
        if names is not None and expression.index < len(names):
            return names[expression.index]
        return f"${expression.index}"
    if isinstance(expression, Literal):
        return _literal_text(expression)
    if isinstance(expression, UserCall):
        name = getattr(expression.function, "name", "function")
        return f"{name}({', '.join(sql_text(argument, names) for argument in expression.arguments)})"
    if isinstance(expression, Call):
        return _call_text(expression, names)
    return repr(expression)


def _call_text(call: Call, names: Sequence[str] | None) -> str:
    texts = [sql_text(argument, names) for argument in call.arguments]
    if call.function in ("CAST", "TRY_CAST"):
        return f"{call.function}({texts[0]} AS {call.type.nullable()})"
    if call.function in _INFIX and len(texts) > 1:
        return f" {call.function} ".join(map(_in_brackets, call.arguments, texts))
    if call.function.startswith("IS ") and len(texts) == 1:
        return f"{_in_brackets(call.arguments[0], texts[0])} {call.function}"
    if call.function == "MINUS_DATE":
        return f"({' - '.join(map(_in_brackets, call.arguments, texts))}) {dict(call.options)['unit']}"
    if call.function == "NOT" or (call.function in ("-", "+") and len(texts) == 1):
        space = " " if call.function == "NOT" else ""
        return f"{call.function}{space}{_in_brackets(call.arguments[0], texts[0])}"
    if call.function == "CASE":
        pairs = [f"WHEN {when} THEN {then}" for when, then in zip(texts[0::2], texts[1::2], strict=False)]
        otherwise = [f"ELSE {texts[-1]}"] if len(texts) % 2 else []
        return " ".join(["CASE", *pairs, *otherwise, "END"])
    if call.function in ("IN", "NOT IN"):
        return f"{_in_brackets(call.arguments[0], texts[0])} {call.function} ({', '.join(texts[1:])})"
    if call.function in ("BETWEEN", "NOT BETWEEN"):
        return f"{_in_brackets(call.arguments[0], texts[0])} {call.function} {texts[1]} AND {texts[2]}"
    return f"{call.function}({', '.join(texts)})"


def _in_brackets(expression: RowExpression, text: str) -> str:
    """Encloses a subexpression in parentheses if it could be misread next to an operator."""
    is_open = isinstance(expression, Call) and (
        expression.function in _INFIX or expression.function.startswith(("IS ", "NOT", "IN", "BETWEEN"))
    )
    return f"({text})" if is_open and len(expression.arguments) > 0 else text  # type: ignore[attr-defined]


def _literal_text(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(literal.type, YearMonthIntervalType):
        return f"INTERVAL '{value}' MONTH"
    if isinstance(literal.type, DayTimeIntervalType):
        seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
        return f"INTERVAL '{seconds:g}' SECOND"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.time):
        return f"TIME '{value.isoformat()}'"
    return str(value)
