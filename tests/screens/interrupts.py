"""Ctrl-C in tests: a process started in the background of a shell may ignore it, and its children with it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["heeded_interrupts"]


@contextmanager
def heeded_interrupts() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt in the block, however this process was started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
