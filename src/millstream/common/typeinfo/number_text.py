"""Formats floating-point numbers as Java does: used wherever a number is printed or written as in Flink.

A number is written with the fewest digits that distinguish it from its neighbours, but at least two; outside 0.001 to
10^7 with an exponent.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

__all__ = ["far_text", "is_near_one", "number_text"]


def number_text(value: float) -> str:
    """A DOUBLE as Java writes it: the fewest digits that distinguish it from its neighbours, and `E` outside 0.001 to
    10^7.

    >>> [number_text(value) for value in (0.1, 1e7, 1e-4, 5e-324, float("-inf"))]
    ['0.1', '1.0E7', '1.0E-4', '4.9E-324', '-Infinity']
    """
    return repr(value) if is_near_one(value) else far_text(value, repr(value), float)


def is_near_one(value: float) -> bool:
    """Whether Java writes the number without an exponent, as Python does."""
    return 1e-3 <= value < 1e7 or -1e7 < value <= -1e-3 or value == 0


def far_text(value: float, shortest: str, rounded: Callable[[float], Any]) -> str:
    """The text of a number that is not near one, or of NaN or an infinity. `shortest` is its shortest form in Python's
    notation, `rounded` rounds to its width."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    digits = Decimal(shortest).normalize().as_tuple()
    if len(digits.digits) == 1:
        # Java uses at least two digits, the closest ones: 4.9E-324 where Python writes 5e-324.
        closest = f"{value:.1e}"
        if rounded(float(closest)) == value:
            digits = Decimal(closest).as_tuple()
    letters = "".join(map(str, digits.digits))
    assert isinstance(digits.exponent, int)
    exponent = len(letters) - 1 + digits.exponent
    return f"{'-' if digits.sign else ''}{letters[0]}.{letters[1:] or '0'}E{exponent}"
