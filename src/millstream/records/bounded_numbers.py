"""Parses numbers from untrusted strings with bounded work.

`1e999999999` is eleven characters, but a gigabyte as an integer. Python's `int(Decimal)` takes hours, and Arrow's
decimal parser crashes on `1e-999999999`. So all strings are converted to decimals here, and all decimals to integers:
digits and exponent are checked before any computation. Values beyond the bounds raise ValueError.
"""

from __future__ import annotations

import decimal
import re

__all__ = ["DIGITS_MAX", "LONG_EXPONENT", "bounded_decimal", "is_whole", "whole_part"]

DIGITS_MAX = 150_000
"""The maximum number of digits, and of places from the decimal point; PostgreSQL's numeric has at most 147,455."""
LONG_EXPONENT = "[0-9.][eE][+-]?[0-9]{4}"
"""Numbers that must not be passed to Arrow: they exceed its tables of powers."""

_WHOLE_DIGITS_MAX = 4_300  # Python's own limit for integer strings
_NUMBER = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?)0*([0-9]+))?|[+-]?[a-zA-Z]+")
_EXPONENT_DIGITS_MAX = 17  # of Python's decimals


def bounded_decimal(text: str, scale: int | None = None) -> decimal.Decimal:
    """The decimal that a string denotes. Raises ValueError. With `scale`, to which the caller rounds, numbers far below
    the last digit become 0, as does 0 with any exponent.

    >>> bounded_decimal("-1.50"), bounded_decimal("1E+3"), bounded_decimal("1e-999999999", scale=2)
    (Decimal('-1.50'), Decimal('1E+3'), Decimal('0'))
    >>> bounded_decimal("1e999999999")
    Traceback (most recent call last):
        ...
    ValueError: '1e999999999' is beyond the decimals that are read: they have at most 150,000 digits, no further from \
the point
    """
    trimmed = text.strip()
    match = _NUMBER.fullmatch(trimmed)
    if match is None:
        raise ValueError(f"{_shown(text)} is not a decimal number")
    if len(match[3] or "") > _EXPONENT_DIGITS_MAX:  # beyond every bound
        trimmed = f"{match[1]}e{match[2]}{'9' * _EXPONENT_DIGITS_MAX}"
    try:
        number = decimal.Decimal(trimmed)
    except decimal.InvalidOperation:
        raise ValueError(f"{_shown(text)} is not a decimal number") from None
    if scale is not None and number.is_finite() and (not number or number.adjusted() < -scale - 1):
        return decimal.Decimal(0)
    exponent = number.as_tuple().exponent if len(trimmed) <= 2 * DIGITS_MAX else DIGITS_MAX + 1
    if isinstance(exponent, int) and max(abs(exponent), abs(number.adjusted())) > DIGITS_MAX:
        raise ValueError(
            f"{_shown(text)} is beyond the decimals that are read: they have at most {DIGITS_MAX:,} digits, no further "
            "from the point"
        )
    return number


def whole_part(number: decimal.Decimal | float, digits_max: int = _WHOLE_DIGITS_MAX) -> int:
    """The number without its fraction. Raises ValueError if it has more digits than the limit, or is not finite.

    >>> whole_part(decimal.Decimal("-1.9")), whole_part(decimal.Decimal("0e999999999"))
    (-1, 0)
    """
    if isinstance(number, decimal.Decimal):
        if number.is_finite() and not number:
            return 0
        if not number.is_finite() or number.adjusted() >= digits_max:
            raise ValueError(f"{_shown(str(number))} has more than {digits_max:,} digits before the point")
    try:
        return int(number)
    except OverflowError:  # infinity
        raise ValueError(f"{number!r} is not a whole number") from None


def is_whole(number: decimal.Decimal | float) -> bool:
    """Whether it is finite and has no fraction.

    >>> is_whole(decimal.Decimal("1e999999999")), is_whole(1.5), is_whole(float("inf"))
    (True, False, False)
    """
    if isinstance(number, decimal.Decimal):
        return number.is_finite() and number == number.to_integral_value()
    return number == number // 1 if isinstance(number, float) else True


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
