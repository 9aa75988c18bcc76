"""A VARIANT is JSON in a canonical form: no blanks, sorted keys, and numbers as Flink writes them.

Integers keep their digits. A number with a decimal point is a decimal without trailing zeros; a number with an
exponent, or with more than 38 digits, is a DOUBLE in Java's format (`1000.0`, `1.0E-10`). Variants are equal if their
strings are equal.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn

from millstream.runtime.expressions.json_text import (
    JsonError,
    WrittenNumber,
    check_nesting,
    checked_end,
    json_text,
    with_extended_recursion,
)
from millstream.runtime.expressions.number_texts import float_text

__all__ = ["member", "parse_variant", "read_variant"]

_DIGITS_MAX = 38
_PLAIN = re.compile(r"-?(\d+)(?:\.(\d*))?")


def _number(text: str) -> WrittenNumber:
    """A number in canonical form."""
    match = _PLAIN.fullmatch(text)
    digits = ((match and match[2]) or "").rstrip("0")
    if match is None or len(match[1].lstrip("0")) + len(digits) > _DIGITS_MAX:
        return WrittenNumber(float_text(float(text), False))
    fraction = f".{digits}" if digits else ""
    whole = f"{match[1]}{fraction}"
    return WrittenNumber(f"-{whole}" if text.startswith("-") and whole != "0" else whole)


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        duplicate = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {duplicate!r} occurs twice; PARSE_JSON(text, TRUE) takes the last")
    return members


_NUMBERS: dict[str, Any] = {"parse_int": _number, "parse_float": _number, "parse_constant": _constant}
_STRICT = json.JSONDecoder(object_pairs_hook=_once, **_NUMBERS)
_LENIENT = json.JSONDecoder(**_NUMBERS)
_READER = json.JSONDecoder(parse_int=WrittenNumber, parse_float=WrittenNumber, parse_constant=WrittenNumber)


def parse_variant(text: str, takes_last: bool) -> str:
    """Converts a JSON string to a variant; raises JsonError if it is malformed.

    >>> parse_variant('{"b": 1.50, "a": [1e3, null]}', False)
    '{"a":[1000.0,null],"b":1.5}'
    """
    start = len(text) - len(text.lstrip(" \t\n\r"))
    check_nesting(text)
    try:
        value, end = with_extended_recursion((_LENIENT if takes_last else _STRICT).raw_decode, text, start)
        checked_end(text, value, end)
        return json_text(value)
    except (ValueError, RecursionError) as problem:
        raise JsonError(f"{text[:80]!r} is not JSON: {problem}") from None


def read_variant(variant: str) -> Any:
    """The value of a variant, with numbers as written."""
    return with_extended_recursion(_READER.decode, variant)


def member(variant: str, place: str | int) -> str | None:
    """The member of an object by key, or the element of an array by position from 1; None if absent."""
    value = read_variant(variant)
    if isinstance(place, str):
        if not isinstance(value, dict):
            raise JsonError(f"a key requires an object; this is {variant[:80]}")
        item = value.get(place)
        return None if place not in value else json_text(item)
    if not isinstance(value, list):
        raise JsonError(f"a position requires an array; this is {variant[:80]}")
    return json_text(value[place - 1]) if 1 <= place <= len(value) else None
