"""Kernels of rounding, logarithms, trigonometry, random numbers and conversions to other bases.

Floating-point rounding uses the decimal digits that Java prints: 1.005 ends in 5, although the nearest double is
slightly smaller, so ROUND(1.005, 2) is 1.01.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.expressions.types import DecimalType, NumericType
from millstream.runtime.expressions.decimal_operators import EXACT, null_if_overflow, round_to_type
from millstream.runtime.expressions.java_random import JavaRandom, first_doubles, first_integers
from millstream.runtime.expressions.kernel import KERNELS, CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.numbers import (
    decimal_column,
    first_row,
    is_valid_row,
    magnitude,
    number_column,
    numbers,
    unscaled,
    validity,
)

__all__: list[str] = []

Int64s = npt.NDArray[np.int64]

_EXACT_WHOLE = 2.0**53
_ROOM = 2**63 - 1


def full(value: Value, rows: int) -> pa.Array:
    """The value as a column; a scalar is repeated."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


@kernel("ABS")
def absolute(context: CallContext, value: Value) -> Value:
    """The absolute value; the smallest integer stays negative, as in Java."""
    return pc.abs(value)


@kernel("SIGN")
def sign(context: CallContext, value: Value) -> Value:
    """-1, 0 or 1, in the type of the number; NaN stays NaN."""
    if kinds.is_floating(value.type):
        floats = numbers(value)
        signs = np.where(floats == 0, floats, np.sign(floats))  # zeros keep their sign
        return number_column(signs, value.type, validity(context.rows, value))
    if kinds.is_decimal(value.type):
        signs = pa.array([decimal.Decimal(-1), decimal.Decimal(0), decimal.Decimal(1)], context.type.arrow)
        return signs.take(pc.add(pc.sign(value).cast(pa.int64()), 1))
    return pc.sign(value).cast(context.type.arrow)


@kernel("CEIL", "CEILING", "FLOOR")
def next_whole(context: CallContext, value: Value, *unit: Value) -> Value:
    """Rounds up or down to an integer; times use the kernels in `temporal`."""
    is_floor = context.call.function == "FLOOR"
    if not isinstance(context.argument_types[0], NumericType):
        return KERNELS["TEMPORAL FLOOR" if is_floor else "TEMPORAL CEIL"](context, value, *unit)
    if kinds.is_integer(value.type):
        return value
    if kinds.is_floating(value.type):
        return pc.floor(value) if is_floor else pc.ceil(value)
    way = decimal.ROUND_FLOOR if is_floor else decimal.ROUND_CEILING
    return _rounded_decimals(context, full(value, context.rows), 0, way)


def _rounded_decimals(context: CallContext, column: pa.Array, places: int, way: str) -> pa.Array:
    """Rounds decimals to `places` fractional digits: in 8 bytes, or one by one if they are wider."""
    type_ = context.type
    assert isinstance(type_, DecimalType)
    digits = column.type.scale - places
    whole = unscaled(column)
    padding = type_.scale - places
    if whole is None or not 0 <= digits <= 18 or padding > 18 or (magnitude(whole) + 1) * 10 ** max(padding, 0) > _ROOM:
        unit = decimal.Decimal((0, (1,), -min(places, column.type.scale)))
        values = (None if n is None else round_to_type(n.quantize(unit, way, EXACT), type_) for n in column.to_pylist())
        return pa.array(values, type_.arrow)
    unit_size = np.int64(10**digits)
    floor = whole // unit_size
    rest = whole - floor * unit_size
    if way == decimal.ROUND_CEILING:
        floor = floor + (rest > 0)
    elif way == decimal.ROUND_DOWN:
        floor = floor + ((rest > 0) & (whole < 0))
    elif way == decimal.ROUND_HALF_UP:
        floor = floor + np.where(whole < 0, 2 * rest > unit_size, 2 * rest >= unit_size)
    scaled = floor * np.int64(10**padding) if padding >= 0 else floor // np.int64(10**-padding)
    return decimal_column(*null_if_overflow(scaled, type_, validity(context.rows, column)))


@kernel("ROUND")
def round_to(context: CallContext, value: Value, digits: Value | None = None) -> Value:
    """Rounds half away from zero."""
    return _with_digits(context, value, digits, is_round=True)


@kernel("TRUNCATE")
def truncate_to(context: CallContext, value: Value, digits: Value | None = None) -> Value:
    """Truncates towards zero."""
    return _with_digits(context, value, digits, is_round=False)


