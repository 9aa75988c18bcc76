"""How often the garbage collector looks while a task runs.

Records are many small tuples, alive for one batch and in no cycle: looking them over every 700 allocations, as Python
does by itself, costs a third of a simple function and more. So it looks only when more are alive than a batch has.

The setting is the process's. Tasks of several jobs may run in one process (those of tests do), each in its thread: the
first one changes it, the last one puts it back.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["fewer_collections"]

_LIVING_OBJECTS_MAX = 400_000


class _Threshold:
    """The collector's threshold, and how many want it high."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = gc.get_threshold()

    def raise_(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._usual = gc.get_threshold()
                gc.set_threshold(_LIVING_OBJECTS_MAX, *self._usual[1:])

    def lower(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                gc.set_threshold(*self._usual)


_THRESHOLD = _Threshold()


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let garbage wait."""
    _THRESHOLD.raise_()
    try:
        yield
    finally:
        _THRESHOLD.lower()
