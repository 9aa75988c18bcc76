"""Configures how long Spark's tasks wait for their preferred executor, and ends the wait if that is lost.

The wait is an application setting that Spark reads for every stage, so it can change at runtime; a value of the user is
respected.

If an executor is lost during an epoch, Spark would let every remaining stage wait for it, because it considers the
preferences of tasks and not whether the executor is alive. So the driver polls, and once it misses an executor the wait
is disabled until the epoch ends; every executor still runs its own tasks first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["LocalityWaits", "LossWatch"]

_LOG = logging.getLogger(__name__)
_POLL_S = 0.2
_SET_BY_US = "spark.millstream.placement"
"""Lists the waits that we have set in the application, so that its next job may change them."""


class LocalityWaits:
    """The locality waits of the running application. Tasks wait for their executor, and then not for its host or rack:
    another process of the host has neither operators nor state."""

    def __init__(self, settings: Any, wait_ms: int) -> None:
        self._settings, self._wait_ms = settings, wait_ms
        set_by_us = settings.get(_SET_BY_US, "").split(",")
        self._settable = []
        for level in ("process", "node", "rack"):
            key, value = f"spark.locality.wait.{level}", f"{self._of(level)}ms"
            if settings.contains(key) and level not in set_by_us:
                _LOG.warning("%s is %s in this application and is not changed to %s", key, settings.get(key), value)
            else:
                self._settable.append(level)
        settings.set(_SET_BY_US, ",".join(self._settable))
        self.restore()

    def _of(self, level: str) -> int:
        return self._wait_ms if level == "process" else 0

    def restore(self) -> None:
        """Restores the configured wait from the next stage on."""
        for level in self._settable:
            self._settings.set(f"spark.locality.wait.{level}", f"{self._of(level)}ms")

    def drop(self) -> None:
        """Disables the wait from the next stage on."""
        if "process" in self._settable:
            self._settings.set("spark.locality.wait.process", "0ms")


class LossWatch:
    """Polls during an epoch whether an executor was lost (`is_lost`), and then disables the wait."""

    def __init__(self, waits: LocalityWaits) -> None:
        self._waits = waits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-places")

    @contextmanager
    def during_epoch(self, is_lost: Callable[[], bool]) -> Iterator[None]:
        """Polls while the block runs; a short epoch ends before the first poll."""
        ended = threading.Event()
        loss = self._thread.submit(self._watch, ended, is_lost)
        try:
            yield
        finally:
            ended.set()
            # If this fails the JVM is dead, and the error of the epoch is clearer.
            with suppress(Exception):
                if loss.result():
                    self._waits.restore()

    def _watch(self, ended: threading.Event, is_lost: Callable[[], bool]) -> bool:
        """Polls until the epoch has ended; returns whether an executor was lost."""
        while not ended.wait(_POLL_S):
            if is_lost():
                self._waits.drop()
                return True
        return False

    def close(self) -> None:
        """Stops watching."""
        self._thread.shutdown(wait=False)
