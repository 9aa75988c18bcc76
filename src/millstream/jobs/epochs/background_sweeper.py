"""Sweeping beside the job, on a thread of its own: no epoch and no publishing ever waits for it.

One pass at a time. Whoever asks while a pass runs is answered by one more pass after it, as of the newest epoch that
was asked about. A pass is bounded; what it had to leave is taken up at once, unless the job ends. The end waits for the
pass that runs and the one that was asked for, and begins no other.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs.sweeper import Sweeper

__all__ = ["BackgroundSweeper"]


class BackgroundSweeper:
    """The sweeping thread of one driver."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-sweep")
        self._lock = threading.Lock()
        self._wanted: Manifest | None = None
        self._is_sweeping = False
        self._closing = threading.Event()

    def committed(self, newest: Manifest) -> None:
        """An epoch was committed; sweep if it is time."""
        self._sweeper.note(newest)
        if self._sweeper.is_due(newest.epoch):
            self.sweep(newest)

    def sweep(self, newest: Manifest | None) -> None:
        """Remove, soon, what is no longer needed as of `newest`."""
        with self._lock:
            if newest is None or self._closing.is_set():
                return
            self._wanted = newest
            if not self._is_sweeping:
                self._is_sweeping = True
                self._thread.submit(self._run)

    def close(self) -> None:
        """End what was asked for, and sweep no more."""
        with self._lock:
            self._closing.set()
        self._thread.shutdown(wait=True)

    def clear(self) -> None:
        """After `close`: remove everything but what pins and leases hold."""
        self._sweeper.clear()

    def _run(self) -> None:
        """On the sweeping thread."""
        while True:
            with self._lock:
                newest, self._wanted = self._wanted, None
                if newest is None:
                    self._is_sweeping = False
                    return
            while self._sweeper.sweep(newest) and not self._closing.is_set():
                pass
