"""A small terminal emulator, for tests of terminal output: bytes in, a screen of characters out.

It supports the sequences of our programs and Rich: moving, erasing, scrolling, wrapping, colours (which it ignores). On
resizing it behaves like either kind of terminal: one that truncates rows which have become too long (xterm), and one
that reflows them (tmux, VTE, most others). It responds to cursor position requests. An unknown escape sequence is an
error: a guessed picture proves nothing.

`Terminal` runs a program at such a screen, over a pty.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CSI = re.compile(r"\x1b\[([?]?)([0-9;]*)([A-Za-z])")
_UNFINISHED = re.compile(r"\x1b(\[[?0-9;]*)?$")
_BLANK = " "


@dataclass
class Row:
    """A row of the screen. `is_wrapped`: it continues in the next one."""

    text: str = ""
    is_wrapped: bool = False


class Screen:
    """The contents of a terminal of this size."""

    def __init__(self, rows: int, columns: int, *, breaks_rows: bool = True) -> None:
        self.rows, self.columns, self.breaks_rows = rows, columns, breaks_rows
        self.scrolled: list[Row] = []
        self._screen = [Row() for _ in range(rows)]
        self._at, self._column, self._wraps = 0, 0, True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""
        self.answers = b""  # to requests, not yet sent to the program

    @property
    def lines(self) -> list[str]:
        """The visible rows, without trailing blanks."""
        return [row.text.rstrip() for row in self._screen]

    @property
    def text(self) -> str:
        """The visible rows, down to the last non-empty one."""
        return "\n".join(self.lines).rstrip()

    @property
    def all_text(self) -> str:
        """The scrolled-out and the visible rows."""
        return "\n".join(row.text.rstrip() for row in (*self.scrolled, *self._screen)).rstrip()

    def feed(self, data: bytes) -> None:
        text = self._waiting + self._decoder.decode(data)
        self._waiting = ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
                continue
            sequence = _CSI.match(text, at)
            if sequence is None:
                assert _UNFINISHED.match(text, at), f"unknown escape sequence {text[at : at + 12]!r}"
                self._waiting = text[at:]
                return
            self._obey(*sequence.groups())
            at = sequence.end()

    def resize(self, rows: int, columns: int) -> None:
        """Resize the window: rows are truncated or reflowed, and the cursor keeps its position in the text."""
        if self.breaks_rows and columns != self.columns:
            self._break_rows(columns)
        else:
            self._screen = [Row(row.text[:columns], row.is_wrapped) for row in self._screen]
        self.rows, self.columns = rows, columns
        while len(self._screen) > rows and self._at < len(self._screen) - 1:
            self._screen.pop()
        while len(self._screen) > rows:
            self._scroll()
        while len(self._screen) < rows:
            if self.scrolled and self.breaks_rows:
                self._screen.insert(0, self.scrolled.pop())
                self._at += 1
            else:
                self._screen.append(Row())
        self._column = min(self._column, columns)

    def _break_rows(self, columns: int) -> None:
        """Join wrapped rows, and wrap them at the new width."""
        broken: list[Row] = []
        at, text, offset = 0, "", None
        for number, row in enumerate([*self.scrolled, *self._screen]):
            if number == len(self.scrolled) + self._at:
                offset = len(text) + self._column
            text += row.text.ljust(self.columns) if row.is_wrapped else row.text.rstrip()
            if row.is_wrapped:
                continue
            starts = range(0, max(len(text), 1), columns)
            if offset is not None:
                within = min(offset // columns, len(starts) - 1)
                at, self._column, offset = len(broken) + within, offset - within * columns, None
            broken += [Row(text[start : start + columns], start != starts[-1]) for start in starts]
            text = ""
        while len(broken) > at + 1 and not broken[-1].text:
            broken.pop()
        above = max(len(broken) - max(len(self._screen), 1), 0)
        self.scrolled, self._screen, self._at = broken[:above], broken[above:], at - above

    def _put(self, character: str) -> None:
        if character == "\n":
            self._down()
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character != "\a":
            if self._column >= self.columns:
                if not self._wraps:
                    self._column = self.columns - 1
                else:
                    self._screen[self._at].is_wrapped = True
                    self._down()
                    self._column = 0
            row = self._screen[self._at]
            padded = row.text.ljust(self._column + 1)
            row.text = padded[: self._column] + character + padded[self._column + 1 :]
            self._column += 1

    def _down(self) -> None:
        if self._at == self.rows - 1:
            self._scroll()
        self._at += 1

    def _scroll(self) -> None:
        self.scrolled.append(self._screen.pop(0))
        if len(self._screen) < self.rows:
            self._screen.append(Row())
        self._at -= 1

    def _obey(self, private: str, parameters: str, command: str) -> None:
        numbers = [int(number or 0) for number in parameters.split(";")]
        if private:
            assert command in "hl" and numbers[0] in (1, 7, 12, 25, 2004, 2026), f"unknown mode {numbers}{command}"
            if numbers[0] == 7:
                self._wraps = command == "h"
            return
        row, count = self._screen[self._at], max(numbers[0], 1)
        self._column = min(self._column, self.columns - 1) if command in "ABCD" else self._column
        if command == "A":
            self._at = max(0, self._at - count)
        elif command == "B":
            self._at = min(self.rows - 1, self._at + count)
        elif command == "C":
            self._column = min(self.columns - 1, self._column + count)
        elif command == "D":
            self._column = max(0, self._column - count)
        elif command == "G":
            self._column = count - 1
        elif command == "H":
            self._at, self._column = count - 1, max(([*numbers, 1])[1], 1) - 1
        elif command == "K":
            assert numbers[0] in (0, 2)
            row.text, row.is_wrapped = ("" if numbers[0] == 2 else row.text[: self._column]), False
        elif command == "J":
            assert numbers[0] in (0, 2)
            first = self._at + 1 if numbers[0] == 0 else 0
            row.text, row.is_wrapped = row.text[: self._column], False
            self._screen[first:] = [Row() for _ in self._screen[first:]]
        elif command == "n":
            assert numbers[0] == 6
            self.answers += f"\x1b[{self._at + 1};{self._column + 1}R".encode()
        else:
            assert command == "m", f"unknown escape sequence {parameters}{command}"


def _take_terminal() -> None:
    """Make the terminal the program's controlling one, and enable Ctrl-C however the tests were started."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program at a terminal of its own, whose screen is read, and which is typed at and resized."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        rows: int = 24,
        columns: int = 80,
        breaks_rows: bool = True,
        echoes: bool = True,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.screen = Screen(rows, columns, breaks_rows=breaks_rows)
        self._here, there = pty.openpty()
        termios.tcsetwinsize(there, (rows, columns))
        if not echoes:
            settings = termios.tcgetattr(there)
            settings[3] &= ~termios.ECHO
            termios.tcsetattr(there, termios.TCSANOW, settings)
        unset = ("COLUMNS", "LINES", "NO_COLOR")
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**{k: v for k, v in environment.items() if k not in unset}, "TERM": "xterm-256color"},
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(there)

    def type(self, line: str) -> None:
        os.write(self._here, line.encode() + b"\n")

    def resize(self, rows: int, columns: int) -> None:
        self.screen.resize(rows, columns)
        termios.tcsetwinsize(self._here, (rows, columns))

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self._here, b"\x03")

    def read_until(self, is_there: str | Callable[[Screen], bool], timeout_s: float = 120) -> None:
        """Read until the screen matches a pattern or predicate."""
        until_s = time.monotonic() + timeout_s
        pattern = re.compile(is_there) if isinstance(is_there, str) else None
        while not (pattern.search(self.screen.text) if pattern else is_there(self.screen)):  # type: ignore[operator]
            assert time.monotonic() < until_s and self.read(), f"no {is_there!r} on the screen:\n{self.screen.all_text}"

    def read_to_end(self, timeout_s: float = 120) -> int:
        """Read until the program has ended; returns its exit code."""
        until_s = time.monotonic() + timeout_s
        while self.read():
            assert time.monotonic() < until_s, f"it has not ended:\n{self.screen.all_text}"
        return self.process.wait(60)

    def read(self, wait_s: float = 0.5) -> bool:
        """Read a little; False when the program has ended."""
        if select.select([self._here], [], [], wait_s)[0]:
            try:
                data = os.read(self._here, 65_536)
            except OSError:  # how Linux reports that the other end is closed
                return False
            self.screen.feed(data)
            if self.screen.answers:
                os.write(self._here, self.screen.answers)
                self.screen.answers = b""
            return bool(data)
        return True

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()
        self.process.wait()
        os.close(self._here)
