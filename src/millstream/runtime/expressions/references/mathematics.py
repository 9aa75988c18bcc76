"""References of rounding, logarithms, trigonometry and conversions to other bases, on Python's `math`."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import Any

from millstream.expressions.types import DecimalType, IntegralType, NumericType
from millstream.runtime.expressions.decimal_operators import EXACT, round_to_type
from millstream.runtime.expressions.kernel import REFERENCES, CallContext, EvaluationError, reference
from millstream.runtime.expressions.value_casts import as_float, wrap_integer

__all__: list[str] = []

_DIGITS_MAX = 400


@reference("ABS")
def absolute(context: CallContext, value: Any) -> Any:
    """The absolute value."""
    if value is None:
        return None
    if isinstance(value, decimal.Decimal):
        return value.copy_abs()
    return wrap_integer(abs(value), context.type) if isinstance(context.type, IntegralType) else abs(value)


@reference("SIGN")
def sign(context: CallContext, value: Any) -> Any:
    """-1, 0 or 1."""
    if value is None or value != value:
        return value
    way = (value > 0) - (value < 0)
    if isinstance(context.type, DecimalType):
        return round_to_type(decimal.Decimal(way), context.type)
    return math.copysign(way, value) if isinstance(value, float) else way


@reference("CEIL", "CEILING", "FLOOR")
def next_whole(context: CallContext, value: Any, *unit: Any) -> Any:
    """Rounds up or down to an integer."""
    is_floor = context.call.function == "FLOOR"
    if not isinstance(context.argument_types[0], NumericType):
        return REFERENCES["TEMPORAL FLOOR" if is_floor else "TEMPORAL CEIL"](context, value, *unit)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, decimal.Decimal):
        way = decimal.ROUND_FLOOR if is_floor else decimal.ROUND_CEILING
        return round_to_type(value.quantize(decimal.Decimal(1), way, EXACT), context.type)  # type: ignore[arg-type]
    if not math.isfinite(value):
        return value
    return math.copysign(float(math.floor(value) if is_floor else math.ceil(value)), value)


@reference("ROUND", "TRUNCATE")
def with_digits(context: CallContext, value: Any, digits: int | None = 0) -> Any:
    """Rounds or truncates to a number of fractional digits."""
    if value is None or digits is None:
        return None
    digits = max(digits, -_DIGITS_MAX)  # no number has digits beyond this position
    way = decimal.ROUND_HALF_UP if context.call.function == "ROUND" else decimal.ROUND_DOWN
    wide = decimal.Context(prec=1500, rounding=way)
    if isinstance(value, float):
        if not math.isfinite(value) or digits > 400:
            return value
        rounded = float(decimal.Decimal(repr(value)).quantize(decimal.Decimal((0, (1,), -digits)), way, wide))
        return as_float(math.copysign(rounded, value), context.type)
    if isinstance(value, decimal.Decimal):
        scale = min(digits, -int(value.as_tuple().exponent))
        return round_to_type(value.quantize(decimal.Decimal((0, (1,), -scale)), way, wide), context.type)  # type: ignore[arg-type]
    if digits >= 0:
        return value
    rounded_whole = int(decimal.Decimal(value).quantize(decimal.Decimal((0, (1,), -digits)), way, wide))
    return wrap_integer(rounded_whole, context.type)  # type: ignore[arg-type]


def _log(number: float) -> float:
    if number > 0 or math.isnan(number):
        return math.log(number)
    return -math.inf if number == 0 else math.nan


_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "SQRT": lambda number: math.nan if number < 0 else math.sqrt(number),
    "LN": _log,
    "LOG10": lambda number: math.log10(number) if number > 0 else _log(number),
    "LOG2": lambda number: _log(number) / math.log(2.0),
    "EXP": math.exp,
    "SIN": math.sin,
    "COS": math.cos,
    "TAN": math.tan,
    "COT": lambda number: 1.0 / math.tan(number) if math.tan(number) else math.copysign(math.inf, number),
    "ASIN": math.asin,
    "ACOS": math.acos,
    "ATAN": math.atan,
    "SINH": math.sinh,
    "COSH": math.cosh,
    "TANH": math.tanh,
    "DEGREES": lambda number: number * (180.0 / math.pi),
    "RADIANS": lambda number: number * (math.pi / 180.0),
}


@reference(*_FUNCTIONS)
def function(context: CallContext, value: float | None) -> float | None:
    """A function of one number; NaN where it is undefined, Infinity on overflow."""
    return None if value is None else _evaluate(_FUNCTIONS[context.call.function], value)


def _evaluate(compute: Callable[..., float], *values: float) -> float:
    try:
        return compute(*values)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.copysign(math.inf, values[0]) if compute is math.sinh else math.inf


@reference("POWER")
def power(context: CallContext, base: float | None, exponent: float | None) -> float | None:
    """Java's `pow`."""
    if base is None or exponent is None:
        return None
    if base == 0 and exponent < 0:
        is_odd = exponent % 2 == 1
        return math.copysign(math.inf, base) if is_odd else math.inf
    if abs(base) == 1 and math.isinf(exponent):
        return math.nan
    try:
        return math.pow(base, exponent)
    except ValueError:
        return math.nan
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


@reference("ATAN2")
def arc_tangent_of_two(context: CallContext, y: float | None, x: float | None) -> float | None:
    """The angle of the point (x, y)."""
    return None if y is None or x is None else math.atan2(y, x)


@reference("LOG")
def logarithm(context: CallContext, base: float | None, *number: float | None) -> float | None:
    """The logarithm to a base, or the natural one."""
    if base is None or None in number:
        return None
    if not number:
        return _log(base)
    numerator, denominator = _log(number[0]), _log(base)  # type: ignore[arg-type]
    if denominator == 0:
        return math.nan if numerator == 0 or math.isnan(numerator) else math.copysign(math.inf, numerator)
    return math.nan if math.isinf(numerator) and math.isinf(denominator) else numerator / denominator


@reference("PI")
def pi(context: CallContext) -> float:
    """π."""
    return math.pi


@reference("E")
def e(context: CallContext) -> float:
    """e."""
    return math.e


@reference("BIN")
def binary_digits(context: CallContext, value: int | None) -> str | None:
    """Binary digits; negative numbers as 64 bits."""
    return None if value is None else format(value % 2**64, "b")


@reference("HEX")
def hexadecimal_digits(context: CallContext, value: int | str | None) -> str | None:
    """Hexadecimal digits of a number or of a string's bytes."""
    if value is None:
        return None
    return format(value % 2**64, "X") if isinstance(value, int) else "".join(f"{byte:02X}" for byte in value.encode())


@reference("UNHEX")
def bytes_of_digits(context: CallContext, value: str | None) -> bytes | None:
    """Bytes from hexadecimal digits; NULL if the string has other characters."""
    if value is None or not set(value) <= set("0123456789abcdefABCDEF"):
        return None
    digits = "00" + value[1:] if len(value) % 2 else value
    return bytes(int(digits[i : i + 2], 16) for i in range(0, len(digits), 2))


@reference("RAND", "RAND_INTEGER")
def random(context: CallContext, *values: Any) -> Any:
    """Random functions have no reference: their results cannot be compared."""
    raise EvaluationError("random numbers have no reference")
