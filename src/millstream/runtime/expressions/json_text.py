"""Reads and writes JSON as Flink does: numbers with a decimal point keep their digits, the last of duplicate keys
counts, keys are sorted on output, and characters after the first value are ignored.

Parsed values are dict, list, str, bool, None, int, and `Decimal` for numbers with a decimal point or an exponent.

Nesting is limited to 1,000 levels, as in Flink, so that the result does not depend on the depth of the caller's stack.
"""

from __future__ import annotations

import decimal
import json
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from millstream.runtime.expressions.java_text import units_of

__all__ = [
    "JsonError",
    "WrittenNumber",
    "check_nesting",
    "checked_end",
    "json_text",
    "quote_json",
    "read_json",
    "with_extended_recursion",
]

_Result = TypeVar("_Result")
_LEVELS_MAX = 1_000
# Reading uses one stack frame per level, writing two, in addition to the caller's frames.
_FRAMES = 5_000
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)

_HALF = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile('[\x00-\x1f"\\\\]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class JsonError(ValueError):
    """A string is not JSON, or a path has no match in it."""


class WrittenNumber:
    """A number that is written to JSON in its original form."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return False  # never equals zero, since a zero's sign would be dropped

    __hash__ = object.__hash__


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_reject)


def check_nesting(text: str) -> None:
    """Raises JsonError if a string is nested too deeply."""
    if text.count("[") + text.count("{") <= _LEVELS_MAX:
        return
    level = 0
    for bracket in _BRACKETS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket[0], 0)
        if level > _LEVELS_MAX:
            raise JsonError(f"{text[:80]!r} is not JSON: it is nested deeper than {_LEVELS_MAX:,} levels")


class _ExtendedRecursion:
    """Raises Python's recursion limit, which all threads share, while deeply nested values are read or written. The
    last thread to leave restores it, unless the program has changed the limit in the meantime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside, self._previous_limit = 0, 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._previous_limit = sys.getrecursionlimit()
                sys.setrecursionlimit(max(_FRAMES, self._previous_limit))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            is_unchanged = sys.getrecursionlimit() == max(_FRAMES, self._previous_limit)
            if not self._inside and is_unchanged:
                # A caller already at the limit cannot restore it from here; the limit then stays raised.
                with suppress(RecursionError):
                    sys.setrecursionlimit(self._previous_limit)


_EXTENDED_RECURSION = _ExtendedRecursion()


def with_extended_recursion(act: Callable[..., _Result], *arguments: Any) -> _Result:
    """Runs `act`, which reads or writes a nested value, and repeats it with a raised recursion limit if it exceeds
    Python's. The limit is raised only then, so that it still stops endless recursion in user functions. `act` must be
    free of side effects."""
    try:
        return act(*arguments)
    except RecursionError:
        with _EXTENDED_RECURSION:
            return act(*arguments)


def read_json(text: str) -> Any:
    """Parses the value at the start of a string.

    >>> read_json('{"a": 1.50}')
    {'a': Decimal('1.50')}
    """
    start = 0 if text[:1] in ("{", "[") else len(text) - len(text.lstrip(" \t\n\r"))
    check_nesting(text)
    try:
        value, end = with_extended_recursion(_DECODER.raw_decode, text, start)
    except (ValueError, RecursionError, decimal.InvalidOperation) as problem:
        raise JsonError(f"{text[:80]!r} is not JSON: {problem}") from None
    checked_end(text, value, end)
    return value


def checked_end(text: str, value: Any, end: int) -> None:
    """Rejects a number or word directly followed by other text; brackets and quotes delimit themselves."""
    if not isinstance(value, str | list | dict) and text[end : end + 1] not in ("", " ", "\t", "\n", "\r"):
        raise JsonError(f"{text[:80]!r} is not JSON: {text[end]!r} follows a value")


def quote_json(text: str) -> str:
    """A string as a JSON string; characters beyond ASCII are not escaped.

    >>> quote_json("ä/\\t")
    '"ä/\\\\t"'
    """
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0]) or f"\\u{ord(match[0]):04X}"


def json_text(value: Any) -> str:
    """A value as JSON without blanks.

    >>> json_text({"a": [1, None, True]})
    '{"a":[1,null,true]}'
    """
    return with_extended_recursion(_json_text, value)


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return quote_json(_HALF.sub("?", value))
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: units_of(pair[0]))
        return "{" + ",".join(f"{quote_json(_HALF.sub('?', key))}:{_json_text(each)}" for key, each in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(abs(value) if value == 0 else value)  # Java's decimals have no negative zero
