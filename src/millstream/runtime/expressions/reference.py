"""Reference evaluation of expressions: slow and obvious, one row at a time, with Python values.

`program` must compute the same; tests compare the two on random expressions. Values are Arrow's Python values: rows
are dicts, maps are lists of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.expressions.coercion import arrow_value
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall
from millstream.expressions.sql_text import sql_text
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import (
    REFERENCES,
    CallContext,
    EvaluationError,
    SessionFacts,
    load_references,
)

__all__ = ["evaluate"]


def evaluate(expression: RowExpression, row_values: Sequence[Any], session: SessionFacts | None = None) -> Any:
    """Evaluates an expression for a row."""
    load_references()
    return _value(expression, row_values, session or SessionFacts())


def _value(expression: RowExpression, row: Sequence[Any], session: SessionFacts) -> Any:
    if isinstance(expression, Column):
        return row[expression.index]
    if isinstance(expression, Literal):
        return arrow_value(expression).as_py()
    if isinstance(expression, UserCall):
        return expression.function.call(*(_value(argument, row, session) for argument in expression.arguments))
    if not isinstance(expression, Call):
        raise TypeError(f"no value for {expression!r}")
    match expression.function:
        case "AND" | "OR":
            return _logic(expression, row, session)
        case "CASE" | "IF":
            return _case(expression, row, session)
        case "COALESCE" | "IFNULL":
            return _first(expression, row, session)
    return _call(expression, row, session)


def _call(call: Call, row: Sequence[Any], session: SessionFacts) -> Any:
    values = [_value(argument, row, session) for argument in call.arguments]
    try:
        return REFERENCES[call.function](CallContext(call, 1, session), *values)
    except EvaluationError as problem:
        raise ExpressionError(str(problem), 0, call.site or sql_text(call), values) from None


def _logic(call: Call, row: Sequence[Any], session: SessionFacts) -> bool | None:
    """AND stops at FALSE, OR at TRUE; otherwise one unknown argument makes the result unknown."""
    decisive = call.function == "OR"
    is_unknown = False
    for argument in call.arguments:
        value: bool | None = _value(argument, row, session)
        if value is decisive:
            return decisive
        is_unknown |= value is None
    return None if is_unknown else not decisive


def _case(call: Call, row: Sequence[Any], session: SessionFacts) -> Any:
    arguments = call.arguments
    for position in range(0, len(arguments) - 1, 2):
        if _value(arguments[position], row, session) is True:
            return _value(arguments[position + 1], row, session)
    return _value(arguments[-1], row, session) if len(arguments) % 2 else None


def _first(call: Call, row: Sequence[Any], session: SessionFacts) -> Any:
    for argument in call.arguments:
        value = _value(argument, row, session)
        if value is not None:
            return value
    return None
