"""How many requests this process has made of object stores: they cost time and money, so an epoch tells its own.

Only services are counted, not folders. A large object is written in parts and a long list comes in pages, each a
request; what the client repeats by itself is not seen. Tasks claim what their thread has asked for and tell it with
their acknowledgement; what nobody claims is the driver's, whose tasks may run in the same process.
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
        """So many requests are made, by this thread."""
        self._local.count = self.of_thread() + count
        with self._lock:
            self._total += count

    def of_thread(self) -> int:
        """All that this thread has made so far."""
        return int(getattr(self._local, "count", 0))

    def take_over(self, count: int) -> None:
        """So many that other threads have made were made for this one."""
        self._local.count = self.of_thread() + count

    def claim(self, count: int) -> None:
        """A task has told of so many."""
        with self._lock:
            self._claimed += count

    def unclaimed(self) -> int:
        """All that no task of this process has told of."""
        with self._lock:
            return self._total - self._claimed


REQUESTS = RequestCounts()
