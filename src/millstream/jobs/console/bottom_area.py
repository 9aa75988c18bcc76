"""The last rows of a terminal, which are ours while a job runs: drawn, taken away for what is printed, drawn again.

Invariant: between two calls the area's rows are the last ones written, the cursor stands at the end of the last of
them, and nothing else has been written since. So an area is taken away by going up as many rows as it has.

A terminal that becomes narrower breaks its long rows in two, or cuts them. It does not say which, so its name must
(`breaks_rows`): then it is known how many rows the area has become, and they are taken away and nothing else. What
others wrote above them is never touched. Nothing of an area that has less than half of the rows scrolls out of sight,
if the window loses at most half of its width or height at a time.

While a window is dragged nothing is drawn: rows made for one width would be shown in another, and counted wrongly.

It writes to a copy of the terminal's file descriptor: while Spark's JVM starts, standard error is led elsewhere
(`spark/session.py`), and those are the seconds in which a person waits.
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
# A row that is too long for a terminal that has just shrunk is cut, not broken in two.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A window that has had its size for so long is not being dragged.
_SETTLED_S = 0.15
_USUAL_SIZE = os.terminal_size((80, 24))


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Columns and rows of the terminal behind `stream`, now; 80 by 24 where nobody knows."""
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(stream.fileno())
        if size.columns > 0 and size.lines > 0:
            return size
    return _USUAL_SIZE


def breaks_rows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal breaks rows that have become too long, as nearly all do. Those known to cut them are
    xterm, GNU screen (tmux has its name too, and breaks them), the older rxvt and Linux without a desktop.

    >>> breaks_rows({"TERM": "xterm-256color"}), breaks_rows({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"})
    (True, False)
    """
    name = environment.get("TERM", "")
    if "TMUX" in environment or name.startswith("tmux"):
        return True
    is_known_to_cut = "XTERM_VERSION" in environment or "STY" in environment
    return not is_known_to_cut and not name.startswith("screen") and name not in ("rxvt", "linux")


class BottomArea:
    """The rows at the bottom of one terminal. Any thread may call; each call is done as a whole. The cursor is not
    hidden: a job that is killed could not give it back."""

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
        """The size of the terminal now. A row should be shorter than it is wide."""
        return self._size()

    def draw(self, rows: Sequence[str]) -> None:
        """Show these rows in place of those that are there; of a window that is being dragged, take them away."""
        with self.lock:
            if self._is_closed:
                return
            is_other_size = self._size() != self._size_seen
            before = self._taken_away() if is_other_size or list(rows) != list(self._rows) else ""
            if self._now_s() - self._size_since_s < _SETTLED_S:
                self._write(before)
            elif not self._rows:
                self._write(before + self._drawn(rows))

    def write_above(self, text: str) -> None:
        """Write whole lines of the program where the area stands, and the area below them."""
        with self.lock:
            # Rows for another size are left out: whoever draws brings new ones in a moment.
            rows = self._rows if self._size() == self._size_seen else ()
            before = self._taken_away()
            self._write(before + text + self._drawn(rows))

    def close(self, last_rows: Sequence[str] = ()) -> None:
        """Take the area away, and leave `last_rows` where it stood, for good."""
        with self.lock:
            if self._is_closed:
                return
            shown = "".join(row + "\n" for row in last_rows)
            self._write(self._taken_away() + (_NO_WRAP + shown + _WRAP if shown else ""))
            self._is_closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _taken_away(self) -> str:
        """What removes the area from the screen, and puts the cursor where it began."""
        size, rows = self._size(), self._rows
        if size != self._size_seen:
            self._size_seen, self._size_since_s = size, self._now_s()
        self._rows = ()
        if not rows:
            return ""
        height = sum(_rows_now(row, size.columns) for row in rows) if self._breaks_rows else len(rows)
        erased = _ERASE_ROW + (_UP + _ERASE_ROW) * (min(height, size.lines) - 1) + _ERASE_BELOW
        # What is broken and half out of sight goes on in the first row: what stands there would be joined to it.
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
        # A terminal that is gone (its window was closed) is nobody's loss: the job goes on.
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


def _rows_now(row: str, columns: int) -> int:
    """How many rows a row has become that is broken at so many columns."""
    from rich.cells import cell_len

    return max(1, -(-cell_len(_COLOURS.sub("", row)) // columns))
