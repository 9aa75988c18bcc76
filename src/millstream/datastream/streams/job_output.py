"""What a running job delivers to the program that started it, piece by piece, in the order of committed epochs.

It ends when the job ends, and nothing that was committed before is missed. Closing it before then cancels the job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.connectors.collect import CollectQueue, drop_queue

if TYPE_CHECKING:
    from millstream.common.job_client import JobControl

__all__ = ["JobOutput"]

# How often it is looked whether the job has ended while nothing comes.
_LOOK_INTERVAL_S = 0.05


class JobOutput:
    """The pieces that come into a queue. `at_end` is called once, when the job has ended and all pieces were taken: it
    may raise what the job failed with."""

    def __init__(self, job: JobControl, queue: CollectQueue, queue_id: str, at_end: Callable[[], None]) -> None:
        self._job, self._queue, self._queue_id, self._at_end = job, queue, queue_id, at_end
        self._ready: deque[Any] = deque()
        self.has_ended = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there is a piece or none will come; False when the time is over."""
        left_s = float("inf") if timeout_s is None else timeout_s
        while not self._ready and not self.has_ended:
            if left_s <= 0:
                return False
            # Ask for the status first: what was committed before the end is then surely in the queue.
            is_over = self._job.status().is_terminal_state()
            self._ready.extend(self._queue.take(0 if is_over else min(_LOOK_INTERVAL_S, left_s)))
            if is_over and not self._ready:
                self._end()
            left_s -= _LOOK_INTERVAL_S
        return True

    def take(self, timeout_s: float | None = None) -> list[Any] | None:
        """All pieces that are there, those of whole epochs; waits for the first. Empty when the time is over, None when
        none will come any more."""
        if not self.wait(timeout_s):
            return []
        pieces = list(self._ready)
        self._ready.clear()
        return pieces or None

    def next(self) -> Any:
        """The next piece. StopIteration when there is none any more."""
        self.wait()
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def _end(self) -> None:
        self.has_ended = True
        drop_queue(self._queue_id)
        self._at_end()

    def close(self) -> bool:
        """Nothing more is wanted: drop what was not taken, and cancel the job if it runs. False if it was over."""
        if self.has_ended:
            return False
        self.has_ended = True
        self._ready.clear()
        # The queue first: a job that waits for its reader must be freed before it can be cancelled.
        drop_queue(self._queue_id)
        if not self._job.status().is_terminal_state():
            self._job.cancel()
        return True
