"""Forwards the lines that user code prints and logs in a task to the driver.

While a task runs, `sys.stdout`, `sys.stderr` and the root logger are captured; complete lines are added to a bounded
list that is sent with the task's acknowledgement (or its failure). Only attempts that count are shown, so a retried
task does not print twice.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OutputLines", "capture_output"]

OutputLines = list[list[str]]
_LINES_MAX = 1000


class _Lines(io.TextIOBase):
    """A string stream that collects complete lines."""

    def __init__(self, stream: str, lines: OutputLines) -> None:
        self._stream, self._lines, self._open = stream, lines, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *complete, self._open = (self._open + text).split("\n")
        for line in complete:
            _append(self._lines, [self._stream, line])
        return len(text)

    def end(self) -> None:
        if self._open:
            self.write("\n")


class _Records(logging.Handler):
    def __init__(self, lines: OutputLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        _append(self._lines, ["log", record.levelname, record.name, self.format(record)])


def _append(lines: OutputLines, line: list[str]) -> None:
    if len(lines) < _LINES_MAX:
        lines.append(line)
    elif len(lines) == _LINES_MAX:
        lines.append(["stderr", f"… more than {_LINES_MAX} lines in one task and epoch; the rest is not shown"])


@contextmanager
def capture_output(lines: OutputLines) -> Iterator[None]:
    """Collects lines printed and logged inside the block into `lines`."""
    stdout, stderr = sys.stdout, sys.stderr
    handler = _Records(lines)
    root = logging.getLogger()
    level = root.level
    out, err = _Lines("stdout", lines), _Lines("stderr", lines)
    sys.stdout, sys.stderr = out, err
    root.addHandler(handler)
    if level > logging.INFO:
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        root.removeHandler(handler)
        root.setLevel(level)
        out.end()
        err.end()
