"""Prints results as lines, on a terminal in pages.

An endless result is shown as long as the user reads it. On a terminal a page waits for a key, and while it waits no
further row is consumed, so its job waits too.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.cells import cell_len

from millstream.connectors.print_sink import showable

__all__ = ["Pages", "read_key", "write_lines"]

_REST_OF_KEY_S = 0.05
_DOWN = ("\x1b[B", "\x1bOB")


def write_lines(lines: Iterable[str], output: TextIO) -> None:
    """Write lines as they arrive."""
    for line in lines:
        output.write(showable(line, output) + "\n")
        output.flush()


class Pages:
    """Lines in pages of a terminal. `next_key` waits for a key: space continues by a page, Enter or the arrow down by a
    line, q ends."""

    PROMPT = "-- more: space for a page, Enter for a line, q to end --"

    def __init__(self, output: TextIO, height: int, width: int, next_key: Callable[[], str]) -> None:
        self._output = output
        self._page_lines = max(2, height - 1)
        self._width = max(1, width)
        self._next_key = next_key

    def show(self, lines: Iterable[str]) -> bool:
        """Write the lines; False if the user has ended it."""
        left = self._page_lines
        for line in lines:
            if left <= 0:
                left = self._lines_wanted()
                if left == 0:
                    return False
            write_lines((line,), self._output)
            left -= self._rows_of(line)
        return True

    def _rows_of(self, line: str) -> int:
        """The number of terminal rows of a line: a wider one is wrapped, and a string may have several."""
        return sum(max(1, -(-cell_len(part) // self._width)) for part in line.split("\n"))

    def _lines_wanted(self) -> int:
        self._output.write(self.PROMPT)
        self._output.flush()
        try:
            key = self._next_key()
        finally:
            self._output.write("\r" + " " * len(self.PROMPT) + "\r")
            self._output.flush()
        if key in ("q", "Q", "\x03", "\x04", ""):
            return 0
        return 1 if key in ("\r", "\n", *_DOWN) else self._page_lines


def read_key() -> str:
    """The next key, without waiting for Enter. Later bytes (keys typed ahead) stay in the input."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        key = os.read(descriptor, 1)
        # An arrow key sends several bytes.
        while key.startswith(b"\x1b") and len(key) < 8 and select.select([descriptor], [], [], _REST_OF_KEY_S)[0]:
            key += os.read(descriptor, 1)
            if (key[-1:].isalpha() and key != b"\x1bO") or key.endswith(b"~"):
                break
        return key.decode(errors="replace")
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
