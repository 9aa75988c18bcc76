"""The live console: displays a job that runs in the foreground.

It has three forms. In a terminal a panel (`millstream run`) or one dim line (`python job.py`) is at the bottom of the
screen and is redrawn a few times a second; output of the program, its logs and the print sink appears above it, in
whole lines. The panel stays when the job has ended, the line does not. Without a terminal the console prints plain
lines, at most one a second and only when something has changed. Standard output is never written to.

The console only reads the job's progress board. It never waits for the job, and the job never waits for it. Closing it
restores the previous streams, also after an error.
"""

from __future__ import annotations

import io
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, TextIO, TypeAlias

from millstream.checkpoint.leases import system_ms
from millstream.jobs.console.bottom_area import BottomArea
from millstream.jobs.console.console_view import ConsoleView, RateMeter, cut, plain_line, render, status_line
from millstream.jobs.console.printed_above import streams_above
from millstream.jobs.epochs.progress import ProgressBoard

__all__ = ["Console", "ConsoleMode", "attach_console", "console_mode", "starting_line"]

ConsoleMode = Literal["rich", "line", "plain", "off"]
_Rows: TypeAlias = Callable[[ConsoleView, os.terminal_size], list[str]]

_FRAMES_PER_SECOND = 8
_SIZE_INTERVAL_S = 0.03
_PLAIN_INTERVAL_S = 1.0
_STARTING_INTERVAL_S = 0.2
_PANEL_ROWS_MIN, _PANEL_COLUMNS_MIN = 5, 30
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Console(Protocol):
    """An attached console. `notice` shows the user a sentence, such as the job's reaction to Ctrl-C."""

    def notice(self, text: str) -> None: ...

    def close(self) -> None: ...


def console_mode(setting: str, is_terminal: bool) -> ConsoleMode:
    """The form for a `millstream.console` setting: `auto` shows a line in a terminal and nothing elsewhere. Forms that
    move the cursor are for terminals only.

    >>> console_mode("auto", is_terminal=True), console_mode("auto", is_terminal=False)
    ('line', 'off')
    """
    if setting == "auto":
        return "line" if is_terminal else "off"
    modes: dict[str, ConsoleMode] = {"rich": "rich" if is_terminal else "plain", "plain": "plain", "off": "off"}
    return modes[setting]


def attach_console(
    board: ProgressBoard, mode: ConsoleMode, stream: TextIO, now_ms: Callable[[], int] = system_ms
) -> Console:
    """Show `board` on `stream` until the console is closed."""
    watch = _Watch(board, now_ms)
    if mode == "rich":
        return _TerminalConsole(watch, stream, _panel_rows, _last_panel_rows)
    if mode == "line":
        return _TerminalConsole(watch, stream, _line_rows, None)
    if mode == "plain":
        return _PlainConsole(watch, stream)
    return _SilentConsole(stream)


class _Watch:
    """Samples a board: its progress with the console's own rates."""

    def __init__(self, board: ProgressBoard, now_ms: Callable[[], int]) -> None:
        self._board, self._now_ms = board, now_ms
        self._started_ms = now_ms()
        self._meter = RateMeter()
        self._lock = threading.Lock()
        self.notice = ""

    def sample(self) -> ConsoleView:
        """The current view of the job. The drawing thread calls this too, hence the lock around the meter."""
        progress, now_ms = self._board.now, self._now_ms()
        with self._lock:
            self._meter.note(now_ms, progress.records_in, progress.records_out)
            into, out = self._meter.rates()
            trail = self._meter.trail
        return ConsoleView(progress, now_ms, now_ms - self._started_ms, into, out, trail, self.notice)


# --- nothing --------------------------------------------------------------------------------------------------


class _SilentConsole:
    """No view of the job; a notice is still printed, because it answers a user's action."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def notice(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing was attached."""


# --- lines ----------------------------------------------------------------------------------------------------


