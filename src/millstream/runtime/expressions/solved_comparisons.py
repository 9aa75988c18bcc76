"""`0.908 * price > 1000000` is `price > 1101321`: a multiple that is compared with a constant is never computed.

Holds where the column is of whole numbers and the product is exact: a decimal that keeps all its digits and has room
for the largest of them. Then the constant can be divided instead, once, and rounded to the side that changes nothing.
NULL stays NULL on both sides. What is not of that form, or whose bound the column's type cannot hold, is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from millstream.expressions.row_expressions import Call, Literal, RowExpression
from millstream.expressions.types import DecimalType, IntegralType

__all__ = ["solved"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ROUNDED: dict[str, Callable[[Fraction], int]] = {
    "<": math.ceil,
    "<=": math.floor,
    ">": math.floor,
    ">=": math.ceil,
}


def solved(comparison: RowExpression) -> RowExpression:
    """The comparison of the column itself, where it is of a multiple; everything else as it is."""
    if not isinstance(comparison, Call) or comparison.function not in _MIRRORED:
        return comparison
    left, right = comparison.arguments
    function = comparison.function
    if isinstance(left, Literal):
        left, right, function = right, left, _MIRRORED[function]
    multiple = _multiple(left)
    if multiple is None or not isinstance(right, Literal) or not _is_exact(right):
        return comparison
    factor, column = multiple
    if factor < 0:
        function = _MIRRORED[function]
    bound = _ROUNDED[function](Fraction(right.value) / factor)
    assert isinstance(column.type, IntegralType)
    if not -(2 ** (column.type.bits - 1)) <= bound < 2 ** (column.type.bits - 1):
        return comparison
    return replace(comparison, function=function, arguments=(column, Literal(column.type.not_null(), bound)))


def _multiple(product: RowExpression) -> tuple[Fraction, RowExpression] | None:
    """The factor and the whole numbers of which this is the exact product; None: it is none."""
    product = _before_widening(product)
    if not isinstance(product, Call) or product.function != "*" or not isinstance(product.type, DecimalType):
        return None
    first, second = product.arguments
    factor, column = (first, second) if isinstance(first, Literal) else (second, first)
    if not isinstance(factor, Literal) or not _is_exact(factor) or not isinstance(column.type, IntegralType):
        return None
    # A digit that is rounded away, or a product that is NULL because it has too many, would make another answer.
    number, unit = Fraction(factor.value), 10**product.type.scale
    keeps_digits = (number * unit).denominator == 1
    has_room = abs(number) * 2 ** (column.type.bits - 1) * unit < 10**product.type.precision
    return (number, column) if number and keeps_digits and has_room else None


def _before_widening(value: RowExpression) -> RowExpression:
    """What is cast, where it is a decimal and the cast gives it room on both sides of the point and changes nothing."""
    if not isinstance(value, Call) or value.function != "CAST" or not isinstance(value.type, DecimalType):
        return value
    narrow, wide = value.arguments[0].type, value.type
    if not isinstance(narrow, DecimalType) or wide.scale < narrow.scale:
        return value
    return value.arguments[0] if wide.precision - wide.scale >= narrow.precision - narrow.scale else value


def _is_exact(literal: Literal) -> bool:
    return literal.value is not None and isinstance(literal.type, DecimalType | IntegralType)
