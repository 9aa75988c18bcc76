"""How long Spark's tasks wait for the executor they belong to, and that they do not wait for one that is lost.

The wait is a setting of Spark's application that is read for every stage anew, so it can be set while it runs; one that
the user gave is left alone.

An executor may be lost while an epoch runs. Spark would let every stage that is left wait for it, for it looks at the
tasks that prefer an executor and not at whether that lives. So the driver looks now and then, and from the moment it
misses one until the epoch ends nothing is waited for: every executor still takes its own tasks first.
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
_LOOK_S = 0.2
_OURS = "spark.millstream.placement"
"""Set in an application to the waits that we have set there: its next job may set them again."""


class LocalityWaits:
    """How long Spark's tasks wait for a place, in `settings`, its own ones of the running application. They wait for
    the executor, and then for nothing less: another process of its host has neither operators nor state."""

    def __init__(self, settings: Any, wait_ms: int) -> None:
        self._settings, self._wait_ms = settings, wait_ms
        ours = settings.get(_OURS, "").split(",")
        self._settable = []
        for level in ("process", "node", "rack"):
            key, value = f"spark.locality.wait.{level}", f"{self._of(level)}ms"
            if settings.contains(key) and level not in ours:
                _LOG.warning("%s is %s in this application and stays so, in place of %s", key, settings.get(key), value)
            else:
                self._settable.append(level)
        settings.set(_OURS, ",".join(self._settable))
        self.restore()

    def _of(self, level: str) -> int:
        return self._wait_ms if level == "process" else 0

    def restore(self) -> None:
        """From the next stage on, tasks wait as they are to."""
        for level in self._settable:
            self._settings.set(f"spark.locality.wait.{level}", f"{self._of(level)}ms")

    def drop(self) -> None:
        """From the next stage on, no task waits."""
        if "process" in self._settable:
            self._settings.set("spark.locality.wait.process", "0ms")


class LossWatch:
    """Looks, while an epoch runs, whether an executor was lost (`is_lost`), and then lets no task wait."""

    def __init__(self, waits: LocalityWaits) -> None:
        self._waits = waits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-places")

    @contextmanager
    def during_epoch(self, is_lost: Callable[[], bool]) -> Iterator[None]:
        """While the block runs. An epoch that is over soon is not looked at."""
        ended = threading.Event()
        loss = self._thread.submit(self._watch, ended, is_lost)
        try:
            yield
        finally:
            ended.set()
            # Where even that fails the JVM is gone, and the epoch says so in better words.
            with suppress(Exception):
                if loss.result():
                    self._waits.restore()

    def _watch(self, ended: threading.Event, is_lost: Callable[[], bool]) -> bool:
        """Until the epoch has ended; whether an executor was lost."""
        while not ended.wait(_LOOK_S):
            if is_lost():
                self._waits.drop()
                return True
        return False

    def close(self) -> None:
        """No epoch is watched any more."""
        self._thread.shutdown(wait=False)
