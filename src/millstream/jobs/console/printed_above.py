"""Redirects the program's output above the console while the console is on screen, in whole lines, unchanged.

Only streams that are terminals are redirected; a file or a pipe receives the same as without a console. Leaving
restores the previous streams, also after an error.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from millstream.jobs.console.bottom_area import BottomArea

__all__ = ["streams_above"]


@contextmanager
def streams_above(area: BottomArea) -> Iterator[None]:
    """Context manager: output to the terminal through `sys.stdout` and `sys.stderr` appears above the area."""
    streams = sys.stdout, sys.stderr
    above = {stream: _AboveArea(area, stream) for stream in streams if stream.isatty()}
    for stream in above:
        stream.flush()
    # Handlers made by logging.basicConfig hold the stream they were made with.
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream in above
    ]
    streams_before = [handler.setStream(above[handler.stream]) for handler in handlers]
    sys.stdout, sys.stderr = above.get(streams[0], streams[0]), above.get(streams[1], streams[1])
    try:
        yield
    finally:
        for stream_above in above.values():
            stream_above.finish()
        sys.stdout, sys.stderr = streams
        for handler, before in zip(handlers, streams_before, strict=True):
            handler.setStream(before)


class _AboveArea(io.TextIOBase):
    """A stream whose complete lines are written above the area, unchanged: not wrapped, not coloured."""

    def __init__(self, area: BottomArea, terminal: TextIO) -> None:
        self._area, self._terminal = area, terminal
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
        with self._area.lock:
            whole, newline, self._unfinished_line = (self._unfinished_line + text).rpartition("\n")
            if newline:
                self._area.write_above(whole + newline)
        return len(text)

    def finish(self) -> None:
        """Write the last line without a newline, if there is one."""
        if self._unfinished_line:
            self.write("\n")
