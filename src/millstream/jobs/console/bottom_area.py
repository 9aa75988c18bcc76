"""The last rows of a terminal, which are ours while a job runs: drawn, taken away for what is printed, drawn again.

Invariant: between two calls the area's rows are the last ones written, the cursor stands at the end of the last of
them, and nothing else has been written since. So an area is taken away by going up as many rows as it has.

A terminal that becomes narrower breaks this. Some cut long rows, most break them in two, and none says which. So after
that the visible screen is cleared and written anew from memory: the lines of the program that fit, and the area below
them. What scrolled out of sight before stays where it is; nothing of an area that has at most half of the rows does, if
the window loses at most half of its width or height at a time.

It writes to a copy of the terminal's file descriptor: while Spark's JVM starts, standard error is led elsewhere
(`spark/session.py`), and those are the seconds in which a person waits.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

__all__ = ["BottomArea", "terminal_size"]

_ERASE_ROW, _ERASE_BELOW, _UP = "\r\x1b[2K", "\x1b[J", "\x1b[1A"
_CLEAR_SCREEN = "\x1b[H\x1b[J"
# A row that is too long for a terminal that has just shrunk is cut, not broken in two.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_REMEMBERED_LINES = 500
_USUAL_SIZE = os.terminal_size((80, 24))


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Columns and rows of the terminal behind `stream`, now; 80 by 24 where nobody knows."""
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(stream.fileno())
        if size.columns > 0 and size.lines > 0:
            return size
    return _USUAL_SIZE


class BottomArea:
    """The rows at the bottom of one terminal. Any thread may call; each call is done as a whole. The cursor is not
    hidden: a job that is killed could not give it back."""

    def __init__(self, stream: TextIO, size: Callable[[], os.terminal_size] | None = None) -> None:
        self._stream = stream
        self._descriptor = os.dup(stream.fileno()) if stream.isatty() else None
        self._size = size or (lambda: terminal_size(stream))
        self._size_drawn = self._size()
        self._rows: Sequence[str] = ()
        self._recent: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        self._is_closed = False
        self.lock = threading.RLock()  # a signal handler may write while its own thread writes
        stream.flush()

    @property
    def size(self) -> os.terminal_size:
        """The size of the terminal now. A row should be shorter than it is wide."""
        return self._size()

    def draw(self, rows: Sequence[str]) -> None:
        """Show these rows in place of those that are there."""
        with self.lock:
            is_there = list(rows) == list(self._rows) and self._size() == self._size_drawn
            if not self._is_closed and not is_there:
                before = self._taken_away(len(rows))
                self._write(before + self._drawn(rows))

    def write_above(self, text: str) -> None:
        """Write whole lines of the program where the area stands, and the area below them."""
        with self.lock:
            # Rows for another size are left out: whoever draws brings new ones in a moment.
            rows = self._rows if self._size() == self._size_drawn else ()
            before = self._taken_away(len(rows))
            self._remember(text)
            self._write(before + text + self._drawn(rows))

    def close(self, last_rows: Sequence[str] = ()) -> None:
        """Take the area away, and leave `last_rows` where it stood, for good."""
        with self.lock:
            if self._is_closed:
                return
            shown = "".join(row + "\n" for row in last_rows)
            self._write(self._taken_away(len(last_rows) + 1) + (_NO_WRAP + shown + _WRAP if shown else ""))
            self._rows, self._is_closed = (), True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _taken_away(self, rows_next: int = 0) -> str:
        """What removes the area from the screen, and puts the cursor where the next one, of so many rows, begins."""
        size, drawn = self._size(), self._size_drawn
        self._size_drawn = size
        if not self._rows:
            return ""
        if size.columns < drawn.columns:
            return _CLEAR_SCREEN + self._fitting_lines(size, rows_next)
        if size.lines < len(self._rows):
            return _CLEAR_SCREEN  # the area is all that is left in sight
        return _ERASE_ROW + (_UP + _ERASE_ROW) * (len(self._rows) - 1) + _ERASE_BELOW

    def _drawn(self, rows: Sequence[str]) -> str:
        self._rows = rows
        return _NO_WRAP + "\n".join(rows) + _WRAP if rows else ""

    def _fitting_lines(self, size: os.terminal_size, rows_next: int) -> str:
        """The newest lines of the program that leave room for so many rows."""
        left, fitting = size.lines - max(rows_next, 1), deque[str]()
        for line in reversed(self._recent):
            left -= max(1, -(-len(line) // size.columns))
            if left < 0:
                break
            fitting.appendleft(line + "\n")
        return "".join(fitting)

    def _remember(self, text: str) -> None:
        self._recent.extend(text.split("\n")[:-1])

    def _write(self, text: str) -> None:
        if self._descriptor is None:
            if not text or self._stream.closed:
                return
            self._stream.write(text)
            self._stream.flush()
            return
        data = text.encode(self._stream.encoding or "utf-8", errors="replace")
        # A terminal that is gone (its window was closed) is nobody's loss: the job goes on.
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
