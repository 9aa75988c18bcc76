"""Delivers a long spec to the tasks of an epoch: by a file in the store, or with every task if that is unavailable.

The spec of an epoch is a local property of its Spark job, which Spark sends with each task. A short spec is inline, a
longer one packed. One that is too long even then is a file in the job's store, which each machine reads once. While the
store does not respond, the spec is sent with the tasks after all: expensive, but the job continues on its local tier,
like a job of low parallelism. The store is retried periodically, with a short timeout.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

from millstream.errors import StoreAwayError
from millstream.runtime.task.spec import EpochSpec
from millstream.spark.worker import SPEC_FILE_MARK, pack_spec
from millstream.storage.names import spec_name
from millstream.storage.patience import PatientStore
from millstream.storage.store import Store

__all__ = ["INLINE_CHARACTERS_MAX", "SpecFiles"]

INLINE_CHARACTERS_MAX = 65_536
"""The maximum length of a spec that is sent with every task."""

_LOG = logging.getLogger("millstream")
_TIMEOUT_S = 3.0
_RETRY_AFTER_S = 10.0


class SpecFiles:
    """The property with the spec of each epoch, for the job of a store."""

    def __init__(
        self, store: Store, now_s: Callable[[], float] = time.monotonic, timeout_s: float = _TIMEOUT_S
    ) -> None:
        # Bypass the store's retries: tasks do not depend on the file, so an unavailable store is not waited for.
        self._store = store.below if isinstance(store, PatientStore) else store
        self._now_s, self._timeout_s = now_s, timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-spec")
        self._put: Future[None] | None = None
        self._retry_at_s: float | None = None

    def property_of(self, spec: EpochSpec) -> str:
        """The value of the epoch's local property."""
        text = spec.encode()
        if len(text) <= INLINE_CHARACTERS_MAX:
            return text
        packed = pack_spec(text)
        if len(packed) <= INLINE_CHARACTERS_MAX:
            return packed
        name = spec_name(spec.epoch, hashlib.sha256(text.encode()).hexdigest()[:16])
        return SPEC_FILE_MARK + name if self._write(name, text.encode()) else packed

    def _write(self, name: str, data: bytes) -> bool:
        """Writes the file, and returns whether the store has it. Permanent errors are raised."""
        if self._retry_at_s is not None and self._now_s() < self._retry_at_s:
            return False
        if self._put is None or self._put.done():
            self._put = self._thread.submit(self._store.put, name, data)
            try:
                self._put.result(self._timeout_s)
                self._retry_at_s = None
                return True
            except (StoreAwayError, NotYet):
                pass
        if self._retry_at_s is None:
            _LOG.warning(
                "the store %s does not accept the spec of an epoch (%d bytes): it is sent with every task until the "
                "store is available again",
                self._store.url,
                len(data),
            )
        self._retry_at_s = self._now_s() + _RETRY_AFTER_S
        return False

    def close(self) -> None:
        """Stops writing; a pending request is abandoned."""
        self._thread.shutdown(wait=False, cancel_futures=True)
