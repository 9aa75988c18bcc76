"""Java's `String.format` (such as `%-5d`) for PRINTF. Raises `JavaFormatError` where Java rejects the format."""

from __future__ import annotations

import decimal
import re
from typing import Any

__all__ = ["JavaFormatError", "java_format"]

_PART = re.compile(r"%(?:([0-9]+)\$|(<))?([-#+ 0,(]*)([0-9]+)?(?:\.([0-9]+))?([tT])?([a-zA-Z%])?")


_COUNT_DIGITS_MAX = 6


class JavaFormatError(ValueError):
    """Java rejects this format, or an argument of it."""


def java_format(template: str, values: tuple[Any, ...], texts: tuple[str, ...]) -> str:
    """Formats values by a template. `texts` are the values as Java's strings, for `%s`.

    >>> java_format("%2$s is %1$05.1f", (2.25, "x"), ("2.25", "x"))
    'x is 002.3'
    """
    pieces: list[str] = []
    at, ordinary, last = 0, 0, -1
    while (start := template.find("%", at)) >= 0:
        pieces.append(template[at:start])
        match = _PART.match(template, start)
        if not match or not match[7] or match[6]:
            raise JavaFormatError(f"{template!r} has an invalid format at {start}")
        at = match.end()
        if any(len(digits) > _COUNT_DIGITS_MAX for digits in (match[1] or "", match[4] or "", match[5] or "")):
            raise JavaFormatError(f"{template!r} requests more than a million characters at {start}")
        if match[7] in "%n":
            pieces.append(_pad("%" if match[7] == "%" else "\n", match[3], match[4]))
            continue
        if match[1]:
            last = int(match[1]) - 1
        elif not match[2]:
            last, ordinary = ordinary, ordinary + 1
        if not 0 <= last < len(values):
            raise JavaFormatError(f"{template!r} has no value for {match[0]}")
        pieces.append(_format_value(values[last], texts[last], match))
    return "".join([*pieces, template[at:]])


def _format_value(value: Any, text: str, match: re.Match[str]) -> str:
    """Formats a value by one format specifier."""
    flags, width, digits, letter = match[3], match[4], match[5], match[7]
    kind = letter.lower()
    if kind not in "bhscdoxefga" or (letter.isupper() and kind in "dof"):
        raise JavaFormatError(f"%{letter} is not a format conversion")
    if len(set(flags)) < len(flags) or (("-" in flags or "0" in flags) and not width):
        raise JavaFormatError(f"the flags {flags!r} are invalid")
    if value is None:
        shown = "false" if kind == "b" else "null"
        shown = shown if digits is None else shown[: int(digits)]
    elif kind in "bhsc":
        shown = _format_general(value, text, kind, digits)
    elif kind in "dox":
        shown = _format_integer(value, kind, flags, width, digits)
    else:
        shown = _format_fraction(value, kind, flags, width, 6 if digits is None else int(digits))
    return _pad(shown.upper() if letter.isupper() else shown, flags, width)


def _pad(text: str, flags: str, width: str | None) -> str:
    count = int(width or 0)
    return text.ljust(count) if "-" in flags else text.rjust(count)


def _format_general(value: Any, text: str, kind: str, digits: str | None) -> str:
    if kind == "b":
        shown = "false" if value is False else "true"
    elif kind == "c":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 0x10FFFF:
            raise JavaFormatError(f"{value!r} is not a character")
        shown = chr(value)
    elif kind == "h":
        if not isinstance(value, int) or isinstance(value, bool):
            raise JavaFormatError("%h supports integers only")
        shown = f"{(value ^ (value >> 32) if abs(value) >= 2**31 else value) & 0xFFFFFFFF:x}"
    else:
        shown = text
    return shown if digits is None else shown[: int(digits)]


def _format_integer(value: Any, kind: str, flags: str, width: str | None, digits: str | None) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or digits is not None:
        raise JavaFormatError(f"{value!r} is not an integer")
    if kind != "d":
        bits = 2**64 if abs(value) >= 2**31 else 2**32
        prefix = {"x": "0x", "o": "0"}[kind] if "#" in flags else ""
        shown = prefix + format(value % bits, kind)
        return shown.rjust(int(width), "0") if "0" in flags and width else shown
    return _add_sign(value < 0, f"{abs(value):,}" if "," in flags else str(abs(value)), flags, width)


def _format_fraction(value: Any, kind: str, flags: str, width: str | None, digits: int) -> str:
    if not isinstance(value, float) or kind == "a":
        raise JavaFormatError(f"{value!r} is not a number for %{kind}")
    if value != value or value in (float("inf"), float("-inf")):
        name = "NaN" if value != value else "Infinity"
        return _add_sign(value < 0, name, flags.replace("0", ""), width)
    # Java rounds the decimal representation of the number half up.
    exact = decimal.Decimal(repr(abs(value)))
    if kind == "g":
        digits = max(digits, 1)
        plain = exact == 0 or decimal.Decimal("0.0001") <= exact < decimal.Decimal(10) ** digits
        kind = "f" if plain else "e"
        digits = digits - 1 - (exact.adjusted() if exact and kind == "f" else 0)
    if kind == "f":
        rounded = exact.quantize(
            decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_UP, decimal.Context(prec=400 + digits)
        )
        shown = f"{rounded:,f}" if "," in flags else f"{rounded:f}"
    else:
        shown = _scientific(exact, digits)
    return _add_sign(value < 0 or str(value).startswith("-"), shown, flags, width)


def _scientific(exact: decimal.Decimal, digits: int) -> str:
    context = decimal.Context(prec=digits + 1, rounding=decimal.ROUND_HALF_UP)
    rounded = context.plus(exact)
    exponent = rounded.adjusted() if rounded else 0
    return f"{rounded.scaleb(-exponent):.{digits}f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _add_sign(negative: bool, shown: str, flags: str, width: str | None) -> str:
    """Adds the sign, and zeros if the flags request them."""
    before, behind = "", ""
    if negative:
        before, behind = ("(", ")") if "(" in flags else ("-", "")
    elif "+" in flags or " " in flags:
        before = "+" if "+" in flags else " "
    if "0" in flags and width:
        shown = shown.rjust(int(width) - len(before) - len(behind), "0")
    return before + shown + behind
