"""+ - * / % of decimals, rounded exactly as in Flink.

A result is rounded half away from zero to its scale; it becomes NULL if it has more digits than its type. Unscaled
integers are computed in 8 bytes by numpy if the largest magnitudes of the columns leave room for it; otherwise row by
row with Python's unbounded integers.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.expressions.types import DecimalType
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, Value
from millstream.runtime.expressions.numbers import (
    allocate,
    decimal_column,
    first_row,
    is_valid_row,
    magnitude,
    unscaled,
    validity,
)

__all__ = ["EXACT", "decimal_result", "null_if_overflow", "round_half_up", "round_to_type"]

EXACT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
"""Precision for any sum or product of decimals."""
_DIVISION = decimal.Context(prec=38, rounding=decimal.ROUND_HALF_UP)
_ROOM = 2**63 - 1


def decimal_result(operator: str, context: CallContext, left: Value, right: Value) -> pa.Array:
    """The column of `left operator right`."""
    if operator in ("/", "%"):
        _reject_zero(context.rows, left, right)
    type_ = context.type
    assert isinstance(type_, DecimalType)
    result = _in_eight_bytes(operator, type_, left, right)
    if result is not None:
        valid = validity(context.rows, left, right)
        result = np.broadcast_to(result, (context.rows,))
        return decimal_column(*null_if_overflow(result, type_, valid))
    return _row_by_row(operator, type_, context.rows, left, right)


def scale_of(value: Value) -> int:
    """Digits after the decimal point; 0 for integers."""
    return value.type.scale if kinds.is_decimal(value.type) else 0


def _in_eight_bytes(operator: str, type_: DecimalType, left: Value, right: Value) -> Any | None:
    """The unscaled results; None if 8 bytes may not suffice."""
    first, second = unscaled(left), unscaled(right)
    if first is None or second is None:
        return None
    first_scale, second_scale = scale_of(left), scale_of(right)
    first_max, second_max = magnitude(first), magnitude(second)
    if operator == "*":
        if first_max * second_max > _ROOM:
            return None
        return round_half_up(_product(first, second), first_scale + second_scale - type_.scale)
    if operator == "/":
        return _quotient(first, second, type_.scale + second_scale - first_scale)
    scale = max(first_scale, second_scale)
    first_factor, second_factor = 10 ** (scale - first_scale), 10 ** (scale - second_scale)
    if max(first_factor, second_factor) > _ROOM or first_max * first_factor + second_max * second_factor > _ROOM:
        return None
    first, second = first * np.int64(first_factor), second * np.int64(second_factor)
    if operator == "%":
        return round_half_up(np.fmod(first, np.where(second == 0, 1, second)), scale - type_.scale)
    total = first + second if operator == "+" else first - second
    return round_half_up(total, scale - type_.scale)


def _product(first: Any, second: Any) -> Any:
    if np.ndim(first) == np.ndim(second) == 0:
        return first * second
    return np.multiply(first, second, out=allocate(max(np.size(first), np.size(second)), np.int64))


def _quotient(dividend: Any, divisor: Any, shift: int) -> Any | None:
    """Integer quotients of dividend × 10^shift, rounded half away from zero; None if 8 bytes may not suffice.

    Long division: the remainder is multiplied by as large a power of ten as fits, and divided again. Flink first
    rounds to 38 digits, which does not affect 18 digits.
    """
    divisor = np.where(divisor == 0, 1, divisor)
    above, below = np.abs(dividend), np.abs(divisor)
    if shift < 0 or magnitude(dividend) > _ROOM or magnitude(divisor) > _ROOM // 20:
        return None
    quotient = above // below
    if (magnitude(quotient) + 1) * 10**shift > _ROOM:
        return None
    rest = above - quotient * below
    zeros_at_once = len(str(_ROOM // magnitude(divisor))) - 1
    while shift > 0:
        unit = np.int64(10 ** min(shift, zeros_at_once))
        shift -= zeros_at_once
        rest = rest * unit
        part = rest // below
        quotient = quotient * unit + part
        rest = rest - part * below
    quotient = quotient + (2 * rest >= below)
    return np.where((dividend < 0) != (divisor < 0), -quotient, quotient)


def round_half_up(values: Any, digits: int) -> Any:
    """Drops decimal digits, rounding half away from zero. A negative count appends zeros."""
    if digits <= 0:
        return values * np.int64(10**-digits) if digits else values
    if digits > 18:
        return values * 0
    unit = np.int64(10**digits)
    size = np.abs(values)
    whole, rest = size // unit, size % unit
    whole = whole + (rest >= unit - rest)
    return np.where(values < 0, -whole, whole)


def null_if_overflow(
    values: Any, type_: DecimalType, valid: pa.Array | None
) -> tuple[Any, pa.DataType, pa.Array | None]:
    """Replaces numbers with more digits than the type by NULL."""
    arrow = type_.arrow
    if type_.precision >= 19 or magnitude(values) < 10**type_.precision:
        return values, arrow, valid
    fits = np.abs(values) < 10**type_.precision
    mask = pa.array(fits)
    return np.where(fits, values, 0), arrow, mask if valid is None else pc.and_(valid, mask)


def _row_by_row(operator: str, type_: DecimalType, rows: int, left: Value, right: Value) -> pa.Array:
    operate = OPERATORS[operator]
    pairs = zip(_decimals(left, rows), _decimals(right, rows), strict=True)
    results = [None if a is None or b is None else round_to_type(operate(a, b), type_) for a, b in pairs]
    return pa.array(results, type_.arrow)


def _decimals(value: Value, rows: int) -> list[Any]:
    values = [value.as_py()] * rows if isinstance(value, pa.Scalar) else value.to_pylist()
    return [decimal.Decimal(each) if isinstance(each, int) else each for each in values]


def round_to_type(value: decimal.Decimal, type_: DecimalType) -> decimal.Decimal | None:
    """Rounds a decimal to the type's scale; None if it then has too many digits."""
    if value.adjusted() > 100:
        return None
    rounded = value.quantize(decimal.Decimal((0, (1,), -type_.scale)), context=EXACT)
    if not rounded:
        return rounded.copy_abs()  # Java does not return negative zero here
    return rounded if rounded.copy_abs() < decimal.Decimal((0, (1,), type_.precision - type_.scale)) else None


OPERATORS: dict[str, Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": _DIVISION.divide,
    "%": EXACT.remainder,
}


def _reject_zero(rows: int, left: Value, right: Value) -> None:
    is_set = is_valid_row(validity(rows, left, right), rows)
    zero = pc.equal(right, pa.scalar(decimal.Decimal(0) if kinds.is_decimal(right.type) else 0, right.type))
    is_zero = (
        np.full(rows, zero.as_py() is True)
        if isinstance(zero, pa.Scalar)
        else is_valid_row(zero.fill_null(False), rows)
    )
    if (is_zero & is_set).any():
        raise EvaluationError("division by zero", first_row(is_zero & is_set))
