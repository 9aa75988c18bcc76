"""Paths into JSON, `lax $.a[0].b`, as Flink's functions take them.

A path is **definite** if it can lead to one value only: names and single places. It gives that value. All others (`*`,
`..`, slices, lists of places, filters) give the array of what they find. In `strict` mode, which is the rule, a
definite step that leads nowhere is an error; in `lax` mode it finds nothing. Past the first indefinite step nothing is
an error: what does not fit is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from millstream.runtime.expressions.json_filters import Filter, read_filter
from millstream.runtime.expressions.json_text import JsonProblem, with_room

__all__ = ["MISSING", "JsonPath", "json_path"]

MISSING = object()
"""Nothing was found."""
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
        """Whether it can lead to one value only."""
        return self.kind in ("name", "place", "length") or (self.kind == "names" and len(self.names) == 1)


@dataclass(frozen=True)
class JsonPath:
    """A path that was read."""

    is_strict: bool
    steps: tuple[Step, ...]

    @property
    def is_definite(self) -> bool:
        """Whether it can lead to one value only."""
        return all(step.is_definite for step in self.steps)

    def find(self, document: Any) -> Any:
        """What it leads to; MISSING if nothing, a `JsonProblem` if that is an error.

        >>> json_path("$.a[*].b").find({"a": [{"b": 1}, {"c": 2}]})
        [1]
        """
        value = document
        for at, step in enumerate(self.steps):
            if step.kind == "name" and type(value) is dict and step.names[0] in value:
                value = value[step.names[0]]  # nearly all steps are names
                continue
            if not step.is_definite:
                return with_room(_all_found, value, self.steps[at:])
            value = next(_taken(value, step), MISSING)
            if value is MISSING:
                if self.is_strict:
                    raise JsonProblem(f"the path leads nowhere at its step {at + 1}")
                return MISSING if self.is_definite else []
        return value


def _all_found(value: Any, steps: tuple[Step, ...]) -> list[Any]:
    return list(_walk(value, steps))


def _walk(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """Everything that the steps lead to."""
    if not steps:
        yield value
        return
    for each in _taken(value, steps[0]):
        yield from _walk(each, steps[1:])


def _taken(value: Any, step: Step) -> Iterator[Any]:
    """What one step leads to."""
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
                yield from _taken(child, step)
        case "filter":
            yield from _filtered(value, step)
        case "length":
            if isinstance(value, list | dict | str):
                yield len(value)


def _filtered(value: Any, step: Step) -> Iterator[Any]:
    """The elements of an array, or an object itself, for which a filter holds."""
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
    """Read a path; a `JsonProblem` if it is none."""
    match = _MODE.fullmatch(text)
    is_strict, source = (match[1].lower() == "strict", match[2].strip()) if match else (True, text.strip())
    if not source:
        _refuse(text)
    if not source.startswith("$"):
        source = "$." + source
    steps: list[Step] = []
    at = 1
    while at < len(source):
        at = _read_step(source, at, steps, text)
    return JsonPath(is_strict, tuple(steps))


def _refuse(text: str) -> NoReturn:
    raise JsonProblem(f"{text!r} is no path into JSON; one looks like $.name[0]")


def _read_step(source: str, at: int, steps: list[Step], text: str) -> int:
    """Read one step; gives where it ends."""
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
        _refuse(text)
    if source.startswith("()", name.end()):
        if name[0] != "length":
            raise JsonProblem(f"the path {text!r} has the function {name[0]}(); only length() is known here")
        steps.append(Step("length"))
        return name.end() + 2
    steps.append(Step("name", (name[0],)))
    return name.end()


def _read_bracket(source: str, at: int, steps: list[Step], text: str) -> int:
    """Read a step in brackets."""
    if match := _PLACES.match(source, at):
        places = tuple(int(place) for place in match[1].split(","))
        steps.append(Step("place" if len(places) == 1 else "places", places=places))
    elif match := _SLICE.match(source, at):
        ends = tuple(int(end) if end else None for end in (match[1], match[2]))
        steps.append(Step("slice", places=ends))
    elif match := _NAMES.match(source, at):
        names = tuple(_unescaped(a or b) for a, b in _QUOTED.findall(match[1]))
        steps.append(Step("names", names))
    elif match := _FILTER.match(source, at):
        steps.append(Step("filter", filter=read_filter(match[1])))
    elif match := re.compile(r"\[\s*\*\s*\]").match(source, at):
        steps.append(Step("all"))
    else:
        _refuse(text)
    return match.end()


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)
