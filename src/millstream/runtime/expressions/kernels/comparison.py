"""Kernels of comparisons. NaN compares as in Java: not equal to, less than or greater than any number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.runtime.expressions.kernel import CallContext, Value, kernel
from millstream.runtime.expressions.mixed_precisions import compare_times
from millstream.runtime.expressions.numbers import number_column, numbers, validity

__all__: list[str] = []

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _is_nested(value: Value) -> bool:
    return bool(kinds.is_nested(value.type))


@kernel("=", "<>", "<", "<=", ">", ">=")
def compare(context: CallContext, left: Value, right: Value) -> Value:
    """Compares two columns of one type."""
    if _is_nested(left):
        return _compare_nested(context, left, right)
    return _compare(context.call.function, left, right)


def _compare(function: str, left: Value, right: Value) -> Value:
    if kinds.is_timestamp(left.type) and kinds.is_timestamp(right.type) and left.type != right.type:
        return compare_times(function, left, right)
    return _COMPARE[function](*_widen(left, right))


def _widen(left: Value, right: Value) -> tuple[Value, Value]:
    """Casts decimals without a common SQL type to a wider type that holds both."""
    if left.type == right.type or not (kinds.is_decimal(left.type) or kinds.is_decimal(right.type)):
        return left, right
    wide = pa.decimal256(76, max(getattr(left.type, "scale", 0), getattr(right.type, "scale", 0)))
    return left.cast(wide), right.cast(wide)


def _compare_nested(context: CallContext, left: Value, right: Value) -> Value:
    """Compares arrays, maps and rows as Python values."""
    pairs = zip(_values(left, context.rows), _values(right, context.rows), strict=True)
    is_equal = context.call.function == "="
    results = [None if a is None or b is None else (same_value(a, b) == is_equal) for a, b in pairs]
    return pa.array(results, pa.bool_())


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are equal; maps are equal regardless of the order of entries."""
    if left is None or right is None:
        return left is right
    if isinstance(left, list) and left and isinstance(left[0], tuple):
        return len(left) == len(right) and all(any(map(partial(_same_parts, each), right)) for each in left)
    if isinstance(left, list) and isinstance(right, list):
        return _same_parts(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return _same_parts([*left.values()], [*right.values()])
    return bool(left == right)


def _same_parts(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(same_value, left, right))


def _values(value: Value, rows: int) -> list[Any]:
    return [value.as_py()] * rows if isinstance(value, pa.Scalar) else value.to_pylist()


@kernel("IS NULL")
def is_null(context: CallContext, value: Value) -> Value:
    """Whether the value is NULL."""
    return pc.is_null(value)


@kernel("IS NOT NULL")
def is_not_null(context: CallContext, value: Value) -> Value:
    """Whether the value is not NULL."""
    return pc.is_valid(value)


@kernel("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
def is_distinct(context: CallContext, left: Value, right: Value) -> Value:
    """Equality that treats NULLs as equal."""
    if _is_nested(left):
        pairs = zip(_values(left, context.rows), _values(right, context.rows), strict=True)
        equal: Value = pa.array([b is None if a is None else b is not None and same_value(a, b) for a, b in pairs])
    else:
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        equal = pc.or_(both_null, pc.fill_null(_compare("=", left, right), False))
    return equal if context.call.function == "IS NOT DISTINCT FROM" else pc.invert(equal)


@kernel("IN")
def is_in(context: CallContext, value: Value, *choices: Value) -> Value:
    """TRUE if a choice equals the value; else unknown if a choice or the value is NULL."""
    is_plain = not isinstance(value, pa.Scalar) and not _is_nested(value)
    if not is_plain or not all(isinstance(each, pa.Scalar) and each.type == value.type for each in choices):
        return _in_each(context, value, choices)
    constants = [each.as_py() for each in choices if each.is_valid]
    if kinds.is_floating(value.type):
        # Zeros of both signs are equal and NaN equals nothing; Arrow's `is_in` does the opposite.
        is_member = pc.is_in(pc.add(value, 0.0), value_set=pa.array([n + 0.0 for n in constants if n == n], value.type))
    else:
        is_member = pc.is_in(value, value_set=pa.array(constants, value.type))
    if value.null_count:
        is_member = pc.if_else(value.is_valid(), is_member, pa.scalar(None, pa.bool_()))
    if len(constants) < len(choices):
        is_member = pc.if_else(is_member, is_member, pa.scalar(None, pa.bool_()))
    return is_member


def _in_each(context: CallContext, value: Value, choices: tuple[Value, ...]) -> Value:
    result: Value = pa.scalar(False)
    for choice in choices:
        equal = _compare_nested_equal(context, value, choice) if _is_nested(value) else _compare("=", value, choice)
        result = pc.or_kleene(result, equal)
    return result


def _compare_nested_equal(context: CallContext, left: Value, right: Value) -> pa.Array:
    pairs = zip(_values(left, context.rows), _values(right, context.rows), strict=True)
    return pa.array([None if a is None or b is None else same_value(a, b) for a, b in pairs], pa.bool_())


@kernel("GREATEST")
def greatest(context: CallContext, *values: Value) -> Value:
    """The greatest value; NULL if any value is NULL."""
    if kinds.is_floating(values[0].type):
        return _extreme_float(context, _greater, values)
    return pc.max_element_wise(*values, skip_nulls=False)


@kernel("LEAST")
def least(context: CallContext, *values: Value) -> Value:
    """The least value; NULL if any value is NULL."""
    if kinds.is_floating(values[0].type):
        return _extreme_float(context, _lesser, values)
    return pc.min_element_wise(*values, skip_nulls=False)


def _greater(left: Any, right: Any) -> Any:
    return np.where((left == 0) & (right == 0), left + right, np.maximum(left, right))


def _lesser(left: Any, right: Any) -> Any:
    return np.where((left == 0) & (right == 0), -(-left - right), np.fmin(left, right))


def _extreme_float(context: CallContext, choose: Callable[[Any, Any], Any], values: tuple[Value, ...]) -> Value:
    """NaN is greater than all other numbers, and 0.0 is greater than -0.0, as in Java's total order."""
    with np.errstate(all="ignore"):
        result = reduce(choose, (numbers(value) for value in values))
    return number_column(np.broadcast_to(result, (context.rows,)), values[0].type, validity(context.rows, *values))
