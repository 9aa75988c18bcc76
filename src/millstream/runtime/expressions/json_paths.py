"""JSON paths, `lax $.a[0].b`, as in Flink's functions.

A path is **definite** if it can match only one value: it consists of names and single indexes. Its result is that
value. The result of any other path (`*`, `..`, slices, lists of indexes, filters) is the array of its matches. In
`strict` mode, the default, a definite step without a match is an error; in `lax` mode the result is missing. After the
first indefinite step no error is raised: values that do not match are omitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from millstream.runtime.expressions.json_filters import Filter, read_filter
from millstream.runtime.expressions.json_text import JsonError, with_extended_recursion

__all__ = ["MISSING", "JsonPath", "json_path"]

MISSING = object()
"""The path has no match."""
_MODE = re.compile(r"\s*(strict|lax)\s+(.+)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[^.\[\]()\s]+")
_PLACES = re.compile(r"\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]")
_SLICE = re.compile(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")
_NAMES = re.compile(
    r"""\[\s*((?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?:\s*,\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))*)\s*\]"""
)
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_FILTER = re.compile(r"\[\s*\?\s*\((.*?)\)\s*\]")


@dataclass(frozen=True)
class Step:
    """One step of a path. `kind`: name, names, place, places, slice, all, deep, filter, length."""

    kind: str
    names: tuple[str, ...] = ()
    places: tuple[int | None, ...] = ()
    filter: Filter | None = None

    @property
    def is_definite(self) -> bool:
        """Whether the step can match one value only."""
        return self.kind in ("name", "place", "length") or (self.kind == "names" and len(self.names) == 1)


@dataclass(frozen=True)
class JsonPath:
    """A parsed path."""

    is_strict: bool
    steps: tuple[Step, ...]

    @property
    def is_definite(self) -> bool:
        """Whether the path can match one value only."""
        return all(step.is_definite for step in self.steps)

    def find(self, document: Any) -> Any:
        """The match in a document, or MISSING; raises `JsonError` if a strict path does not match.

        >>> json_path("$.a[*].b").find({"a": [{"b": 1}, {"c": 2}]})
        [1]
        """
        value = document
        for at, step in enumerate(self.steps):
            if step.kind == "name" and type(value) is dict and step.names[0] in value:
                value = value[step.names[0]]  # nearly all steps are names
                continue
            if not step.is_definite:
                return with_extended_recursion(_all_matches, value, self.steps[at:])
            value = next(_matches(value, step), MISSING)
            if value is MISSING:
                if self.is_strict:
                    raise JsonError(f"the path has no match at step {at + 1}")
                return MISSING if self.is_definite else []
        return value


def _all_matches(value: Any, steps: tuple[Step, ...]) -> list[Any]:
    return list(_walk(value, steps))


def _walk(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """All values that the steps match."""
    if not steps:
        yield value
        return
    for each in _matches(value, steps[0]):
        yield from _walk(each, steps[1:])


def _matches(value: Any, step: Step) -> Iterator[Any]:
    """The values that one step matches."""
    match step.kind:
        case "name" | "names":
            if isinstance(value, dict):
                yield from (value[name] for name in step.names if name in value)
        case "place" | "places":
            if isinstance(value, list):
                yield from (value[p] for p in step.places if p is not None and -len(value) <= p < len(value))
        case "slice":
            if isinstance(value, list):
                yield from value[slice(*step.places)]
        case "all":
            yield from _children(value)
        case "deep":
            yield value
            for child in _children(value):
                yield from _matches(child, step)
        case "filter":
            yield from _filter(value, step)
        case "length":
            if isinstance(value, list | dict | str):
                yield len(value)


def _filter(value: Any, step: Step) -> Iterator[Any]:
    """The elements of an array, or an object itself, that satisfy a filter."""
    assert step.filter is not None
    elements = value if isinstance(value, list) else [value]
    yield from (each for each in elements if step.filter.holds(each))


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


@lru_cache(maxsize=1024)
def json_path(text: str) -> JsonPath:
    """Parses a path; raises `JsonError` if it is malformed."""
    match = _MODE.fullmatch(text)
    is_strict, source = (match[1].lower() == "strict", match[2].strip()) if match else (True, text.strip())
    if not source:
        _reject(text)
    if not source.startswith("$"):
        source = "$." + source
    steps: list[Step] = []
    at = 1
    while at < len(source):
        at = _read_step(source, at, steps, text)
    return JsonPath(is_strict, tuple(steps))


def _reject(text: str) -> NoReturn:
    raise JsonError(f"{text!r} is not a JSON path; write it like $.name[0]")


def _read_step(source: str, at: int, steps: list[Step], text: str) -> int:
    """Parses one step; returns its end."""
    if source.startswith("..", at):
        steps.append(Step("deep"))
        at += 2
        if source[at : at + 1] == "[":
            return at
    elif source[at] == ".":
        at += 1
    if source[at : at + 1] == "[":
        return _read_bracket(source, at, steps, text)
    if source[at : at + 1] == "*":
        steps.append(Step("all"))
        return at + 1
    name = _NAME.match(source, at)
    if not name or source[at - 1] != ".":
        _reject(text)
    if source.startswith("()", name.end()):
        if name[0] != "length":
            raise JsonError(f"the path {text!r} uses the function {name[0]}(); only length() is supported")
        steps.append(Step("length"))
        return name.end() + 2
    steps.append(Step("name", (name[0],)))
    return name.end()


def _read_bracket(source: str, at: int, steps: list[Step], text: str) -> int:
    """Parses a step in brackets; returns its end."""
    if match := _PLACES.match(source, at):
        places = tuple(int(place) for place in match[1].split(","))
        steps.append(Step("place" if len(places) == 1 else "places", places=places))
    elif match := _SLICE.match(source, at):
        ends = tuple(int(end) if end else None for end in (match[1], match[2]))
        steps.append(Step("slice", places=ends))
    elif match := _NAMES.match(source, at):
        names = tuple(_unescape(a or b) for a, b in _QUOTED.findall(match[1]))
        steps.append(Step("names", names))
    elif match := _FILTER.match(source, at):
        steps.append(Step("filter", filter=read_filter(match[1])))
    elif match := re.compile(r"\[\s*\*\s*\]").match(source, at):
        steps.append(Step("all"))
    else:
        _reject(text)
    return match.end()


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)
