"""Window functions, allowed only with OVER: row numbers, ranks, and values of preceding and following rows."""

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


_window("ROW_NUMBER()", (), BigIntType(False), "The number of the row in the order, from 1.")
_window("RANK()", (), BigIntType(False), "The number of the first row equal in the order.")
_window("DENSE_RANK()", (), BigIntType(False), "One plus the number of distinct values before it.")
_window("PERCENT_RANK()", (), DoubleType(False), "The relative rank, from 0 to 1.")
_window("CUME_DIST()", (), DoubleType(False), "The fraction of rows that do not follow it.")
_window("NTILE(number)", (INT,), BigIntType(False), "The number of its bucket when divided into equal buckets, from 1.")
_window(
    "LAG(value [, offset [, default]])",
    (ANY, optional(INT), optional(ANY)),
    same_as(0),
    "The value of a preceding row.",
    "always",
)
_window(
    "LEAD(value [, offset [, default]])",
    (ANY, optional(INT), optional(ANY)),
    same_as(0),
    "The value of a following row.",
    "always",
)
