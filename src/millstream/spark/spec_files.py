"""Brings a long spec to the tasks of an epoch: by a file in the store, or with every task while the store is away.

The spec of an epoch is a local property of its Spark job, which Spark sends along with each task. A short one stands
there as it is, a longer one packed. One that is too long even so is a file in the job's store, which each machine reads
once. While the store does not answer, it travels with the tasks after all: dear, but the job goes on on its local tier
as a narrow one would. Whether the store answers is tried now and then, and never waited for long.
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
from millstream.spark.worker import SPEC_FILE_MARK, packed_spec
from millstream.storage.names import spec_name
from millstream.storage.patience import PatientStore
from millstream.storage.store import Store

__all__ = ["INLINE_CHARACTERS_MAX", "SpecFiles"]

INLINE_CHARACTERS_MAX = 65_536
"""Up to how many characters a spec goes with every task."""

_LOG = logging.getLogger("millstream")
_ANSWERS_WITHIN_S = 3.0
_TRIED_AGAIN_S = 10.0


class SpecFiles:
    """The property of each epoch's spec, for a job whose store this is."""

    def __init__(
        self, store: Store, now_s: Callable[[], float] = time.monotonic, answers_within_s: float = _ANSWERS_WITHIN_S
    ) -> None:
        # The patience is here: a task can do without the file, so nobody waits for a store that is away.
        self._store = store.below if isinstance(store, PatientStore) else store
        self._now_s, self._answers_within_s = now_s, answers_within_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-spec")
        self._put: Future[None] | None = None
        self._away_until_s: float | None = None

    def property_of(self, spec: EpochSpec) -> str:
        """What the local property of the epoch says."""
        text = spec.encode()
        if len(text) <= INLINE_CHARACTERS_MAX:
            return text
        packed = packed_spec(text)
        if len(packed) <= INLINE_CHARACTERS_MAX:
            return packed
        name = spec_name(spec.epoch, hashlib.sha256(text.encode()).hexdigest()[:16])
        return SPEC_FILE_MARK + name if self._is_written(name, text.encode()) else packed

    def _is_written(self, name: str, data: bytes) -> bool:
        """Whether the store has the file now. What it refuses for good is raised."""
        if self._away_until_s is not None and self._now_s() < self._away_until_s:
            return False
        if self._put is None or self._put.done():
            self._put = self._thread.submit(self._store.put, name, data)
            try:
                self._put.result(self._answers_within_s)
                self._away_until_s = None
                return True
            except (StoreAwayError, NotYet):
                pass
        if self._away_until_s is None:
            _LOG.warning(
                "the store %s does not take the spec of an epoch (%d bytes): it is sent along with every task until "
                "the store is back",
                self._store.url,
                len(data),
            )
        self._away_until_s = self._now_s() + _TRIED_AGAIN_S
        return False

    def close(self) -> None:
        """Write nothing more; a request that goes unanswered is left to itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
