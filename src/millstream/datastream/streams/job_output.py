"""The output of a running job in the program that started it, in the order of committed epochs.

It ends when the job ends, and includes everything committed before. Closing it earlier cancels the job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.connectors.collect import CollectQueue, drop_queue

if TYPE_CHECKING:
    from millstream.common.job_client import JobControl

__all__ = ["JobOutput"]

# Interval at which the job's status is checked while no output arrives.
_POLL_INTERVAL_S = 0.05


class JobOutput:
    """The items of a queue. `at_end` is called once, after the job has ended and all items were taken; it may raise the
    job's failure."""

    def __init__(self, job: JobControl, queue: CollectQueue, queue_id: str, at_end: Callable[[], None]) -> None:
        self._job, self._queue, self._queue_id, self._at_end = job, queue, queue_id, at_end
        self._ready: deque[Any] = deque()
        self.has_ended = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until an item is available or the output has ended; False after the timeout."""
        left_s = float("inf") if timeout_s is None else timeout_s
        while not self._ready and not self.has_ended:
            if left_s <= 0:
                return False
            # Check the status first: everything committed before the end is then in the queue.
            is_over = self._job.status().is_terminal_state()
            self._ready.extend(self._queue.take(0 if is_over else min(_POLL_INTERVAL_S, left_s)))
            if is_over and not self._ready:
                self._end()
            left_s -= _POLL_INTERVAL_S
        return True

    def take(self, timeout_s: float | None = None) -> list[Any] | None:
        """All available items, in whole epochs; waits for the first item. Empty after the timeout, None when the output
        has ended."""
        if not self.wait(timeout_s):
            return []
        pieces = list(self._ready)
        self._ready.clear()
        return pieces or None

    def next(self) -> Any:
        """The next item; raises StopIteration at the end."""
        self.wait()
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def _end(self) -> None:
        self.has_ended = True
        drop_queue(self._queue_id)
        self._at_end()

    def close(self) -> bool:
        """Drops the remaining items, and cancels the job if it is running. Returns False if it had already ended."""
        if self.has_ended:
            return False
        self.has_ended = True
        self._ready.clear()
        # Close the queue first: a job that waits for its reader must be released before it can be cancelled.
        drop_queue(self._queue_id)
        if not self._job.status().is_terminal_state():
            self._job.cancel()
        return True
