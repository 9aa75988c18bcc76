"""Simplifies expressions over exact products of a constant and an integer column.

    0.908 * price > 1000000                     price > 1101321
    CAST(0.908 * price AS DECIMAL(23, 3))       0.908 * price, of that type from the start

Both rewrites are valid if the product's type represents every product exactly. The bound is then divided once instead
of multiplying every number, and rounded in the direction that preserves the result. NULL stays NULL. Other forms, and
bounds outside the column's type, are left unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from millstream.expressions.row_expressions import Call, Literal, RowExpression
from millstream.expressions.types import DecimalType, IntegralType

__all__ = ["simplify_product"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ROUNDED: dict[str, Callable[[Fraction], int]] = {
    "<": math.ceil,
    "<=": math.floor,
    ">": math.floor,
    ">=": math.ceil,
}


def simplify_product(expression: RowExpression) -> RowExpression:
    """An equivalent simpler expression, or the expression itself. Considers only the outermost call."""
    if not isinstance(expression, Call):
        return expression
    if expression.function == "CAST":
        return _without_cast(expression)
    return _column_comparison(expression) if expression.function in _MIRRORED else expression


def _column_comparison(comparison: Call) -> Call:
    """The equivalent comparison of the column itself, if the expression compares a multiple of it."""
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


def _without_cast(cast: Call) -> Call:
    """The product without a cast that only changes its precision, if every product fits the new precision."""
    product, type_ = cast.arguments[0], cast.type
    if not isinstance(product, Call) or not isinstance(type_, DecimalType) or not isinstance(product.type, DecimalType):
        return cast
    if product.type.scale != type_.scale or _multiple(product) is None:
        return cast
    retyped = replace(product, type=type_)
    return cast if _multiple(retyped) is None else retyped


def _multiple(product: RowExpression) -> tuple[Fraction, RowExpression] | None:
    """The factor and the integer column of an exact product; None if it is not one."""
    product = _before_widening(product)
    if not isinstance(product, Call) or product.function != "*" or not isinstance(product.type, DecimalType):
        return None
    first, second = product.arguments
    factor, column = (first, second) if isinstance(first, Literal) else (second, first)
    if not isinstance(factor, Literal) or not _is_exact(factor) or not isinstance(column.type, IntegralType):
        return None
    # Rounding a digit, or a product that overflows to NULL, would change the result.
    number, unit = Fraction(factor.value), 10**product.type.scale
    keeps_digits = (number * unit).denominator == 1
    has_room = abs(number) * 2 ** (column.type.bits - 1) * unit < 10**product.type.precision
    return (number, column) if number and keeps_digits and has_room else None


def _before_widening(value: RowExpression) -> RowExpression:
    """The operand of a decimal cast that only adds integer or fractional digits, or else the value itself."""
    if not isinstance(value, Call) or value.function != "CAST" or not isinstance(value.type, DecimalType):
        return value
    narrow, wide = value.arguments[0].type, value.type
    if not isinstance(narrow, DecimalType) or wide.scale < narrow.scale:
        return value
    return value.arguments[0] if wide.precision - wide.scale >= narrow.precision - narrow.scale else value


def _is_exact(literal: Literal) -> bool:
    return literal.value is not None and isinstance(literal.type, DecimalType | IntegralType)
