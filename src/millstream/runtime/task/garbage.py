"""Makes the garbage collector run less often while a task runs.

Records are many small tuples that live for one batch and form no cycles. Python's default, a collection every 700
allocations, costs a third of a simple function and more. So the threshold is raised above the size of a batch.

The setting belongs to the process. Tasks of several jobs may run in one process (in tests they do), each in its thread:
the first task raises the threshold, the last one restores it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["fewer_collections"]

_LIVING_OBJECTS_MAX = 400_000


class _Threshold:
    """The collector's threshold, and the number of tasks that need it raised."""

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
    """Raises the collection threshold inside the block."""
    _THRESHOLD.raise_()
    try:
        yield
    finally:
        _THRESHOLD.lower()
