"""The live console: how a job that runs in the foreground shows itself.

Two forms of one thing. In a terminal a panel stands at the bottom of the screen and is redrawn a few times a second;
what the program, its logs and the print sink write appears above it, whole lines at a time. Elsewhere there are plain
lines, one a second at most and only when something has changed.

The console only reads the job's progress board. It never waits for the job, and the job never waits for it. Closing it
restores the streams as they were, also after an error.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TextIO

from millstream.jobs.console.console_view import ConsoleView, RateMeter, plain_line, render
from millstream.jobs.epochs.progress import ProgressBoard

__all__ = ["Console", "ConsoleMode", "attach_console", "console_mode"]

ConsoleMode = Literal["rich", "plain", "off"]

_FRAMES_PER_SECOND = 8
_PLAIN_INTERVAL_S = 1.0


class Console(Protocol):
    """An attached console. `notice` puts a sentence before the user: what the job does about Ctrl-C, say."""

    def notice(self, text: str) -> None: ...

    def close(self) -> None: ...


def console_mode(setting: str, is_terminal: bool) -> ConsoleMode:
    """The form for a `millstream.console` setting: `auto` shows the panel in a terminal and nothing elsewhere.

    >>> console_mode("auto", is_terminal=True), console_mode("auto", is_terminal=False)
    ('rich', 'off')
    """
    if setting == "auto":
        return "rich" if is_terminal else "off"
    modes: dict[str, ConsoleMode] = {"rich": "rich", "plain": "plain", "off": "off"}
    return modes[setting]


def attach_console(board: ProgressBoard, mode: ConsoleMode, stream: TextIO) -> Console:
    """Show `board` on `stream` until the console is closed."""
    watch = _Watch(board, lambda: int(time.time() * 1000))
    if mode == "rich":
        return _PanelConsole(watch, stream)
    if mode == "plain":
        return _PlainConsole(watch, stream)
    return _SilentConsole(stream)


class _Watch:
    """A board seen at times: its progress with the console's own rates."""

    def __init__(self, board: ProgressBoard, now_ms: Callable[[], int]) -> None:
        self._board, self._now_ms = board, now_ms
        self._started_ms = now_ms()
        self._meter = RateMeter()
        self._lock = threading.Lock()
        self.notice = ""

    def look(self) -> ConsoleView:
        """The job now. Also called by the thread that draws, hence the lock around the meter."""
        progress, now_ms = self._board.now, self._now_ms()
        with self._lock:
            self._meter.note(now_ms, progress.records_in, progress.records_out)
            into, out = self._meter.rates()
            trail = self._meter.trail
        return ConsoleView(progress, now_ms, now_ms - self._started_ms, into, out, trail, self.notice)


# --- nothing --------------------------------------------------------------------------------------------------


class _SilentConsole:
    """No view of the job; a notice is still said, for it answers something the user did."""

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
        view = self._watch.look()
        if view.progress is self._progress_shown:
            return
        self._progress_shown = view.progress
        if view.progress.query_url not in ("", self._url_shown):
            self._url_shown = view.progress.query_url
            self._write(f"{view.progress.job_name} answers queries at {self._url_shown}")
        self._write(plain_line(view))

    def _write(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S")
        # One call with its newline: another thread's print cannot come between.
        self._stream.write(f"{stamp} {text}\n")
        self._stream.flush()

    def notice(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        """Say the last word: the state the job ended in."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._show()


# --- the panel ------------------------------------------------------------------------------------------------


class _PanelConsole:
    """A panel that Rich draws. Invariant: whoever draws or writes lines holds `_drawing` for all of it.

    Rich works out what to erase before it writes, under a lock that it lets go in between: a line that another thread
    writes meanwhile would stand behind the panel.
    """

    def __init__(self, watch: _Watch, stream: TextIO) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._watch = watch
        self._screen = RichConsole(file=stream, force_terminal=True if stream.isatty() else None)
        self._live = Live(
            console=self._screen,
            get_renderable=lambda: render(watch.look()),
            auto_refresh=False,
            # We lead the streams through it ourselves: Rich would break long lines, and would send a standard
            # output that is a file to the terminal.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._drawing = threading.RLock()  # a signal handler may write while its own thread writes
        self._streams = _streams_above(self._screen, self._drawing)
        self._ended = threading.Event()
        self._live.start()
        self._streams.__enter__()
        self._thread = threading.Thread(target=self._run, name="millstream-console", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(1 / _FRAMES_PER_SECOND):
            self._draw()

    def _draw(self) -> None:
        with self._drawing:
            self._live.refresh()

    def notice(self, text: str) -> None:
        self._watch.notice = text
        self._draw()

    def close(self) -> None:
        """Draw the last picture, leave it on the screen, and give the streams back."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        self._streams.__exit__(None, None, None)
        self._live.stop()


@contextmanager
def _streams_above(screen: Any, drawing: threading.RLock) -> Iterator[None]:
    """While inside, what goes to the terminal through `sys.stdout` and `sys.stderr` appears above the panel."""
    streams = sys.stdout, sys.stderr
    above_panel = {stream: _AbovePanel(screen, drawing, stream) for stream in streams if stream.isatty()}
    # Handlers made by logging.basicConfig hold the stream they were made with.
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream in above_panel
    ]
    streams_before = [handler.setStream(above_panel[handler.stream]) for handler in handlers]
    sys.stdout, sys.stderr = above_panel.get(streams[0], streams[0]), above_panel.get(streams[1], streams[1])
    try:
        yield
    finally:
        for panel_stream in above_panel.values():
            panel_stream.finish()
        sys.stdout, sys.stderr = streams
        for handler, stream in zip(handlers, streams_before, strict=True):
            handler.setStream(stream)


class _AbovePanel(io.TextIOBase):
    """A stream whose complete lines are written above the panel, as they are: not wrapped, not coloured."""

    def __init__(self, screen: Any, drawing: threading.RLock, terminal: TextIO) -> None:
        self._screen, self._drawing, self._terminal = screen, drawing, terminal
        self._unfinished_line = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._drawing:
            whole, newline, self._unfinished_line = (self._unfinished_line + text).rpartition("\n")
            if newline:
                self._screen.print(_Verbatim(whole + newline), end="", crop=False)
        return len(text)

    def finish(self) -> None:
        """Write what has no newline yet."""
        if self._unfinished_line:
            self.write("\n")


class _Verbatim:
    """Text for Rich that Rich leaves alone: one segment, whatever its length."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: object, options: object) -> Iterator[Any]:
        from rich.segment import Segment

        yield Segment(self._text)
