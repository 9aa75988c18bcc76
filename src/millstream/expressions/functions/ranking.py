"""Numbers of rows in an order, and values of rows before and behind: what stands before OVER alone."""

from __future__ import annotations

from millstream.expressions.functions.registry import FunctionDefinition, FunctionKind, define
from millstream.expressions.functions.signatures import ANY, INT, Result, optional, same_as, signature
from millstream.expressions.functions.signatures import Parameter as Parameter
from millstream.expressions.types import BigIntType, DoubleType

__all__: list[str] = []


def _window(syntax: str, parameters: tuple[Parameter, ...], result: Result, doc: str, nulls: str = "never") -> None:
    name = syntax.split("(", 1)[0]
    rule = signature(name, syntax, parameters, result, nulls)  # type: ignore[arg-type]
    define(FunctionDefinition(name, rule, syntax, doc, "ranking", FunctionKind.WINDOW))


_window("ROW_NUMBER()", (), BigIntType(False), "The number of the row in its order, from 1.")
_window("RANK()", (), BigIntType(False), "The number of the first row that is its equal.")
_window("DENSE_RANK()", (), BigIntType(False), "How many different values come before it, and 1.")
_window("PERCENT_RANK()", (), DoubleType(False), "Its rank as a part of all, from 0 to 1.")
_window("CUME_DIST()", (), DoubleType(False), "Which part of all rows is not behind it.")
_window("NTILE(number)", (INT,), BigIntType(False), "In which of so many equal parts it is, from 1.")
_window(
    "LAG(value [, offset [, default]])", (ANY, optional(INT), optional(ANY)), same_as(0), "The value before.", "always"
)
_window(
    "LEAD(value [, offset [, default]])", (ANY, optional(INT), optional(ANY)), same_as(0), "The value behind.", "always"
)
