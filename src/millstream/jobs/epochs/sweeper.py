"""Removes from a store what no epoch will need again: old manifests, published output, losing attempts.

What may go is decided by `checkpoint.retention`; this only does it, now and then, so that a job that runs for
months at ten epochs a second keeps a flat store. Sweeping never fails a job: what could not be removed is tried again.

Savepoints, forks and readers work beside it, in other processes, and there is no lock. So, in this order:

1. decide which epochs go, copy their manifests into one file (the file aside), and remove them;
2. look for pins and leases once more, and put back every manifest that one of them names: a reader that wrote its lease
   and then found the manifest may read on, one that did not find it was told so;
3. list the manifests once more: a job that goes back to an older epoch may have made it its newest meanwhile;
4. remove the file aside, and all files that none of the remaining manifests names.

If a sweeper dies between 1 and 4, the file aside is still there: the next sweeper puts all of it back, and begins anew.

A file that cannot be read is logged once, and costs nothing but space: a damaged manifest goes when it is as old as
others that go, and until then every file stays that it might name, which are all those not newer than it.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.job_record import renew
from millstream.checkpoint.leases import held_epochs
from millstream.checkpoint.manifest import Manifest, ManifestLog, decode, encode
from millstream.checkpoint.manifest_bytes import from_text, to_text
from millstream.checkpoint.receipts import known_published, write_receipt
from millstream.checkpoint.retention import RetentionPolicy, epoch_of_file, files_to_delete, kept_epochs, named_files
from millstream.checkpoint.sealed import seal
from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.local import UNFINISHED_MS
from millstream.storage.names import (
    FINISHED,
    INPUT,
    RECEIPTS,
    SEGMENTS,
    SPECS,
    STAGED,
    epoch_of_receipt,
    epoch_of_spec,
    leaving_name,
    manifest_name,
)
from millstream.storage.store import Store

__all__ = ["BackgroundSweeper", "Sweeper"]

_LOG = logging.getLogger(__name__)
_EVERY_EPOCHS = 50
_ASIDE_BYTES_MAX = 16 * 1024 * 1024
_FILES_MAX = 5_000
FORMAT = 1


class Sweeper:
    """Sweeps one job's store, a bounded pass at a time. `every_epochs`: how often, while the job runs. `releases` are
    told which epochs are left, so that sources and archives remove what they have stored and none of these needs."""

    def __init__(
        self,
        store: Store,
        now_ms: Callable[[], int],
        policy: RetentionPolicy | None = None,
        every_epochs: int = _EVERY_EPOCHS,
        releases: Sequence[Callable[[Collection[Manifest]], None]] = (),
    ) -> None:
        self._store, self._log = store, ManifestLog(store)
        self._now_ms, self._policy, self._every_epochs = now_ms, policy or RetentionPolicy(), every_epochs
        self._releases = releases
        self._read_manifests: dict[int, Manifest] = {}  # manifests do not change: each is read once
        self._noted_manifests: deque[Manifest] = deque()
        self._named_files: dict[int, frozenset[str]] = {}
        self._unreadable: set[int] = set()
        self._reported: set[str] = set()
        self._written_ms: dict[int, int] = {}

    def note(self, manifest: Manifest) -> None:
        """Spare a pass the reading of a manifest; from any thread."""
        self._noted_manifests.append(manifest)

    def is_due(self, epoch: int) -> bool:
        """Whether it is time to sweep, when `epoch` is committed."""
        return epoch % self._every_epochs == 0

    def sweep(self, newest: Manifest | None) -> bool:
        """Remove what is no longer needed, as of `newest`; whether it was so much that another pass has more to do."""
        if newest is None:
            return False
        try:
            return self._sweep(newest)
        except Exception as error:
            _LOG.warning("the store could not be swept, and is swept later: %s", error)
            return False

    def clear(self) -> None:
        """Remove everything but what pins and leases hold: the job is over, and nobody is to go on with it."""
        published = self._published()
        # First, so that no start in between counts the same epochs of the same job once more.
        renew(self._store, secrets.token_hex(16))
        self._put_back()
        epochs = self._log.epochs()
        left_manifests = self._remove_manifests(set(epochs) - self._held_epochs(epochs))
        self._keep_receipt(left_manifests, published)
        named = frozenset().union(*(named_files(manifest) for manifest in left_manifests.values()))
        files = (*self._store.list(STAGED), *self._store.list(SEGMENTS), *self._store.list(FINISHED))
        self._store.delete_many([name for name in files if name not in named])
        if not left_manifests and not self._unreadable:
            # Stored input belongs to positions. Without any, a new start must not find that some was read and removed.
            self._store.delete_many(self._store.list(INPUT))

    def _published(self) -> int:
        """The newest epoch that is known to be published; 0 where that cannot be told."""
        record = read_job_record(self._store)
        try:
            return 0 if record is None else known_published(self._store, self._log.newest(), record.job_id)
        except StoreDamagedError:
            return 0

    def _keep_receipt(self, manifests: Mapping[int, Manifest], published: int) -> None:
        """Of all receipts, leave that of the epoch with which a start would go on: its output may have been taken."""
        last = max(manifests, default=0)
        if 0 < last <= published:
            write_receipt(self._store, manifests[last])
        self._store.delete_many([name for name in self._store.list(RECEIPTS) if epoch_of_receipt(name) != last])

    def _sweep(self, newest: Manifest) -> bool:
        specs = [(name, epoch_of_spec(name)) for name in self._store.list(SPECS)]
        self._store.delete_many([name for name, epoch in specs if epoch is not None and epoch < newest.epoch])
        published = newest.published_through
        # The newest receipt stays: it tells which manifest must be there.
        receipts = [name for name in self._store.list(RECEIPTS) if epoch_of_receipt(name) is not None]
        self._store.delete_many([name for name in receipts[:-1] if (epoch_of_receipt(name) or 0) <= published])
        self._put_back()
        epochs_leaving, is_all = self._leaving_epochs(published)
        left_manifests = self._remove_manifests(epochs_leaving)
        self._named_files = {
            epoch: self._named_files.get(epoch) or named_files(manifest) for epoch, manifest in left_manifests.items()
        }
        named = frozenset().union(*self._named_files.values())
        files = [*self._store.list(STAGED), *self._store.list(SEGMENTS), *self._store.list(FINISHED)]
        files_leaving = files_to_delete(files, named, newest=newest.epoch, published_through=published)
        # What it names cannot be told, but nothing that was written later. Its own epochs, where several that ran ahead
        # were committed as one, wrote under the next number as well.
        unknown = max(self._unreadable) + 1 if self._unreadable else 0
        files_leaving = [name for name in files_leaving if epoch_of_file(name) > unknown]
        self._store.delete_many(files_leaving[:_FILES_MAX])
        self._store.remove_unfinished(self._now_ms() - UNFINISHED_MS)
        if not self._unreadable:  # what such an epoch needs cannot be told
            for release in self._releases:
                release(left_manifests.values())
        return not is_all or len(files_leaving) > _FILES_MAX

    def _leaving_epochs(self, published_through: int) -> tuple[set[int], bool]:
        """The epochs whose manifests are to go, the oldest first, as far as they fit into one file aside; whether that
        is all of them."""
        manifests = self._manifests()
        epochs = sorted({*manifests, *self._unreadable})
        held = self._held_epochs(epochs)
        created_ms = {epoch: manifest.created_ms for epoch, manifest in manifests.items()}
        staying = kept_epochs(
            created_ms, self._policy, published_through=published_through, now_ms=self._now_ms(), held=held
        )
        staying |= held | {*epochs[-self._policy.keep_last :]} | {e for e in self._unreadable if e > published_through}
        leaving: set[int] = set()
        room = _ASIDE_BYTES_MAX
        for epoch in epochs:
            if epoch not in staying and (room > 0 or not leaving):
                leaving.add(epoch)
                room -= len(encode(manifests[epoch])) if epoch in manifests else 0
        return leaving, leaving >= set(epochs) - staying

    def _manifests(self) -> Mapping[int, Manifest]:
        """All that are there and can be read, by epoch."""
        while self._noted_manifests:
            manifest = self._noted_manifests.popleft()
            self._read_manifests[manifest.epoch] = manifest
        read_before, self._read_manifests, self._unreadable = self._read_manifests, {}, set()
        for epoch in self._log.epochs():
            try:
                self._read_manifests[epoch] = read_before.get(epoch) or self._log.read(epoch)
            except StoreAwayError:
                raise
            except StoreError as error:
                if self._store.exists(manifest_name(epoch)):
                    self._unreadable.add(epoch)
                    self._tell(manifest_name(epoch), error.message)
        return self._read_manifests

    def _remove_manifests(self, leaving: set[int]) -> Mapping[int, Manifest]:
        """Remove the manifests of these epochs, unless somebody holds one; returns those that are left."""
        manifests = dict(self._manifests())
        texts = {str(epoch): to_text(encode(manifests[epoch])) for epoch in sorted(leaving) if epoch in manifests}
        if texts:
            self._store.put(leaving_name(), seal("leaving", FORMAT, {"manifests": texts}))
        self._store.delete_many([manifest_name(epoch) for epoch in sorted(leaving)])
        for epoch in sorted(self._held_epochs(leaving)):
            if epoch in manifests:
                self._store.put(manifest_name(epoch), encode(manifests[epoch]))
        left_manifests = dict(self._manifests())
        if texts:
            self._store.delete(leaving_name())
        return left_manifests

    def _put_back(self) -> None:
        """What a sweeper that did not come to its end has set aside: every manifest of it that is whole."""
        if not self._store.exists(leaving_name()):
            return
        for manifest in self._manifests_aside():
            if not self._store.exists(manifest_name(manifest.epoch)):
                self._store.put(manifest_name(manifest.epoch), encode(manifest))
        self._store.delete(leaving_name())

    def _manifests_aside(self) -> list[Manifest]:
        """The manifests in the file aside. Each has a checksum of its own: what is whole of a damaged file counts."""
        whole = []
        try:
            texts = json.loads(self._store.get(leaving_name()))["manifests"]
            for epoch, text in texts.items():
                try:
                    whole.append(decode(from_text(text), f"epoch {epoch} in {leaving_name()}"))
                except StoreDamagedError as error:
                    self._tell(leaving_name(), error.message)
        except StoreAwayError:
            raise
        except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._tell(leaving_name(), f"{leaving_name()} of store {self._store.url} is damaged ({error})")
        return whole

    def _held_epochs(self, epochs: Iterable[int]) -> set[int]:
        """Of these epochs, those that pins and leases name."""
        return held_epochs(self._store, set(epochs), self._tell, self._written_ms)

    def _tell(self, name: str, what: str) -> None:
        """Once for each file, however often it is met."""
        if name not in self._reported:
            self._reported.add(name)
            _LOG.warning("%s", what)


class BackgroundSweeper:
    """Sweeps beside the job, on a thread of its own: no epoch and no publishing ever waits for it.

    One pass at a time. Whoever asks while a pass runs is answered by one more pass after it, as of the newest epoch
    that was asked about. A pass is bounded; what it had to leave is taken up at once, unless the job ends. The end
    waits for the pass that runs and the one that was asked for, and begins no other.
    """

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-sweep")
        self._lock = threading.Lock()
        self._requested: Manifest | None = None
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
            self._requested = newest
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
                newest, self._requested = self._requested, None
                if newest is None:
                    self._is_sweeping = False
                    return
            while self._sweeper.sweep(newest) and not self._closing.is_set():
                pass
