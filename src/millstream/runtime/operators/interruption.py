"""An epoch that is not wanted any more ends between two batches, where its tasks run in this process.

Spark kills the tasks of an epoch that was cancelled. Nobody can kill a thread: so whoever runs tasks in one says here
what tells that the epoch is cancelled, and operators look at it whenever they hand on a batch, or have a piece of pairs
ready. What lies between two looks is bounded by the size of a batch, not by that of the answer.

What is raised is no `Exception`: neither a function of the user's nor what reports its failures may take it for one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["InterruptedEpoch", "check_wanted", "interrupted_by"]

_THREAD = threading.local()


class InterruptedEpoch(BaseException):
    """The epoch that runs in this thread was cancelled."""


@contextmanager
def interrupted_by(cancelled: threading.Event) -> Iterator[None]:
    """Run tasks in the block, in this thread, until the event is set."""
    before = getattr(_THREAD, "cancelled", None)
    _THREAD.cancelled = cancelled
    try:
        yield
    finally:
        _THREAD.cancelled = before


def check_wanted() -> None:
    """Raise InterruptedEpoch, if the epoch that runs in this thread was cancelled."""
    cancelled: threading.Event | None = getattr(_THREAD, "cancelled", None)
    if cancelled is not None and cancelled.is_set():
        raise InterruptedEpoch
