"""Where results are shown: lines one behind the other, in pages on a terminal; or one table that changes in place.

A result that never ends is shown as long as the user looks at it. On a terminal a page waits for a key, and while it
waits no further row is taken, so the job behind it waits too.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.connectors.print_sink import showable

__all__ = ["Pages", "live_table", "read_key", "write_lines"]

_REFRESH_S = 0.25


def write_lines(lines: Iterable[str], output: TextIO) -> None:
    """Write lines as they come."""
    for line in lines:
        output.write(showable(line, output) + "\n")
        output.flush()


class Pages:
    """Lines in pages of a terminal. `next_key` waits for a key: space goes on by a page, Enter by a line, q ends."""

    PROMPT = "-- more: space for a page, Enter for a line, q to end --"

    def __init__(self, output: TextIO, height: int, next_key: Callable[[], str]) -> None:
        self._output = output
        self._page_lines = max(2, height - 1)
        self._next_key = next_key

    def show(self, lines: Iterable[str]) -> bool:
        """Write the lines; False if the user has seen enough."""
        left = self._page_lines
        for line in lines:
            if left == 0:
                left = self._lines_wanted()
                if left == 0:
                    return False
            write_lines((line,), self._output)
            left -= 1
        return True

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
        return 1 if key in ("\r", "\n") else self._page_lines


def read_key() -> str:
    """The next key, without waiting for Enter."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        return sys.stdin.read(1)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def live_table(names: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> int:
    """Show rows in one table that changes in place: the newest that fit, how many there are, and how fast they come.
    Returns how many there were."""
    started_s = shown_s = time.monotonic()
    latest: deque[Sequence[str]] = deque(maxlen=max(3, console.height - 7))
    count = 0

    def picture(is_done: bool) -> Table:
        rate = count / max(time.monotonic() - started_s, 0.001)
        ending = "done" if is_done else "Ctrl-C ends the query"
        table = Table(caption=f"{count:,} rows · {rate:,.0f}/s · {ending}", caption_justify="left")
        for name in names:
            table.add_column(Text(name), overflow="ellipsis", no_wrap=True)
        for row in latest:
            table.add_row(*map(Text, row))
        return table

    with Live(picture(False), console=console, auto_refresh=False, transient=False) as live:
        for row in rows:
            latest.append(row)
            count += 1
            if time.monotonic() - shown_s >= _REFRESH_S:
                shown_s = time.monotonic()
                live.update(picture(False), refresh=True)
        live.update(picture(True), refresh=True)
    return count
