"""Precision and scale of decimal arithmetic, by Flink's rules.

A result that would exceed 38 digits keeps its digits before the point and loses fractional digits, down to at least 6
(or all, if it has fewer). An integer counts as a decimal with the maximum number of digits of its type.
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
    "bounded_decimal_type",
    "product_type",
    "quotient_type",
    "remainder_type",
    "rounded_type",
    "sum_aggregate_type",
    "sum_type",
]

DIGITS_MAX = 38
"""The maximum precision of a decimal."""
_SCALE_MIN = 6
_WHOLE_DIGITS = {TinyIntType: 3, SmallIntType: 5, IntType: 10, BigIntType: 19}


def as_decimal(type_: DataType) -> DecimalType:
    """The decimal type that holds all values of a decimal or integer type.

    >>> str(as_decimal(BigIntType(False)))
    'DECIMAL(19, 0) NOT NULL'
    """
    if isinstance(type_, DecimalType):
        return type_
    if isinstance(type_, IntegralType):
        return DecimalType(_WHOLE_DIGITS[type(type_)], 0, type_.is_nullable)
    if isinstance(type_, NullType):
        return DecimalType(1, 0)
    raise ValueError(f"{type_} has no decimal precision")


def bounded_decimal_type(precision: int, scale: int) -> DecimalType:
    """The decimal type with these digits, reduced to 38 if necessary.

    >>> str(bounded_decimal_type(45, 20)), str(bounded_decimal_type(60, 4)), str(bounded_decimal_type(10, 2))
    ('DECIMAL(38, 13)', 'DECIMAL(38, 4)', 'DECIMAL(10, 2)')
    """
    if precision <= DIGITS_MAX:
        return DecimalType(precision, scale)
    whole_digits = precision - scale
    return DecimalType(DIGITS_MAX, max(DIGITS_MAX - whole_digits, min(scale, _SCALE_MIN)))


def sum_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """The type of + and -."""
    scale = max(left.scale, right.scale)
    return bounded_decimal_type(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def product_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """The type of *."""
    return bounded_decimal_type(left.precision + right.precision + 1, left.scale + right.scale)


def quotient_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """The type of /."""
    scale = max(_SCALE_MIN, left.scale + right.precision + 1)
    return bounded_decimal_type(left.precision - left.scale + right.scale + scale, scale)


def remainder_type(left: DecimalType, right: DecimalType) -> DecimalType:
    """The type of %."""
    scale = max(left.scale, right.scale)
    return bounded_decimal_type(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def rounded_type(type_: DecimalType, digits: int) -> DecimalType:
    """The type of ROUND(x, digits) with constant digits; one more digit before the point, for 9.9 → 10.

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
    """The type of SUM."""
    return DecimalType(DIGITS_MAX, type_.scale)


def average_type(type_: DecimalType) -> DecimalType:
    """The type of AVG: the sum divided by a count of 20 digits.

    >>> str(average_type(DecimalType(10, 2)))
    'DECIMAL(38, 6)'
    """
    return quotient_type(sum_aggregate_type(type_), DecimalType(20, 0))