def _with_digits(context: CallContext, value: Value, digits: Value | None, *, is_round: bool) -> Value:
    if digits is None:
        digits = pa.scalar(0, pa.int32())
    column = full(value, context.rows)
    # No number has digits beyond this range.
    digits = pc.max_element_wise(pc.min_element_wise(digits, 400, skip_nulls=False), -400, skip_nulls=False)
    if isinstance(digits, pa.Array):
        if pc.count_distinct(digits, mode="all").as_py() > 1:
            return _digits_by_row(context, column, digits, is_round=is_round)
        digits = digits[0]
    if not digits.is_valid:
        return pa.nulls(context.rows, context.type.arrow)
    places = digits.as_py()
    if kinds.is_decimal(column.type):
        way = decimal.ROUND_HALF_UP if is_round else decimal.ROUND_DOWN
        return _rounded_decimals(context, column, places, way)
    if kinds.is_integer(column.type):
        return _integers_with_digits(column, places, is_round)
    return _floats_with_digits(column, places, is_round)


def _digits_by_row(context: CallContext, column: pa.Array, digits: pa.Array, *, is_round: bool) -> pa.Array:
    """Rounds to a different number of digits per row, grouping rows by that number."""
    result = pa.nulls(context.rows, context.type.arrow)
    for places in pc.unique(digits).drop_null():
        mask = pc.fill_null(pc.equal(digits, places), False)
        rounded = _with_digits(context, column, places, is_round=is_round)
        result = pc.if_else(mask, rounded, result)
    return result


def _integers_with_digits(column: pa.Array, places: int, is_round: bool) -> pa.Array:
    if places >= 0:
        return column
    valid = validity(len(column), column)
    if places < -18:
        return number_column(np.zeros(len(column), np.int64), column.type, valid)
    unit = 10**-places
    values = numbers(column).astype(np.int64)
    cut = values - np.fmod(values, unit)
    rest = np.abs(np.fmod(values, unit))
    if is_round:
        cut = cut + np.where(2 * rest >= unit, np.sign(values), 0) * unit
    return number_column(cut, column.type, valid)


def _floats_with_digits(column: pa.Array, places: int, is_round: bool) -> pa.Array:
    """Rounds by the shortest decimal digits; numbers with more than 15 digits up to the rounding position use
    `decimal`."""
    values = numbers(column).astype(np.float64)
    valid = validity(len(column), column)
    if not -22 <= places <= 22:
        return number_column(_by_decimal(values, places, is_round), column.type, valid)
    with np.errstate(all="ignore"):
        size, unit = np.abs(values), np.float64(10 ** abs(places))
        shift, back = (np.multiply, np.divide) if places >= 0 else (np.divide, np.multiply)
        whole = np.floor(shift(size, unit))
        # A double just below a whole number of units may print as that number.
        whole = whole + (back(whole + 1.0, unit) <= size)
        if is_round:
            whole = whole + (size >= back(whole + 0.5, unit))
        result = np.copysign(back(whole, unit), values)
        is_wide = ~(whole < _EXACT_WHOLE / 16)
    if is_wide.any():
        result[is_wide] = _by_decimal(values[is_wide], places, is_round)
    return number_column(result, column.type, valid)


def _by_decimal(values: Any, places: int, is_round: bool) -> Any:
    return np.array([rounded_float(float(each), places, is_round) for each in values], np.float64)


def rounded_float(number: float, places: int, is_round: bool) -> float:
    """Rounds one number by its decimal digits."""
    if not np.isfinite(number):
        return number
    unit = decimal.Decimal((0, (1,), -places))
    if places > 400:
        return number
    way = decimal.ROUND_HALF_UP if is_round else decimal.ROUND_DOWN
    wide = decimal.Context(prec=1500, rounding=way)
    return float(decimal.Decimal(repr(number)).quantize(unit, way, wide))


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "SQRT": np.sqrt,
    "LN": np.log,
    "LOG10": np.log10,
    "LOG2": lambda number: np.log(number) / np.log(2.0),
    "EXP": np.exp,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "COT": lambda number: 1.0 / np.tan(number),
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "TANH": np.tanh,
    "DEGREES": lambda number: number * (180.0 / np.pi),
    "RADIANS": lambda number: number * (np.pi / 180.0),
}


@kernel(*_FUNCTIONS)
def function(context: CallContext, value: Value) -> Value:
    """A function of one floating-point number."""
    with np.errstate(all="ignore"):
        result = _FUNCTIONS[context.call.function](numbers(value))
    return number_column(result, pa.float64(), validity(context.rows, value))


@kernel("POWER")
def power(context: CallContext, base: Value, exponent: Value) -> Value:
    """Java's `pow`."""
    return _of_two(context, np.power, base, exponent)


