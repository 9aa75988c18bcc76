"""SQL aggregates, a value at a time: the slow reference implementation for the kernels.

`values` are the values of a group's rows that pass the FILTER, in order; None is NULL. NULLs are ignored, except by
COUNT(*) and ARRAY_AGG.
"""

from __future__ import annotations

import decimal
import functools
import math
import operator
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from millstream.expressions.types import DecimalType, IntegralType
from millstream.records.bitmaps import bitmaps_of, numbers_of
from millstream.records.table_type import TableValueType
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["measured"]


def measured(measure: BoundAggregate, values: Sequence[Any]) -> Any:
    """The result of a measure over these values."""
    if measure.kind == "count" and not measure.arguments:
        return len(values)
    if measure.kind == "array":
        return list(values) or None
    present = [value for value in values if value is not None]
    if measure.kind == "distinct":
        assert measure.inner is not None
        return measured(measure.inner, list(dict.fromkeys(present)))
    if measure.kind == "count":
        return len(present)
    if measure.kind == "multiset":
        return dict(Counter(present))
    if not present:
        return None
    if measure.kind == "bitmap":
        return _bitmap(measure, present)
    if measure.kind == "listagg":
        return measure.detail.join(present)
    if measure.kind in ("min", "max"):
        return min(present) if measure.kind == "min" else max(present)
    if measure.kind in ("first", "last"):
        return present[0] if measure.kind == "first" else present[-1]
    if measure.kind == "variance":
        return _variance(measure.detail, present)
    return _sum(measure, present)


def _bitmap(measure: BoundAggregate, present: Sequence[Any]) -> Any:
    """A set of numbers as bitmap bytes, or its cardinality."""
    if measure.detail == "build":
        numbers = {value % 2**32 for value in present}
    else:
        sets = [set(numbers_of(value).tolist()) for value in present]
        operate = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[measure.detail]
        numbers = functools.reduce(operate, sets)
    result: Any = measure.result
    if isinstance(result.data_type, IntegralType):
        return len(numbers)
    values = np.array(sorted(numbers), np.uint32)
    return bitmaps_of(np.zeros(len(values), np.int64), values, 1)[0].as_py()


def _sum(measure: BoundAggregate, present: Sequence[Any]) -> Any:
    result: Any = measure.result
    assert isinstance(result, TableValueType)
    if isinstance(result.data_type, DecimalType):
        return _decimal(measure, present, result.data_type)
    if isinstance(result.data_type, IntegralType):
        total = _wrapped(sum(present), 64)
        if measure.kind == "whole_avg":
            total = math.trunc(Fraction(total, len(present)))
        return _wrapped(total, result.data_type.bits)
    return math.fsum(present) / (len(present) if measure.kind == "avg" else 1)


def _decimal(measure: BoundAggregate, present: Sequence[Any], type_: DecimalType) -> decimal.Decimal | None:
    exact = sum((Fraction(value) for value in present), Fraction(0))
    if measure.kind == "decimal_avg":
        exact /= len(present)
    scaled = exact * 10**type_.scale
    rounded = math.floor(abs(scaled) + Fraction(1, 2)) * (-1 if scaled < 0 else 1)
    if abs(rounded) >= 10**type_.precision:
        return None
    return decimal.Decimal((int(rounded < 0), tuple(map(int, str(abs(rounded)))), -type_.scale))


def _wrapped(number: int, bits: int) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _variance(detail: str, present: Sequence[Any]) -> float | None:
    exact = [Fraction(value) for value in present]
    mean = sum(exact, Fraction(0)) / len(exact)
    squares = sum(((value - mean) ** 2 for value in exact), Fraction(0))
    divisor = len(exact) - (1 if detail.endswith("SAMP") or detail == "VARIANCE" else 0)
    if not divisor:
        return None
    spread = float(squares / divisor)
    return math.sqrt(spread) if detail.startswith("STDDEV") else spread
