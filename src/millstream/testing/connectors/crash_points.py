"""Crashes between any two lines of a connector's code.

The code is run once while its lines are counted, and then repeatedly, and each time terminated at another line: by an
exception that nothing should catch, or by the death of its process (`crash_processes`), which completes no `finally` or
`with` block. Only lines of the connector itself count, not those of the libraries it calls.
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
    """Simulates the death of the process. A BaseException, so that code that catches errors does not catch it."""


class CrashPoints:
    """The lines of `owner`'s code at which a call to it can crash."""

    def __init__(self, owner: Any) -> None:
        paths = [Path(path) for kind in type(owner).__mro__ if (path := _path_of(kind)) is not None]
        # For a class derived from one of the engine's, its own lines count.
        own_paths = [path for path in paths if not path.is_relative_to(_ENGINE)]
        self._roots = tuple(sorted({_root_of(path) for path in own_paths or paths}))
        self._lines: list[Line] = []
        self._crash_at: int | None = None
        self._die: Callable[[], None] = _raise

    def count(self, call: Callable[[], Any]) -> int:
        """Run `call` undisturbed; returns the number of executed lines of the connector."""
        self._lines, self._crash_at = [], None
        self._traced(call)
        return len(self._lines)

    def chosen(self, many: int, *, by_exception: bool = False) -> list[int]:
        """Up to `many` of the steps counted last: the first and last execution of every line, then others, evenly
        spread.

        For exceptions, lines with a `with` are excluded: Python visits them once more before it leaves the block, and
        the context would never be left. A process that dies leaves everything."""
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
        """The line executed at a step, for messages."""
        path, line = self._lines[moment]
        return f"{Path(path).name}:{line}"

    def crash(self, call: Callable[[], Any], moment: int) -> bool:
        """Run `call` and crash it just before step `moment`; returns whether the step was reached."""
        try:
            self._crash_run(call, moment, _raise)
        except SimulatedCrash:
            return True
        return False

    def run_to_death(self, call: Callable[[], Any], moment: int) -> None:
        """Run `call`, and end this process at `moment`, as kill -9 does."""
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
    sys.settrace(None)  # cleanup is not interrupted again
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
    """The file of a class, or its package if it has one: a connector may span several modules."""
    if path.is_relative_to(_ENGINE):
        return str(_ENGINE / "connectors")  # the store and records below are trusted
    top = path
    while (top.parent / "__init__.py").exists():
        top = top.parent
    return str(top)