@kernel("ATAN2")
def arc_tangent_of_two(context: CallContext, y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    return _of_two(context, np.arctan2, y, x)


@kernel("LOG")
def logarithm(context: CallContext, base: Value, number: Value | None = None) -> Value:
    """The logarithm to a base, or the natural one."""
    if number is None:
        with np.errstate(all="ignore"):
            return number_column(np.log(numbers(base)), pa.float64(), validity(context.rows, base))
    return _of_two(context, lambda first, second: np.log(second) / np.log(first), base, number)


def _of_two(context: CallContext, compute: Callable[[Any, Any], Any], first: Value, second: Value) -> Value:
    with np.errstate(all="ignore"):
        result = np.broadcast_to(compute(numbers(first), numbers(second)), (context.rows,))
    return number_column(result, pa.float64(), validity(context.rows, first, second))


@kernel("PI")
def pi(context: CallContext) -> Value:
    """π."""
    return pa.scalar(float(np.pi))


@kernel("E")
def e(context: CallContext) -> Value:
    """e."""
    return pa.scalar(float(np.e))


@kernel("RAND")
def random(context: CallContext, seed: Value | None = None) -> Value:
    """Random numbers in [0, 1). A row with a NULL seed does not draw a number."""
    if seed is None:
        return number_column(_generator(context).random(context.rows), pa.float64(), None)
    valid = validity(context.rows, seed)
    if isinstance(seed, pa.Scalar):
        drawn = _sequence(context, seed).doubles(context.rows) if seed.is_valid else np.zeros(context.rows)
        return number_column(drawn, pa.float64(), valid)
    return number_column(first_doubles(_whole_numbers(seed)), pa.float64(), valid)


@kernel("RAND_INTEGER")
def random_whole(context: CallContext, first: Value, second: Value | None = None) -> Value:
    """Random integers below a bound."""
    bound, seed = (first, None) if second is None else (second, first)
    bounds = np.broadcast_to(_whole_numbers(bound), (context.rows,))
    valid = validity(context.rows, *([bound] if seed is None else [bound, seed]))
    is_drawn = is_valid_row(valid, context.rows)
    wrong = (bounds <= 0) & is_drawn
    if wrong.any():
        raise EvaluationError("the bound must be positive", first_row(wrong))
    result = np.zeros(context.rows, np.int64)
    if seed is None:
        # Draws one number per row, whatever the bound, so that the position of the next batch is known.
        result[:] = _generator(context).random(context.rows) * np.where(bounds <= 0, 1, bounds)
    elif isinstance(seed, pa.Scalar):
        result[is_drawn] = _sequence(context, seed).integers(bounds[is_drawn])
    else:
        result[is_drawn] = first_integers(_whole_numbers(seed)[is_drawn], bounds[is_drawn])
    return number_column(result, pa.int32(), valid)


def _whole_numbers(value: Value) -> Int64s:
    return np.asarray(numbers(value), np.int64)


def _generator(context: CallContext) -> np.random.Generator:
    """The task's generator, or the machine's outside a task."""
    draws = context.session.draws
    return np.random.default_rng() if draws is None else draws.generator()


def _sequence(context: CallContext, seed: pa.Scalar) -> JavaRandom:
    """The sequence of a seeded call; outside a task a new one."""
    draws, number = context.session.draws, seed.as_py() or 0
    return JavaRandom(number) if draws is None else draws.sequence(context.place, number)


@kernel("BIN")
def binary_digits(context: CallContext, value: Value) -> Value:
    """Binary digits; negative numbers as 64 bits."""
    return pa.array([None if n is None else format(n & (2**64 - 1), "b") for n in value.to_pylist()], pa.string())


@kernel("HEX")
def hexadecimal_digits(context: CallContext, value: Value) -> Value:
    """Hexadecimal digits of a number or of a string's bytes."""
    return pa.array([None if each is None else hex_text(each) for each in value.to_pylist()], pa.string())


def hex_text(value: int | str) -> str:
    """Hexadecimal digits."""
    return format(value & (2**64 - 1), "X") if isinstance(value, int) else value.encode().hex().upper()


@kernel("UNHEX")
def bytes_of_digits(context: CallContext, value: Value) -> Value:
    """Bytes from hexadecimal digits; NULL if the string has other characters."""
    return pa.array([None if each is None else unhex(each) for each in value.to_pylist()], pa.binary())


def unhex(text: str) -> bytes | None:
    """Parses hexadecimal digits; the first of an odd number of digits counts as zero, as in Flink."""
    if any(character not in "0123456789abcdefABCDEF" for character in text):
        return None
    return bytes.fromhex("00" + text[1:] if len(text) % 2 else text)
