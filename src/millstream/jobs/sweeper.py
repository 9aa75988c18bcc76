"""Removes from a store what no epoch will need again: old manifests, published output, losing attempts.

What may go is decided by `checkpoint.retention`; this only does it, now and then, so that a job that runs for
months at ten epochs a second keeps a flat store. Sweeping never fails a job: what could not be removed is tried again.
"""

from __future__ import annotations

import logging

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.retention import kept_epochs, named_files, segments_to_delete, what_to_delete
from millstream.errors import MillstreamError
from millstream.storage.names import SEGMENTS, STAGED
from millstream.storage.store import Store

__all__ = ["Sweeper"]

_LOG = logging.getLogger(__name__)
_EVERY_EPOCHS = 50


class Sweeper:
    """Sweeps one job's store."""

    def __init__(self, store: Store, log: ManifestLog) -> None:
        self._store, self._log = store, log

    def committed(self, newest: Manifest) -> None:
        """An epoch was committed; sweep if it is time."""
        if newest.epoch % _EVERY_EPOCHS == 0:
            self.sweep(newest)

    def sweep(self, newest: Manifest | None) -> None:
        """Remove what is no longer needed, as of `newest`."""
        if newest is None:
            return
        try:
            self._sweep(newest)
        except (MillstreamError, OSError) as error:
            _LOG.warning("the store could not be swept: %s", error)

    def _sweep(self, newest: Manifest) -> None:
        for name in self._store.list("specs"):
            if int(name.removeprefix("specs/")[:12]) < newest.epoch:
                self._store.delete(name)
        published = newest.published_through
        epochs = self._log.epochs()
        kept = [self._log.read(epoch) for epoch in sorted(kept_epochs(epochs, published_through=published))]
        staged = self._store.list(STAGED)
        for name in what_to_delete(epochs, staged, published_through=published, named=named_files(kept)):
            self._store.delete(name)
        for name in segments_to_delete(self._store.list(SEGMENTS), kept, newest.epoch):
            self._store.delete(name)
