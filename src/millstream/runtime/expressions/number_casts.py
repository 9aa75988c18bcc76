"""Casts numeric columns to other numeric types, narrowing like Java and rounding like Flink. None: wider than 8
bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.data_type import DataType
from millstream.expressions.types import DecimalType, IntegralType
from millstream.runtime.expressions.decimal_operators import null_if_overflow, round_half_up
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.runtime.expressions.numbers import (
    decimal_column,
    magnitude,
    number_column,
    numbers,
    unscaled,
    validity,
)

__all__ = [
    "decimal_to_decimal",
    "decimal_to_float",
    "decimal_to_integer",
    "float_to_integer",
    "integer_to_decimal",
    "integer_to_integer",
]

_ROOM = 2**63 - 1
_EXACT_WHOLE = 2**53


def integer_to_integer(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Narrowing drops the upper bits."""
    with np.errstate(all="ignore"):
        return number_column(numbers(values), to.arrow, validity(len(values), values))


def float_to_integer(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Truncates towards zero and saturates at 4 bytes (8 for BIGINT); NaN becomes 0."""
    assert isinstance(to, IntegralType)
    bits = max(to.bits, 32)
    limit = float(1 << (bits - 1))
    floats = numbers(values).astype(np.float64)
    whole = np.where(np.isnan(floats), 0.0, floats)
    inside = np.clip(whole, -limit, np.nextafter(limit, 0)).astype(np.int64)
    inside = np.where(whole >= limit, (1 << (bits - 1)) - 1, inside)
    return number_column(inside.astype(np.int64), to.arrow, validity(len(values), values))


def integer_to_decimal(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Numbers with too many digits become NULL."""
    assert isinstance(to, DecimalType)
    return _rescale(unscaled(values), 0, to, validity(len(values), values))


def decimal_to_decimal(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Rounds half away from zero; numbers with too many digits become NULL."""
    assert isinstance(from_, DecimalType) and isinstance(to, DecimalType)
    return _rescale(unscaled(values), from_.scale, to, validity(len(values), values))


def _rescale(whole: Any | None, scale: int, to: DecimalType, valid: pa.Array | None) -> pa.Array | None:
    factor = 10 ** max(0, to.scale - scale)
    if whole is None or factor > _ROOM or magnitude(whole) * factor > _ROOM:
        return None
    return decimal_column(*null_if_overflow(round_half_up(whole, scale - to.scale), to, valid))


def decimal_to_integer(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Truncates towards zero; narrowing drops the upper bits."""
    assert isinstance(from_, DecimalType)
    whole = unscaled(values)
    if whole is None:
        return None
    if from_.scale > 18:
        return number_column(np.zeros(len(values), np.int64), to.arrow, validity(len(values), values))
    unit = np.int64(10**from_.scale)
    cut = whole - np.fmod(whole, unit)
    return number_column(cut // unit, to.arrow, validity(len(values), values))


def decimal_to_float(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Uses a single division of numbers that a double represents exactly, which is correctly rounded."""
    assert isinstance(from_, DecimalType)
    whole = unscaled(values)
    if whole is None or from_.scale > 22 or magnitude(whole) > _EXACT_WHOLE:
        return None
    quotient = whole.astype(np.float64) / np.float64(10**from_.scale)
    return number_column(quotient, to.arrow, validity(len(values), values))
