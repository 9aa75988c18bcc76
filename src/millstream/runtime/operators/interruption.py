"""Cancels an epoch between two batches when its tasks run in this process.

Spark kills the tasks of a cancelled epoch, but a thread cannot be killed. So a runner of tasks in threads registers an
event, and operators check it whenever they emit a batch or have computed a chunk of join pairs. The time between two
checks is bounded by the size of a batch, not by the size of the result.

The exception does not derive from `Exception`: neither user functions nor the code that reports their failures may
handle it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["InterruptedEpoch", "check_cancelled", "interrupted_by"]

_THREAD = threading.local()


class InterruptedEpoch(BaseException):
    """The epoch running in this thread was cancelled."""


@contextmanager
def interrupted_by(cancelled: threading.Event) -> Iterator[None]:
    """Runs tasks in the block, in this thread, until the event is set."""
    before = getattr(_THREAD, "cancelled", None)
    _THREAD.cancelled = cancelled
    try:
        yield
    finally:
        _THREAD.cancelled = before


def check_cancelled() -> None:
    """Raises InterruptedEpoch if the epoch of this thread was cancelled."""
    cancelled: threading.Event | None = getattr(_THREAD, "cancelled", None)
    if cancelled is not None and cancelled.is_set():
        raise InterruptedEpoch
