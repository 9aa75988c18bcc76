"""Columns of numbers cast to other numbers, as Java narrows and Flink rounds. None: too wide for 8 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.data_type import DataType
from millstream.expressions.types import DecimalType, IntegralType
from millstream.runtime.expressions.decimal_operators import limited, rounded_half_up
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
    "decimal_to_whole",
    "float_to_whole",
    "whole_to_decimal",
    "whole_to_whole",
]

_ROOM = 2**63 - 1
_EXACT_WHOLE = 2**53


def whole_to_whole(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Narrower numbers lose their upper bits."""
    with np.errstate(all="ignore"):
        return number_column(numbers(values), to.arrow, validity(len(values), values))


def float_to_whole(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array:
    """Cut towards zero; beyond the ends of 4 bytes (8 for BIGINT) the end; NaN is 0."""
    assert isinstance(to, IntegralType)
    bits = max(to.bits, 32)
    limit = float(1 << (bits - 1))
    floats = numbers(values).astype(np.float64)
    whole = np.where(np.isnan(floats), 0.0, floats)
    inside = np.clip(whole, -limit, np.nextafter(limit, 0)).astype(np.int64)
    inside = np.where(whole >= limit, (1 << (bits - 1)) - 1, inside)
    return number_column(inside.astype(np.int64), to.arrow, validity(len(values), values))


def whole_to_decimal(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """NULL where there are too many digits."""
    assert isinstance(to, DecimalType)
    return _rescaled(unscaled(values), 0, to, validity(len(values), values))


def decimal_to_decimal(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Rounded half away from zero; NULL where there are too many digits."""
    assert isinstance(from_, DecimalType) and isinstance(to, DecimalType)
    return _rescaled(unscaled(values), from_.scale, to, validity(len(values), values))


def _rescaled(whole: Any | None, scale: int, to: DecimalType, valid: pa.Array | None) -> pa.Array | None:
    factor = 10 ** max(0, to.scale - scale)
    if whole is None or factor > _ROOM or magnitude(whole) * factor > _ROOM:
        return None
    return decimal_column(*limited(rounded_half_up(whole, scale - to.scale), to, valid))


def decimal_to_whole(values: pa.Array, from_: DataType, to: DataType, session: SessionFacts) -> pa.Array | None:
    """Cut towards zero; narrower numbers lose their upper bits."""
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
    """One division of numbers that 8 bytes of floating point hold exactly rounds as it should."""
    assert isinstance(from_, DecimalType)
    whole = unscaled(values)
    if whole is None or from_.scale > 22 or magnitude(whole) > _EXACT_WHOLE:
        return None
    quotient = whole.astype(np.float64) / np.float64(10**from_.scale)
    return number_column(quotient, to.arrow, validity(len(values), values))
