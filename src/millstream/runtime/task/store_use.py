"""A task's use of its store: ensures that all its files are stored before the task acknowledges.

If the store has a local tier, a task first adopts unsent files of processes of the same machine that died. At its end
it waits for all uploads of this process, unless the epoch defers them to the committer (`EpochSpec.deferred_uploads`):
uploads then continue during the next task. If the epoch follows an uncommitted one (`EpochSpec.is_ahead`), a missing
file is waited for, since another machine may still be sending it. Files named by a manifest are in the store: a missing
one is lost, which is an error.
"""

from __future__ import annotations

from millstream.storage.patience import PATIENCE_S, Patience
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import TieredStore

__all__ = ["StoreUse"]


class StoreUse:
    """Tracks one task's use of `store`, from its creation on."""

    def __init__(self, store: Store, *, deferred_uploads: bool = False, is_ahead: bool = False) -> None:
        self._store, self._deferred_uploads = store, deferred_uploads
        self._requests_before = REQUESTS.of_thread()
        self._put_count = 0
        if isinstance(store, TieredStore):
            store.patience = Patience(PATIENCE_S if is_ahead else 0.0)
            store.adopt()
            self._put_count = store.put_count

    def end(self) -> dict[str, int]:
        """Waits for the uploads, unless they are deferred. Returns the requests made for the task and the bytes that
        are not uploaded yet."""
        unsent_bytes = 0
        if isinstance(self._store, TieredStore):
            if self._deferred_uploads:
                self._store.take_over_requests()
                self._store.check()
                unsent_bytes = self._store.unsent_bytes(self._put_count)
            else:
                self._store.flush()
        requests = REQUESTS.of_thread() - self._requests_before
        REQUESTS.claim(requests)
        return {"requests": requests, "unsent_bytes": unsent_bytes}
