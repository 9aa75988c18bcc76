"""Filters in JSON paths: `@.price < 10`, `@.name`, combined with `&&` and `||`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millstream.runtime.expressions.json_text import JsonError

__all__ = ["Filter", "read_filter"]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_TEST = re.compile(r"\s*@((?:\.[\w$]+|\[\s*'[^']*'\s*\])*)\s*(?:(==|!=|<=|>=|<|>)\s*(.+?))?\s*")
_STEP = re.compile(r"\.([\w$]+)|\[\s*'([^']*)'\s*\]")
_MISSING = object()


@dataclass(frozen=True)
class Filter:
    """A disjunction of conjunctions of tests, each with path names, operator and constant; without an operator it tests
    for existence."""

    alternatives: tuple[tuple[tuple[tuple[str, ...], str, Any], ...], ...]

    def holds(self, value: Any) -> bool:
        """Whether a value satisfies the filter."""
        return any(all(_holds(value, *test) for test in tests) for tests in self.alternatives)


def _holds(value: Any, names: tuple[str, ...], sign: str, constant: Any) -> bool:
    for name in names:
        value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
    if value is _MISSING:
        return False
    if not sign:
        return True
    if isinstance(value, bool) or isinstance(constant, bool) or value is None or constant is None:
        return (value is constant) == (sign == "==") if sign in ("==", "!=") else False
    if isinstance(value, str) != isinstance(constant, str) or isinstance(value, list | dict):
        return sign == "!="
    return bool(_OPERATORS[sign](value, constant))


def read_filter(text: str) -> Filter:
    """Parses a filter; raises `JsonError` for unsupported ones."""
    return Filter(tuple(tuple(_read_test(test) for test in part.split("&&")) for part in text.split("||")))


def _read_test(text: str) -> tuple[tuple[str, ...], str, Any]:
    match = _TEST.fullmatch(text)
    if not match:
        raise JsonError(f"the filter {text!r} is not supported; write it like @.name == 1")
    names = tuple(a or b for a, b in _STEP.findall(match[1]))
    return names, match[2] or "", _constant(match[3], text) if match[3] else None


def _constant(text: str, whole: str) -> Any:
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        return Decimal(text)
    except ArithmeticError:
        raise JsonError(f"the filter {whole!r} compares with {text!r}, which is not a constant") from None