class _PlainConsole:
    def __init__(self, watch: _Watch, stream: TextIO) -> None:
        self._watch, self._stream = watch, stream
        self._progress_shown: object = None
        self._url_shown = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-console", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_PLAIN_INTERVAL_S):
            self._show()

    def _show(self) -> None:
        view = self._watch.sample()
        if view.progress is self._progress_shown:
            return
        self._progress_shown = view.progress
        if view.progress.query_url not in ("", self._url_shown):
            self._url_shown = view.progress.query_url
            self._write(f"{view.progress.job_name} answers queries at {self._url_shown}")
        self._write(plain_line(view))

    def _write(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S")
        # One call with its newline: another thread's print cannot interleave.
        self._stream.write(f"{stamp} {text}\n")
        self._stream.flush()

    def notice(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        """Print the state the job ended in."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._show()


# --- in a terminal --------------------------------------------------------------------------------------------


class _TerminalConsole:
    """Rows at the bottom of the terminal, redrawn periodically. `view` renders them for a terminal size; the rows of
    `last_view` remain at the end."""

    def __init__(self, watch: _Watch, stream: TextIO, view: _Rows, last_view: _Rows | None) -> None:
        self._watch, self._view, self._last_view = watch, view, last_view
        self._area = BottomArea(stream)
        self._streams = streams_above(self._area)
        self._ended = threading.Event()
        self._streams.__enter__()
        self._thread = threading.Thread(target=self._run, name="millstream-console", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        size, drawn_s = self._area.size, -math.inf
        while not self._ended.is_set():
            now_s = time.monotonic()
            # A window that is being resized shows fragments until its size is checked.
            if now_s - drawn_s >= 1 / _FRAMES_PER_SECOND or self._area.size != size:
                size, drawn_s = self._area.size, now_s
                self._draw()
            self._ended.wait(_SIZE_INTERVAL_S)

    def _draw(self) -> None:
        self._area.draw(self._view(self._watch.sample(), self._area.size))

    def notice(self, text: str) -> None:
        self._watch.notice = text
        self._draw()

    def close(self) -> None:
        """Draw the last view if it is to stay, and restore the streams."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        self._streams.__exit__(None, None, None)
        self._area.close(self._last_view(self._watch.sample(), self._area.size) if self._last_view else ())


def _panel_rows(view: ConsoleView, size: os.terminal_size) -> list[str]:
    """The panel, in less than half of the terminal's rows: the rest is for program output, and a window that becomes
    half as wide still shows the whole panel. A tiny terminal shows a line instead."""
    return _panel_of(view, size, (size.lines - 1) // 2)


def _last_panel_rows(view: ConsoleView, size: os.terminal_size) -> list[str]:
    """The panel that stays when the job has ended. Nothing is redrawn after it, so it may use the whole screen."""
    return _panel_of(view, size, size.lines - 2)


def _panel_of(view: ConsoleView, size: os.terminal_size, rows_max: int) -> list[str]:
    if (size.lines - 1) // 2 < _PANEL_ROWS_MIN or size.columns < _PANEL_COLUMNS_MIN:
        return _line_rows(view, size)
    from rich.console import Console as RichConsole

    # One column stays free: a row that fills the last one makes some terminals continue in the next.
    screen = RichConsole(file=io.StringIO(), width=size.columns - 1, height=rows_max, force_terminal=True)
    with screen.capture() as capture:
        screen.print(render(view, rows_max, size.columns - 1))
    return capture.get().splitlines()[:rows_max]


def _line_rows(view: ConsoleView, size: os.terminal_size) -> list[str]:
    """One dim row."""
    return [f"{_DIM}{status_line(view, size.columns)}{_PLAIN}"]


@contextmanager
def starting_line(text: str, stream: TextIO) -> Iterator[None]:
    """Context manager: one terminal row shows that Spark is starting, and for how long; it is erased afterwards."""
    area, began_s, ended = BottomArea(stream), time.monotonic(), threading.Event()

    def draw() -> None:
        while not ended.is_set():
            row = cut(f"{text} {int(time.monotonic() - began_s)} s", area.size.columns)
            area.draw([f"{_DIM}{row}{_PLAIN}"])
            ended.wait(_STARTING_INTERVAL_S)

    thread = threading.Thread(target=draw, name="millstream-starting", daemon=True)
    with streams_above(area):
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            area.close()
