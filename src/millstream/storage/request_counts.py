"""Counts this process's requests to object stores: they cost time and money, so every epoch reports them.

Only requests to services are counted, not file accesses. A large object is written in parts and a long list is paged;
each part or page is a request. The client's own retries are not counted. Tasks claim the requests of their thread and
report them in their acknowledgement; unclaimed requests are attributed to the driver, whose tasks may run in the same
process.
"""

from __future__ import annotations

import threading

__all__ = ["REQUESTS", "RequestCounts"]


class RequestCounts:
    """Counts of one process.

    >>> counts = RequestCounts()
    >>> before = counts.of_thread()
    >>> counts.add(3)
    >>> counts.claim(counts.of_thread() - before - 1)
    >>> counts.unclaimed()
    1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = self._claimed = 0
        self._local = threading.local()

    def add(self, count: int = 1) -> None:
        """Count requests made by this thread."""
        self._local.count = self.of_thread() + count
        with self._lock:
            self._total += count

    def of_thread(self) -> int:
        """The number of requests of this thread so far."""
        return int(getattr(self._local, "count", 0))

    def take_over(self, count: int) -> None:
        """Count requests that other threads made on behalf of this one."""
        self._local.count = self.of_thread() + count

    def claim(self, count: int) -> None:
        """Mark requests as reported by a task."""
        with self._lock:
            self._claimed += count

    def unclaimed(self) -> int:
        """The number of requests that no task of this process has reported."""
        with self._lock:
            return self._total - self._claimed


REQUESTS = RequestCounts()
