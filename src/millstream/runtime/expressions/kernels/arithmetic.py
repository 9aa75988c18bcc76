"""Kernels of + - * / % and signs: integers as in Java, floating point as in IEEE 754.

Integer sums and products wrap around. Division by zero is an error for integers and decimals, Infinity or NaN for
floating point. Decimals are computed by `decimal_operators`, times and intervals by the kernels in `temporal`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.expressions.decimals import as_decimal
from millstream.expressions.types import DecimalType, NumericType
from millstream.runtime.expressions.column_casts import cast_column
from millstream.runtime.expressions.decimal_operators import decimal_result
from millstream.runtime.expressions.kernel import KERNELS, CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.numbers import first_row, is_valid_row, number_column, numbers, validity

__all__: list[str] = []

DIVISION_BY_ZERO = "division by zero"


def _is_temporal(context: CallContext) -> bool:
    return not all(isinstance(type_, NumericType) for type_ in context.argument_types)


@kernel("+")
def add(context: CallContext, left: Value, right: Value | None = None) -> Value:
    """The sum, or the value itself for a unary +."""
    if right is None:
        return left
    if _is_temporal(context):
        return KERNELS["TEMPORAL +"](context, left, right)
    if isinstance(context.type, DecimalType):
        return decimal_result("+", context, left, right)
    return pc.add(left, right)


@kernel("-")
def subtract(context: CallContext, left: Value, right: Value | None = None) -> Value:
    """The difference, or the negative for a unary -."""
    if _is_temporal(context):
        return (
            KERNELS["TEMPORAL NEGATE"](context, left) if right is None else KERNELS["TEMPORAL -"](context, left, right)
        )
    if right is None:
        return pc.negate(left)
    if isinstance(context.type, DecimalType):
        return decimal_result("-", context, left, right)
    return pc.subtract(left, right)


@kernel("*")
def multiply(context: CallContext, left: Value, right: Value) -> Value:
    """The product."""
    if _is_temporal(context):
        return KERNELS["TEMPORAL *"](context, left, right)
    if isinstance(context.type, DecimalType):
        return decimal_result("*", context, left, right)
    return pc.multiply(left, right)


@kernel("/")
def divide(context: CallContext, left: Value, right: Value) -> Value:
    """The quotient; integer division truncates towards zero."""
    if isinstance(context.type, DecimalType):
        return decimal_result("/", context, left, right)
    if not kinds.is_integer(left.type):
        with np.errstate(all="ignore"):
            return _as_column(np.divide(numbers(left), numbers(right)), context, left, right)
    reject_zero(context.rows, left, right)
    if isinstance(right, pa.Scalar):
        if right.as_py() == -1:
            return pc.negate(_full(left, context.rows))
        return pc.divide(_full(left, context.rows), right)
    # Zeros remain only where the result is NULL. The smallest integer divided by -1 wraps around to itself.
    divisor = numbers(right)
    is_special = (divisor == 0) | (divisor == -1)
    if not is_special.any():
        return pc.divide(left, right)
    dividend = np.broadcast_to(numbers(left), divisor.shape)
    plain = np.where(is_special, 1, divisor)
    with np.errstate(all="ignore"):
        quotient = (dividend - np.fmod(dividend, plain)) // plain
        return _as_column(np.where(divisor == -1, -dividend, quotient), context, left, right)


@kernel("%", "MOD")
def remainder(context: CallContext, left: Value, right: Value) -> Value:
    """The remainder, with the sign of the dividend."""
    if isinstance(context.type, DecimalType):
        return decimal_result("%", context, left, right)
    if kinds.is_decimal(left.type):
        wide = replace(context, call=replace(context.call, type=as_decimal(context.type)))
        return cast_column(decimal_result("%", wide, left, right), wide.type, context.type, context.session)
    reject_zero(context.rows, left, right)
    divisor = numbers(right)
    if np.ndim(divisor) == 0 and divisor > 0 and kinds.is_int64(left.type):
        result = _remainder_by_constant(numbers(left), divisor)
    else:
        with np.errstate(all="ignore"):
            result = np.fmod(numbers(left), np.where(divisor == 0, np.ones_like(divisor), divisor))
    return _as_column(result, context, left, right)


def _remainder_by_constant(dividend: Any, divisor: Any) -> Any:
    """The remainder by a positive constant. numpy divides by constants many times faster than it computes remainders,
    and 32-bit numbers even faster. Quotients are rounded down, so this requires non-negative numbers."""
    if not np.ndim(dividend) or not len(dividend) or dividend.min() < 0:
        return np.fmod(dividend, divisor)
    if divisor < 2**32 and dividend.max() < 2**32:
        dividend, divisor = dividend.astype(np.uint32), np.uint32(divisor)
    multiples = dividend // divisor
    multiples *= divisor
    return np.subtract(dividend, multiples, out=multiples)


def reject_zero(rows: int, left: Value, right: Value) -> None:
    """Raises if a divisor is zero where the result would not be NULL."""
    if isinstance(right, pa.Scalar):
        if right.is_valid and right.as_py() == 0:
            is_set = is_valid_row(validity(rows, left), rows)
            if is_set.any():
                raise EvaluationError(DIVISION_BY_ZERO, first_row(is_set))
        return
    zero = pc.equal(right, pa.scalar(0, right.type))
    if pc.any(zero).as_py():
        fails = is_valid_row(zero.fill_null(False), rows) & is_valid_row(validity(rows, left), rows)
        if fails.any():
            raise EvaluationError(DIVISION_BY_ZERO, first_row(fails))


def _full(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def _as_column(values: Any, context: CallContext, *arguments: Value) -> pa.Array:
    """Computed numbers as a column of the result's type; NULL where an argument is NULL."""
    values = np.broadcast_to(values, (context.rows,))
    return number_column(values, context.type.arrow, validity(context.rows, *arguments))
