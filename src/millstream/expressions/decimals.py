"""How many digits the result of arithmetic on decimals has, by Flink's rules.

A result that would need more than 38 digits keeps its digits before the point, and gives up digits behind it, but never
below 6 of them (or as many as there are). A whole number counts as a decimal of as many digits as its type can have.
"""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.types import (
    BigIntType,
    DecimalType,
    IntegralType,
    IntType,
    NullType,
    SmallIntType,
    TinyIntType,
)

__all__ = [
    "DIGITS_MAX",
    "as_decimal",
    "average_type",
    "fitted",
    "product_type",
    "quotient_type",
    "remainder_type",
    "rounded_type",
    "sum_aggregate_type",
    "sum_type",
]

DIGITS_MAX = 38
"""No decimal has more digits."""
_SCALE_KEPT = 6
_WHOLE_DIGITS = {TinyIntType: 3, SmallIntType: 5, IntType: 10, BigIntType: 19}


def as_decimal(type_: DataType) -> DecimalType:
    """The decimal that holds all values of a decimal or whole number type.

    >>> str(as_decimal(BigIntType(False)))
    'DECIMAL(19, 0) NOT NULL'
    """
    if isinstance(type_, DecimalType):
        return type_
    if isinstance(type_, IntegralType):
        return DecimalType(_WHOLE_DIGITS[type(type_)], 0, type_.is_nullable)
    if isinstance(type_, NullType):
        return DecimalType(1, 0)
    raise ValueError(f"{type_} has no digits to count")


def fitted(precision: int, scale: int) -> DecimalType:
    """A decimal of so many digits, or the nearest there is.

    >>> str(fitted(45, 20)), str(fitted(60, 4)), str(fitted(10, 2))
    ('DECIMAL(38, 13)', 'DECIMAL(38, 4)', 'DECIMAL(10, 2)')
    """
    if precision <= DIGITS_MAX:
        return DecimalType(precision, scale)
    whole_digits = precision - scale
    return DecimalType(DIGITS_MAX, max(DIGITS_MAX - whole_digits, min(scale, _SCALE_KEPT)))


def sum_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """Of + and -."""
    scale = max(left.scale, right.scale)
    return fitted(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def product_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """Of *."""
    return fitted(left.precision + right.precision + 1, left.scale + right.scale)


def quotient_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """Of /."""
    scale = max(_SCALE_KEPT, left.scale + right.precision + 1)
    return fitted(left.precision - left.scale + right.scale + scale, scale)


def remainder_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """Of %."""
    scale = max(left.scale, right.scale)
    return fitted(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def rounded_type(type_: DecimalType, digits: int) -> DecimalType:
    """Of ROUND(x, digits) with constant digits; one digit more before the point, for 9.9 → 10.

    >>> str(rounded_type(DecimalType(4, 3), 1)), str(rounded_type(DecimalType(4, 3), -1))
    ('DECIMAL(3, 1)', 'DECIMAL(2, 0)')
    """
    if digits >= type_.scale:
        return DecimalType(type_.precision, type_.scale)
    whole_digits = 1 + type_.precision - type_.scale
    if digits < 0:
        return DecimalType(min(DIGITS_MAX, whole_digits), 0)
    return DecimalType(min(DIGITS_MAX, whole_digits + digits), digits)


def sum_aggregate_type(type_: DecimalType) -> DecimalType:
    """Of SUM."""
    return DecimalType(DIGITS_MAX, type_.scale)


def average_type(type_: DecimalType) -> DecimalType:
    """Of AVG: the sum divided by a count of 20 digits.

    >>> str(average_type(DecimalType(10, 2)))
    'DECIMAL(38, 6)'
    """
    return quotient_type(sum_aggregate_type(type_), DecimalType(20, 0))
