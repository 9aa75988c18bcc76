"""The bottom rows of a terminal, reserved while a job runs: drawn, erased for the program's output, drawn again.

Invariant: between two calls the area's rows are the last ones written, the cursor is at the end of the last of them,
and nothing else has been written since. So the area is erased by moving up by its number of rows.

A terminal that becomes narrower wraps its long rows or cuts them. It does not report which, so the terminal's name
decides (`breaks_rows`). That gives the area's current number of rows, and exactly these are erased. Rows above them are
never touched. An area smaller than half of the window never scrolls out of sight if the window loses at most half of
its width or height at a time.

While a window is being resized nothing is drawn: rows made for one width would be shown in another, and counted
wrongly.

The area writes to a copy of the terminal's file descriptor: while Spark's JVM starts, standard error is redirected
(`spark/session.py`), which is when a user is waiting.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

__all__ = ["BottomArea", "breaks_rows", "terminal_size"]

_ERASE_ROW, _ERASE_BELOW, _UP = "\r\x1b[2K", "\x1b[J", "\x1b[1A"
# A row that is too long for a terminal that has just shrunk is cut, not wrapped.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A window whose size has not changed for this long is not being resized.
_SETTLED_S = 0.15
_USUAL_SIZE = os.terminal_size((80, 24))


def terminal_size(stream: TextIO) -> os.terminal_size:
    """The current columns and rows of the terminal of `stream`; 80 by 24 if unknown."""
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(stream.fileno())
        if size.columns > 0 and size.lines > 0:
            return size
    return _USUAL_SIZE


def breaks_rows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal wraps rows that have become too long, as nearly all do. xterm, GNU screen (tmux uses its
    name too, but wraps), older rxvt and the Linux console are known to cut them.

    >>> breaks_rows({"TERM": "xterm-256color"}), breaks_rows({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"})
    (True, False)
    """
    name = environment.get("TERM", "")
    if "TMUX" in environment or name.startswith("tmux"):
        return True
    is_known_to_cut = "XTERM_VERSION" in environment or "STY" in environment
    return not is_known_to_cut and not name.startswith("screen") and name not in ("rxvt", "linux")


class BottomArea:
    """The rows at the bottom of one terminal. Thread-safe; each call is atomic. The cursor is not hidden: a killed job
    could not restore it."""

    def __init__(
        self,
        stream: TextIO,
        size: Callable[[], os.terminal_size] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._stream = stream
        self._descriptor = os.dup(stream.fileno()) if stream.isatty() else None
        self._size, self._now_s = size or (lambda: terminal_size(stream)), now_s
        self._size_seen, self._size_since_s = self._size(), -math.inf
        self._breaks_rows = breaks_rows(environment)
        self._rows: Sequence[str] = ()
        self._is_closed = False
        self.lock = threading.RLock()  # a signal handler may write while its own thread writes
        stream.flush()

    @property
    def size(self) -> os.terminal_size:
        """The terminal's current size. Rows should be shorter than its width."""
        return self._size()

    def draw(self, rows: Sequence[str]) -> None:
        """Replace the area's rows; while the window is being resized, only erase them."""
        with self.lock:
            if self._is_closed:
                return
            is_other_size = self._size() != self._size_seen
            before = self._erased() if is_other_size or list(rows) != list(self._rows) else ""
            if self._now_s() - self._size_since_s < _SETTLED_S:
                self._write(before)
            elif not self._rows:
                self._write(before + self._drawn(rows))

    def write_above(self, text: str) -> None:
        """Write whole lines of program output where the area is, and redraw the area below them."""
        with self.lock:
            # Skip rows made for another size: the next draw follows shortly.
            rows = self._rows if self._size() == self._size_seen else ()
            before = self._erased()
            self._write(before + text + self._drawn(rows))

    def close(self, last_rows: Sequence[str] = ()) -> None:
        """Erase the area, and leave `last_rows` in its place permanently."""
        with self.lock:
            if self._is_closed:
                return
            shown = "".join(row + "\n" for row in last_rows)
            self._write(self._erased() + (_NO_WRAP + shown + _WRAP if shown else ""))
            self._is_closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _erased(self) -> str:
        """The escape sequence that erases the area and moves the cursor to its beginning."""
        size, rows = self._size(), self._rows
        if size != self._size_seen:
            self._size_seen, self._size_since_s = size, self._now_s()
        self._rows = ()
        if not rows:
            return ""
        height = sum(_rows_now(row, size.columns) for row in rows) if self._breaks_rows else len(rows)
        erased = _ERASE_ROW + (_UP + _ERASE_ROW) * (min(height, size.lines) - 1) + _ERASE_BELOW
        # A wrapped row that is partly out of sight continues in the first row: text there would be joined to it.
        return erased + "\n" if height > size.lines else erased

    def _drawn(self, rows: Sequence[str]) -> str:
        self._rows = rows
        return _NO_WRAP + "\n".join(rows) + _WRAP if rows else ""

    def _write(self, text: str) -> None:
        if self._descriptor is None:
            if not text or self._stream.closed:
                return
            self._stream.write(text)
            self._stream.flush()
            return
        data = text.encode(self._stream.encoding or "utf-8", errors="replace")
        # A closed terminal does not matter: the job continues.
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


def _rows_now(row: str, columns: int) -> int:
    """How many rows a row occupies when it is wrapped at this many columns."""
    from rich.cells import cell_len

    return max(1, -(-cell_len(_COLOURS.sub("", row)) // columns))
