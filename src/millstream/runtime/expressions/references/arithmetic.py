"""References of + - * / %: Python's numbers, wrapped and rounded to the types."""

from __future__ import annotations

import decimal
import math
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.types import DecimalType, IntegralType, NumericType
from millstream.runtime.expressions.decimal_operators import OPERATORS, round_to_type
from millstream.runtime.expressions.kernel import REFERENCES, CallContext, EvaluationError, reference
from millstream.runtime.expressions.value_casts import as_float, wrap_integer

__all__: list[str] = []


@reference("+", "-", "*", "/", "%", "MOD")
def operate(context: CallContext, *values: Any) -> Any:
    """A binary operator or a sign."""
    name = context.call.function.replace("MOD", "%")
    if not all(isinstance(type_, NumericType) for type_ in context.argument_types):
        names = {1: "TEMPORAL NEGATE", 2: f"TEMPORAL {name}"}
        return REFERENCES[names[len(values)]](context, *values)
    if any(value is None for value in values):
        return None
    if len(values) == 1:
        (value,) = values
        return value if name == "+" else _negative(value, context.type)
    left, right = values
    if isinstance(context.type, IntegralType):
        return wrap_integer(_integer(name, int(left), int(right)), context.type)
    if isinstance(context.type, DecimalType):
        if name in "/%" and right == 0:
            raise EvaluationError("division by zero")
        return round_to_type(OPERATORS[name](decimal.Decimal(left), decimal.Decimal(right)), context.type)
    return as_float(_float(name, left, right), context.type)


def _negative(value: Any, type_: DataType) -> Any:
    if isinstance(value, decimal.Decimal):
        return value.copy_negate() if value else value
    return wrap_integer(-value, type_) if isinstance(type_, IntegralType) else -value


def _integer(name: str, left: int, right: int) -> int:
    if name in "/%":
        if right == 0:
            raise EvaluationError("division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if name == "/" else left - quotient * right
    return left + right if name == "+" else left - right if name == "-" else left * right


def _float(name: str, left: float, right: float) -> float:
    if name != "/":
        return left + right if name == "+" else left - right if name == "-" else left * right
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)
