"""Crashes between any two lines of somebody else's code.

The code is run once while its lines are counted, and then again and again, each time ended at another line: by an
exception that nothing should catch, or by the death of the process that ran it (`crash_processes`), in which no
`finally` and no `with` gets its turn. Only lines of the connector itself count, not those of the libraries it calls.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["KILLED", "CrashPoints", "SimulatedCrash"]

KILLED = 9
_ENGINE = Path(__file__).resolve().parents[2]
Line = tuple[str, int]


class SimulatedCrash(BaseException):
    """The process died here. No Exception: code that catches errors does not catch its own death."""


class CrashPoints:
    """The lines of `owner`'s code at which a call to it can crash."""

    def __init__(self, owner: Any) -> None:
        paths = [Path(path) for kind in type(owner).__mro__ if (path := _path_of(kind)) is not None]
        # Of a class that was derived from one of ours, its own lines are meant.
        own_paths = [path for path in paths if not path.is_relative_to(_ENGINE)]
        self._roots = tuple(sorted({_root_of(path) for path in own_paths or paths}))
        self._lines: list[Line] = []
        self._crash_at: int | None = None
        self._die: Callable[[], None] = _raise

    def count(self, call: Callable[[], Any]) -> int:
        """Run `call` undisturbed; returns how many lines of the connector it came to."""
        self._lines, self._crash_at = [], None
        self._traced(call)
        return len(self._lines)

    def chosen(self, many: int, *, by_exception: bool = False) -> list[int]:
        """Of the lines counted last, up to `many` moments: every line the first and the last time it is reached, and
        then some of these, evenly spread.

        Not lines with a `with`, if it is to be an exception: Python comes there once more before it leaves the block,
        and what was entered would never be left. A process that dies leaves everything."""
        lines = list(enumerate(self._lines))
        if by_exception:
            lines = [(at, line) for at, line in lines if not linecache.getline(*line).lstrip().startswith("with ")]
        moments = {line: at for at, line in reversed(lines)}
        moments_last = {line: at for at, line in lines}
        ordered = sorted({*moments.values(), *moments_last.values()})
        if len(ordered) <= many:
            return ordered
        return sorted({ordered[round(step * (len(ordered) - 1) / (many - 1))] for step in range(many)})

    def place(self, moment: int) -> str:
        """The line of a moment, for people."""
        path, line = self._lines[moment]
        return f"{Path(path).name}:{line}"

    def crash(self, call: Callable[[], Any], moment: int) -> bool:
        """Run `call` and let it crash just before its line number `moment`; whether it came that far."""
        try:
            self._crash_run(call, moment, _raise)
        except SimulatedCrash:
            return True
        return False

    def run_to_death(self, call: Callable[[], Any], moment: int) -> None:
        """Run `call`, and end this process there, as kill -9 does."""
        self._crash_run(call, moment, lambda: os._exit(KILLED))

    def _crash_run(self, call: Callable[[], Any], moment: int, die: Callable[[], None]) -> None:
        lines = self._lines
        self._lines, self._crash_at, self._die = [], moment, die
        try:
            self._traced(call)
        finally:
            self._lines, self._crash_at = lines, None

    def _traced(self, call: Callable[[], Any]) -> None:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(self._roots):
            return None
        if event == "line":
            if self._crash_at == len(self._lines):
                self._die()
            self._lines.append((path, frame.f_lineno))
        return self._trace


def _raise() -> None:
    sys.settrace(None)  # what cleans up after it is not disturbed again
    raise SimulatedCrash("the process died here")


def _path_of(kind: type) -> str | None:
    if kind.__module__ in ("builtins", "abc", "typing"):
        return None
    for member in vars(kind).values():
        code = getattr(member, "__code__", None)
        if code is not None:
            return str(code.co_filename)
    return None


def _root_of(path: Path) -> str:
    """The file of a class, or, of one that stands in a package, the package: a connector may be several modules."""
    if path.is_relative_to(_ENGINE):
        return str(_ENGINE / "connectors")  # the store and the records below are taken as whole
    top = path
    while (top.parent / "__init__.py").exists():
        top = top.parent
    return str(top)
