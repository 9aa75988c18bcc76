"""JSON as Flink reads and writes it: numbers with a point keep their digits, the last of equal keys counts, keys are
written in order, and what stands behind the first value is not looked at.

Read values are dict, list, str, bool, None, int, and `Decimal` for numbers with a point or an exponent.

Nesting ends at 1,000 levels, as in Flink: what a text is must not hang on how deep the caller's own stack is.
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
    "JsonProblem",
    "WrittenNumber",
    "check_nesting",
    "checked_end",
    "json_quoted",
    "json_text",
    "read_json",
    "with_room",
]

_Result = TypeVar("_Result")
_LEVELS_MAX = 1_000
# Reading takes a frame of the stack for each level, writing two: the levels, and what stands below them.
_FRAMES = 5_000
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)

_HALF = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile('[\x00-\x1f"\\\\]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class JsonProblem(ValueError):
    """A text is no JSON, or a path finds nothing in it."""


class WrittenNumber:
    """A number that goes into JSON as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return False  # it is no zero whose sign must go

    __hash__ = object.__hash__


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_refuse)


def check_nesting(text: str) -> None:
    """JsonProblem where a text is nested too deeply to be read."""
    if text.count("[") + text.count("{") <= _LEVELS_MAX:
        return
    level = 0
    for found in _BRACKETS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if level > _LEVELS_MAX:
            raise JsonProblem(f"{text[:80]!r} is no JSON: it is nested in more than {_LEVELS_MAX:,} levels")


class _Room:
    """Python's bound of frames, which all threads share: raised while somebody reads or writes what is deeply nested,
    and put back by the last who leaves. A program that has set a bound of its own meanwhile keeps that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside, self._bound_before = 0, 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._bound_before = sys.getrecursionlimit()
                sys.setrecursionlimit(max(_FRAMES, self._bound_before))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            is_ours = sys.getrecursionlimit() == max(_FRAMES, self._bound_before)
            if not self._inside and is_ours:
                # A caller that stands at the bound itself cannot get it back from here; it stays as it is then.
                with suppress(RecursionError):
                    sys.setrecursionlimit(self._bound_before)


_ROOM = _Room()


def with_room(act: Callable[..., _Result], *arguments: Any) -> _Result:
    """The result of reading or writing what is nested in as many levels as there may be. Python's own bound is low; it
    is raised only while a value is at work that needs it: whoever else counts on it (a function of the user's that
    never ends) is still stopped by it. `act` may be begun again, so that it changes nothing."""
    try:
        return act(*arguments)
    except RecursionError:
        with _ROOM:
            return act(*arguments)


def read_json(text: str) -> Any:
    """The value that a text begins with.

    >>> read_json('{"a": 1.50}')
    {'a': Decimal('1.50')}
    """
    start = 0 if text[:1] in ("{", "[") else len(text) - len(text.lstrip(" \t\n\r"))
    check_nesting(text)
    try:
        value, end = with_room(_DECODER.raw_decode, text, start)
    except (ValueError, RecursionError, decimal.InvalidOperation) as problem:
        raise JsonProblem(f"{text[:80]!r} is no JSON: {problem}") from None
    checked_end(text, value, end)
    return value


def checked_end(text: str, value: Any, end: int) -> None:
    """A number or a word ends where a blank follows; brackets and quotes end by themselves."""
    if not isinstance(value, str | list | dict) and text[end : end + 1] not in ("", " ", "\t", "\n", "\r"):
        raise JsonProblem(f"{text[:80]!r} is no JSON: {text[end]!r} stands behind a value")


def json_quoted(text: str) -> str:
    """A text as JSON writes it: characters beyond ASCII as they are.

    >>> json_quoted("ä/\\t")
    '"ä/\\\\t"'
    """
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0]) or f"\\u{ord(match[0]):04X}"


def json_text(value: Any) -> str:
    """A value as JSON, without blanks.

    >>> json_text({"a": [1, None, True]})
    '{"a":[1,null,true]}'
    """
    return with_room(_json_text, value)


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return json_quoted(_HALF.sub("?", value))
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: units_of(pair[0]))
        return "{" + ",".join(f"{json_quoted(_HALF.sub('?', key))}:{_json_text(each)}" for key, each in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(abs(value) if value == 0 else value)  # Java's decimals have no negative zero
