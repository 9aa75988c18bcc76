"""A VARIANT is its JSON in one way of writing: no blanks, keys in order, each number as Flink writes it.

A whole number keeps its digits. One with a point is a decimal, without zeros at its end; one with an exponent, or with
more than 38 digits, is a DOUBLE as Java writes it (`1000.0`, `1.0E-10`). Variants are equal if they are written alike.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn

from millstream.runtime.expressions.json_text import (
    JsonProblem,
    WrittenNumber,
    check_nesting,
    checked_end,
    json_text,
    with_room,
)
from millstream.runtime.expressions.number_texts import float_text

__all__ = ["member", "parsed_variant", "read_variant"]

_DIGITS_MAX = 38
_PLAIN = re.compile(r"-?(\d+)(?:\.(\d*))?")


def _number(text: str) -> WrittenNumber:
    """A number in its one way of writing."""
    found = _PLAIN.fullmatch(text)
    digits = ((found and found[2]) or "").rstrip("0")
    if found is None or len(found[1].lstrip("0")) + len(digits) > _DIGITS_MAX:
        return WrittenNumber(float_text(float(text), False))
    fraction = f".{digits}" if digits else ""
    whole = f"{found[1]}{fraction}"
    return WrittenNumber(f"-{whole}" if text.startswith("-") and whole != "0" else whole)


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {twice!r} is there twice; PARSE_JSON(text, TRUE) takes the last")
    return members


_NUMBERS: dict[str, Any] = {"parse_int": _number, "parse_float": _number, "parse_constant": _constant}
_STRICT = json.JSONDecoder(object_pairs_hook=_once, **_NUMBERS)
_LENIENT = json.JSONDecoder(**_NUMBERS)
_READER = json.JSONDecoder(parse_int=WrittenNumber, parse_float=WrittenNumber, parse_constant=WrittenNumber)


def parsed_variant(text: str, takes_last: bool) -> str:
    """The variant that a text in JSON is; JsonProblem where it is none.

    >>> parsed_variant('{"b": 1.50, "a": [1e3, null]}', False)
    '{"a":[1000.0,null],"b":1.5}'
    """
    start = len(text) - len(text.lstrip(" \t\n\r"))
    check_nesting(text)
    try:
        value, end = with_room((_LENIENT if takes_last else _STRICT).raw_decode, text, start)
        checked_end(text, value, end)
        return json_text(value)
    except (ValueError, RecursionError) as problem:
        raise JsonProblem(f"{text[:80]!r} is no JSON: {problem}") from None


def read_variant(variant: str) -> Any:
    """The value of a variant, whose numbers are written as they stand there."""
    return with_room(_READER.decode, variant)


def member(variant: str, place: str | int) -> str | None:
    """The member of an object by its key, or the element of an array by its place from 1; None: there is none."""
    value = read_variant(variant)
    if isinstance(place, str):
        if not isinstance(value, dict):
            raise JsonProblem(f"a key looks into an object; this is {variant[:80]}")
        found = value.get(place)
        return None if place not in value else json_text(found)
    if not isinstance(value, list):
        raise JsonProblem(f"a place looks into an array; this is {variant[:80]}")
    return json_text(value[place - 1]) if 1 <= place <= len(value) else None
