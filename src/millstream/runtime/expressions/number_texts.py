"""Numbers as Java writes them, and as Flink reads them from text.

A floating point number has the fewest digits that tell it from its neighbours: plainly between a thousandth and ten
millions (`123.0`), else with a power of ten (`1.0E7`). A decimal is written plainly, with all digits of its scale.
"""

from __future__ import annotations

import decimal
import math
import re

import numpy as np

from millstream.expressions.types import DecimalType, IntegralType
from millstream.records.bounded_numbers import bounded_decimal
from millstream.runtime.expressions.decimal_operators import fitting
from millstream.runtime.expressions.kernel import ValueProblem

__all__ = ["decimal_text", "float_text", "parsed_decimal", "parsed_float", "parsed_whole"]

_WHOLE = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?")
_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)")
_LONG_DIGITS = 19
_JAVA_BLANKS = "".join(map(chr, range(33)))
"""What Java's `trim` removes."""


def float_text(number: float, is_single: bool = False) -> str:
    """Java's text of a DOUBLE, or of a FLOAT.

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
    """All digits, never with a power of ten."""
    return format(number, "f")


def parsed_whole(text: str, type_: IntegralType) -> int:
    """A whole number; what stands behind a point is read and dropped."""
    trimmed = text.strip(_JAVA_BLANKS)
    match = _WHOLE.fullmatch(trimmed)
    if match is None or not (match[2] or match[3]):
        raise ValueProblem(f"the text {text!r} is no {type_.name}")
    digits = (match[2] or "0").lstrip("0")
    number = int((match[1] or "") + (digits or "0")) if len(digits) <= _LONG_DIGITS else 1 << 64
    if not -(1 << (type_.bits - 1)) <= number < 1 << (type_.bits - 1):
        raise ValueProblem(f"the number {trimmed} is beyond {type_.name}")
    return number


def parsed_float(text: str, name: str = "DOUBLE") -> float:
    """A floating point number as Java reads it."""
    trimmed = text.strip(_JAVA_BLANKS)
    if not trimmed.isascii() or _FLOAT.fullmatch(trimmed) is None:
        raise ValueProblem(f"the text {text!r} is no {name}")
    return float(trimmed if trimmed[-1] in "yN" else trimmed.rstrip("fFdD"))


def parsed_decimal(text: str, type_: DecimalType) -> decimal.Decimal:
    """A decimal, rounded to the scale of its type."""
    trimmed = text.strip(_JAVA_BLANKS)
    try:
        number = bounded_decimal(trimmed, type_.scale)
    except ValueError as error:
        raise ValueProblem(f"{error}, expected {type_.nullable()}") from None
    if not number.is_finite():
        raise ValueProblem(f"the text {text!r} is no {type_.nullable()}")
    result = fitting(number, type_)
    if result is None:
        raise ValueProblem(f"the number {trimmed} has more digits than {type_.nullable()}")
    return result
