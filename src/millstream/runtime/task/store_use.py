"""What a task asks of its store beside reading and writing: that it has everything before the task acknowledges.

Where the store has a local tier, a task first takes over what a process of the same machine that died has not sent. At
its end it waits until the store has all that this process wrote, unless the epoch says that whoever commits it will
wait (`EpochSpec.deferred_uploads`): then uploads go on beside the next task. A file that is missing is waited for if
the epoch follows one that is not committed (`EpochSpec.is_ahead`), since another machine may still be sending it. What
a manifest names is in the store: if it is missing there, it is lost, and that is told.
"""

from __future__ import annotations

from millstream.storage.patience import PATIENCE_S, Patience
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import TieredStore

__all__ = ["StoreUse"]


class StoreUse:
    """One task's use of `store`, from now on."""

    def __init__(self, store: Store, *, deferred_uploads: bool = False, is_ahead: bool = False) -> None:
        self._store, self._deferred_uploads = store, deferred_uploads
        self._requests_before = REQUESTS.of_thread()
        self._put_count = 0
        if isinstance(store, TieredStore):
            store.patience = Patience(PATIENCE_S if is_ahead else 0.0)
            store.adopt()
            self._put_count = store.put_count

    def end(self) -> dict[str, int]:
        """Wait for the uploads, unless they are deferred; returns the requests that were made for the task, and the
        bytes it wrote that the store does not have yet."""
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
