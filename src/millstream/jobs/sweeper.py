"""Removes from a store what no epoch will need again: old manifests, published output, losing attempts.

What may go is decided by `checkpoint.retention`; this only does it, now and then, so that a job that runs for
months at ten epochs a second keeps a flat store. Sweeping never fails a job: what could not be removed is tried again.

Savepoints, forks and readers work beside it, in other processes, and there is no lock. So, in this order:

1. decide which epochs go, write their manifests into one file aside, and remove them, oldest first;
2. look for pins and leases once more, and put back a manifest that one of them names: whoever wrote it first and then
   found the manifest may read on, whoever did not find it was told so;
3. remove the file aside, and the files that no manifest names which is still there.

A sweeper that dies or fails between 1 and 3 has left the file aside: the next one puts all of it back, and begins anew.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping

from millstream.checkpoint.job_record import renew
from millstream.checkpoint.leases import leases_of
from millstream.checkpoint.manifest import Manifest, ManifestLog, encode
from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.retention import RetentionPolicy, files_to_delete, kept_epochs, named_files
from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import MillstreamError
from millstream.storage.names import FINISHED, INPUT, SEGMENTS, STAGED, lease_name, leaving_name, manifest_name
from millstream.storage.store import Store

__all__ = ["Sweeper"]

_LOG = logging.getLogger(__name__)
_EVERY_EPOCHS = 50
_UNFINISHED_MS = 1_800_000  # no writer takes half an hour for one file
FORMAT = 1


class Sweeper:
    """Sweeps one job's store. `every_epochs`: how often, while the job runs. `release` is told which epochs are left,
    so that sources remove input that they have stored and none of these needs."""

    def __init__(
        self,
        store: Store,
        now_ms: Callable[[], int],
        policy: RetentionPolicy | None = None,
        every_epochs: int = _EVERY_EPOCHS,
        release: Callable[[Collection[Manifest]], None] = lambda kept: None,
    ) -> None:
        self._store, self._log = store, ManifestLog(store)
        self._now_ms, self._policy, self._every_epochs = now_ms, policy or RetentionPolicy(), every_epochs
        self._release = release
        self._known: dict[int, Manifest] = {}  # manifests do not change: each is read once
        self._named: dict[int, frozenset[str]] = {}

    def committed(self, newest: Manifest) -> None:
        """An epoch was committed; sweep if it is time."""
        self._known[newest.epoch] = newest
        if newest.epoch % self._every_epochs == 0:
            self.sweep(newest)

    def sweep(self, newest: Manifest | None) -> None:
        """Remove what is no longer needed, as of `newest`."""
        if newest is None:
            return
        try:
            self._sweep(newest)
        except (MillstreamError, OSError) as error:
            _LOG.warning("the store could not be swept: %s", error)

    def clear(self) -> None:
        """Remove everything but what pins and leases hold: the job is over, and nobody is to go on with it."""
        # First, so that no start in between counts the same epochs of the same job once more.
        renew(self._store, secrets.token_hex(16))
        self._put_back()
        kept = self._settled(set(self._log.epochs()) - self._held())
        named = frozenset().union(*(named_files(manifest) for manifest in kept.values()))
        for name in (*self._store.list(STAGED), *self._store.list(SEGMENTS), *self._store.list(FINISHED)):
            if name not in named:
                self._store.delete(name)
        if not kept:
            # Stored input belongs to positions. Without any, a new start must not find that some was read and removed.
            for name in self._store.list(INPUT):
                self._store.delete(name)

    def _sweep(self, newest: Manifest) -> None:
        for name in self._store.list("specs"):
            if int(name.removeprefix("specs/")[:12]) < newest.epoch:
                self._store.delete(name)
        published = newest.published_through
        self._put_back()
        manifests = self._manifests()
        created_ms = {epoch: manifest.created_ms for epoch, manifest in manifests.items()}
        kept = kept_epochs(
            created_ms, self._policy, published_through=published, now_ms=self._now_ms(), held=self._held()
        )
        left = self._settled(set(manifests) - kept)
        self._named = {epoch: self._named.get(epoch) or named_files(manifest) for epoch, manifest in left.items()}
        named = frozenset().union(*self._named.values())
        files = [*self._store.list(STAGED), *self._store.list(SEGMENTS), *self._store.list(FINISHED)]
        for name in files_to_delete(files, named, newest=newest.epoch, published_through=published):
            self._store.delete(name)
        self._store.remove_unfinished(self._now_ms() - _UNFINISHED_MS)
        self._release(left.values())

    def _manifests(self) -> Mapping[int, Manifest]:
        """All that are there, by epoch."""
        epochs = self._log.epochs()
        self._known = {epoch: self._known.get(epoch) or self._log.read(epoch) for epoch in epochs}
        return self._known

    def _settled(self, going: set[int]) -> Mapping[int, Manifest]:
        """Remove the manifests of these epochs, unless somebody holds one; returns those that are left."""
        manifests = dict(self._manifests())
        if going:
            aside = {str(epoch): encode(manifests[epoch]).decode() for epoch in sorted(going)}
            self._store.put(leaving_name(), seal("leaving", FORMAT, {"manifests": aside}))
        for epoch in sorted(going):
            self._store.delete(manifest_name(epoch))
        for epoch in sorted(going & self._held()):
            self._store.put(manifest_name(epoch), encode(manifests[epoch]))
            going.remove(epoch)
        self._store.delete(leaving_name())
        return {epoch: manifest for epoch, manifest in manifests.items() if epoch not in going}

    def _put_back(self) -> None:
        """What a sweeper that did not come to its end has set aside."""
        if not self._store.exists(leaving_name()):
            return
        where = f"{leaving_name()} of store {self._store.url}"
        aside = unseal(self._store.get(leaving_name()), "leaving", FORMAT, where)
        for epoch, text in aside["manifests"].items():
            if not self._store.exists(manifest_name(int(epoch))):
                self._store.put(manifest_name(int(epoch)), text.encode())
        self._store.delete(leaving_name())

    def _held(self) -> set[int]:
        """The epochs that pins and leases name. Leases that have ended are removed."""
        held = {pin.epoch for pin in pins_of(self._store)}
        for lease in leases_of(self._store):
            if lease.ends_ms >= self._now_ms():
                held.add(lease.epoch)
            else:
                self._store.delete(lease_name(lease.id))
        return held
