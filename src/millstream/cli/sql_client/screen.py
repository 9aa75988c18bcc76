"""Where results are shown: lines one behind the other, in pages on a terminal; or one table that changes in place.

A result that never ends is shown as long as the user looks at it. On a terminal a page waits for a key, and while it
waits no further row is taken, so the job behind it waits too.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.connectors.print_sink import showable

__all__ = ["LiveRows", "Pages", "live_table", "read_key", "write_lines"]

_REFRESH_S = 0.25
_REST_OF_KEY_S = 0.05
_DOWN = ("\x1b[B", "\x1bOB")


def write_lines(lines: Iterable[str], output: TextIO) -> None:
    """Write lines as they come."""
    for line in lines:
        output.write(showable(line, output) + "\n")
        output.flush()


class Pages:
    """Lines in pages of a terminal. `next_key` waits for a key: space goes on by a page, Enter or the arrow down by a
    line, q ends."""

    PROMPT = "-- more: space for a page, Enter for a line, q to end --"

    def __init__(self, output: TextIO, height: int, width: int, next_key: Callable[[], str]) -> None:
        self._output = output
        self._page_lines = max(2, height - 1)
        self._width = max(1, width)
        self._next_key = next_key

    def show(self, lines: Iterable[str]) -> bool:
        """Write the lines; False if the user has seen enough."""
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
        """How many rows of the terminal a line takes: one that is wider is broken, and a text may have several."""
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
    """The next key, without waiting for Enter. Bytes behind it stay where they are: keys that are typed ahead."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        key = os.read(descriptor, 1)
        # An arrow is several bytes, and one key.
        while key.startswith(b"\x1b") and len(key) < 8 and select.select([descriptor], [], [], _REST_OF_KEY_S)[0]:
            key += os.read(descriptor, 1)
            if (key[-1:].isalpha() and key != b"\x1bO") or key.endswith(b"~"):
                break
        return key.decode(errors="replace")
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class LiveRows:
    """The rows that are in a result now, in the order in which they came to be as they are. Of very many the newest are
    kept: whoever looks at a screen sees no others."""

    KEPT_MAX = 100_000

    def __init__(self) -> None:
        self.count = 0
        self._times: dict[tuple[str, ...], int] = {}

    def apply(self, kind: str, row: tuple[str, ...]) -> None:
        """A change: +I and +U add a row, -U and -D take one away."""
        times = self._times.pop(row, 0)
        if kind in ("+I", "+U"):
            self.count += 1
            self._times[row] = times + 1
            if len(self._times) > self.KEPT_MAX:
                del self._times[next(iter(self._times))]
            return
        self.count -= 1
        if times > 1:
            self._times[row] = times - 1

    def newest(self, most: int) -> list[tuple[str, ...]]:
        """The newest rows, the oldest of them first."""
        found: list[tuple[str, ...]] = []
        for row in reversed(self._times):
            found += [row] * min(self._times[row], most - len(found))
            if len(found) >= most:
                break
        return found[::-1]


def live_table(names: Sequence[str], changes: Iterable[Sequence[str]], console: Console) -> int:
    """Show a result in one table that changes in place: the newest rows that fit, how many there are, and how fast
    changes come. A change is its kind, then the row. Returns how many rows there are in the end."""
    started_s = shown_s = time.monotonic()
    rows = LiveRows()
    seen = 0

    def picture(is_done: bool) -> Group:
        rate = seen / max(time.monotonic() - started_s, 0.001)
        ending = "done" if is_done else "Ctrl-C ends the query"
        table = Table()
        for name in names:
            table.add_column(Text(name), overflow="ellipsis", no_wrap=True)
        for row in rows.newest(max(3, console.height - 7)):
            table.add_row(*map(Text, row))
        # No caption of the table's: that would be as narrow as the table.
        return Group(
            table,
            Text(f"{rows.count:,} row{'' if rows.count == 1 else 's'} · {rate:,.0f}/s · {ending}", style="dim italic"),
        )

    with Live(picture(False), console=console, auto_refresh=False, transient=False) as live:
        for kind, *row in changes:
            rows.apply(kind, tuple(row))
            seen += 1
            if time.monotonic() - shown_s >= _REFRESH_S:
                shown_s = time.monotonic()
                live.update(picture(False), refresh=True)
        live.update(picture(True), refresh=True)
    return rows.count
