"""Formats numbers as Java does, and parses strings as Flink does.

A floating-point number has the fewest digits that identify it, without an exponent from 0.001 to 10,000,000 (`123.0`),
otherwise with one (`1.0E7`). A decimal is written without an exponent, with all digits of its scale.
"""

from __future__ import annotations

import decimal
import math
import re

import numpy as np

from millstream.expressions.types import DecimalType, IntegralType
from millstream.records.bounded_numbers import bounded_decimal
from millstream.runtime.expressions.decimal_operators import round_to_type
from millstream.runtime.expressions.kernel import EvaluationError

__all__ = ["decimal_text", "float_text", "parse_decimal", "parse_float", "parse_integer"]

_WHOLE = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?")
_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)")
_LONG_DIGITS = 19
_JAVA_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's `trim` removes."""


def float_text(number: float, is_single: bool = False) -> str:
    """A DOUBLE or FLOAT as Java formats it.

    >>> float_text(1e7), float_text(0.1), float_text(-0.0), float_text(16777216.0, is_single=True)
    ('1.0E7', '0.1', '-0.0', '1.6777216E7')
    """
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    size = abs(number)
    if 1e-3 <= size < 1e7:
        text = np.format_float_positional(np.float32(number), trim="0") if is_single else repr(number)
        return text if "." in text else text + ".0"
    text = np.format_float_scientific(np.float32(number) if is_single else number, trim="0")
    digits, power = text.split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(power)}"


def decimal_text(number: decimal.Decimal) -> str:
    """All digits, without an exponent."""
    return format(number, "f")


def parse_integer(text: str, type_: IntegralType) -> int:
    """Parses an integer; digits after a decimal point are checked and dropped."""
    trimmed = text.strip(_JAVA_BLANKS)
    match = _WHOLE.fullmatch(trimmed)
    if match is None or not (match[2] or match[3]):
        raise EvaluationError(f"the text {text!r} is not a valid {type_.name}")
    digits = (match[2] or "0").lstrip("0")
    number = int((match[1] or "") + (digits or "0")) if len(digits) <= _LONG_DIGITS else 1 << 64
    if not -(1 << (type_.bits - 1)) <= number < 1 << (type_.bits - 1):
        raise EvaluationError(f"the number {trimmed} is beyond {type_.name}")
    return number


def parse_float(text: str, name: str = "DOUBLE") -> float:
    """Parses a floating-point number as Java does."""
    trimmed = text.strip(_JAVA_BLANKS)
    if not trimmed.isascii() or _FLOAT.fullmatch(trimmed) is None:
        raise EvaluationError(f"the text {text!r} is not a valid {name}")
    return float(trimmed if trimmed[-1] in "yN" else trimmed.rstrip("fFdD"))


def parse_decimal(text: str, type_: DecimalType) -> decimal.Decimal:
    """Parses a decimal and rounds it to the scale of the type."""
    trimmed = text.strip(_JAVA_BLANKS)
    try:
        number = bounded_decimal(trimmed, type_.scale)
    except ValueError as error:
        raise EvaluationError(f"{error}, expected {type_.nullable()}") from None
    if not number.is_finite():
        raise EvaluationError(f"the text {text!r} is not a valid {type_.nullable()}")
    result = round_to_type(number, type_)
    if result is None:
        raise EvaluationError(f"the number {trimmed} has more digits than {type_.nullable()}")
    return result
