"""References of comparisons, logic, NULLIF and casts, one value at a time."""

from __future__ import annotations

import math
from typing import Any

from millstream.expressions.functions.comparison import compared_type
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.kernels.comparison import same_value
from millstream.runtime.expressions.kernels.conversion import type_text
from millstream.runtime.expressions.value_casts import cast_value

__all__: list[str] = []


@reference("=", "<>", "<", "<=", ">", ">=")
def compare(context: CallContext, left: Any, right: Any) -> bool | None:
    """A comparison; unknown if a value is NULL."""
    if left is None or right is None:
        return None
    match context.call.function:
        case "=":
            return same_value(left, right)
        case "<>":
            return not same_value(left, right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


@reference("IS NULL")
def is_null(context: CallContext, value: Any) -> bool:
    """Whether the value is NULL."""
    return value is None


@reference("IS NOT NULL")
def is_not_null(context: CallContext, value: Any) -> bool:
    """Whether the value is not NULL."""
    return value is not None


@reference("IS DISTINCT FROM")
def is_distinct(context: CallContext, left: Any, right: Any) -> bool:
    """Inequality with NULL as an ordinary value."""
    return not is_same(context, left, right)


@reference("IS NOT DISTINCT FROM")
def is_same(context: CallContext, left: Any, right: Any) -> bool:
    """Equality with NULL as an ordinary value."""
    return left is right if left is None or right is None else same_value(left, right)


@reference("IN")
def is_in(context: CallContext, value: Any, *choices: Any) -> bool | None:
    """TRUE if a choice equals the value; else unknown if a choice or the value is NULL."""
    if value is None:
        return None
    if any(choice is not None and same_value(value, choice) for choice in choices):
        return True
    return None if None in choices else False


@reference("GREATEST", "LEAST")
def extreme(context: CallContext, *values: Any) -> Any:
    """The greatest or least value; NULL if any value is NULL."""
    if any(value is None for value in values):
        return None
    numbers = [value for value in values if value == value]
    if len(numbers) < len(values) and (context.call.function == "GREATEST" or not numbers):
        return math.nan
    choose = max if context.call.function == "GREATEST" else min
    if isinstance(numbers[0], float) and choose(numbers) == 0:
        return choose((each for each in numbers if each == 0), key=lambda zero: math.copysign(1, zero))
    return choose(numbers)


@reference("NOT")
def invert(context: CallContext, value: bool | None) -> bool | None:
    """NOT; unknown stays unknown."""
    return None if value is None else not value


@reference("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")
def is_truth(context: CallContext, value: bool | None) -> bool:
    """The test for a truth value; never unknown."""
    words = context.call.function.split()
    holds = value is {"TRUE": True, "FALSE": False, "UNKNOWN": None}[words[-1]]
    return holds != ("NOT" in words)


@reference("NULLIF")
def null_if(context: CallContext, value: Any, other: Any) -> Any:
    """The value, or NULL if both are equal."""
    if value is None or other is None:
        return value
    common = compared_type("NULLIF", context.argument_types, "NULLIF(value, other)")
    sides = [
        cast_value(each, type_, common, context.session)
        for each, type_ in zip((value, other), context.argument_types, strict=True)
    ]
    return None if same_value(*sides) else value


@reference("CAST")
def cast(context: CallContext, value: Any) -> Any:
    """Raises for a value that cannot be cast."""
    return cast_value(value, context.argument_types[0], context.type, context.session)


@reference("TRY_CAST")
def try_cast(context: CallContext, value: Any) -> Any:
    """A value that cannot be cast becomes NULL."""
    try:
        return cast(context, value)
    except EvaluationError:
        return None


@reference("TYPEOF")
def type_of(context: CallContext, value: Any, in_full: bool | None = None) -> str:
    """The argument's type as a string."""
    return type_text(context, in_full is True)
