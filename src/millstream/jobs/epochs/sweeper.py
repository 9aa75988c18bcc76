"""Removes from a store what no epoch will need again: old manifests, published output, losing attempts.

What may go is decided by `checkpoint.retention`; this only does it, now and then, so that a job that runs for
months at ten epochs a second keeps a flat store. Sweeping never fails a job: what could not be removed is tried again.

A pass has two parts, in this order:

1. files that no manifest names. This writes nothing, so it makes room where a disk is full. All files are listed in the
   first pass, and the less often the more there are: of epochs that go, their manifests tell the files;
2. manifests that retention lets go, as `checkpoint/removals.py` says, and the files that only they named. Savepoints,
   forks and readers work beside it, in other processes, and so may other sweepers.

A file that cannot be read is logged once, and costs nothing but space: a damaged manifest goes when it is as old as
others that go, and until then every file stays that it might name, which are all those not newer than it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.job_record import renew
from millstream.checkpoint.leases import held_epochs
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.receipts import known_published, write_receipt
from millstream.checkpoint.removals import remove_runs, restore_set_aside, set_aside_manifests, settle_removals
from millstream.checkpoint.retention import (
    RetentionPolicy,
    epoch_of_file,
    files_to_delete,
    named_files,
    retained_epochs,
    runs_of,
    written_by,
)
from millstream.errors import StoreDamagedError
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.epochs.retained_epochs import RetainedEpochs, RetainedHistory
from millstream.storage.local import UNFINISHED_MS
from millstream.storage.names import FINISHED, INPUT, RECEIPTS, SEGMENTS, SPECS, STAGED, epoch_of_receipt, epoch_of_spec
from millstream.storage.store import Store

__all__ = ["BackgroundSweeper", "Sweeper"]

_LOG = logging.getLogger(__name__)
_EVERY_EPOCHS = 50
_EVERY_BYTES = 256 << 20
_FILES_MAX = 5_000
_EPOCHS_MAX = 5_000
_RUNS_MAX = 100
_RUNS_REMEMBERED = 16


class Sweeper:
    """Sweeps one job's store, a bounded pass at a time. `every_epochs`: how often, while the job runs; sooner where
    they write much. `releases` are told which epochs are left, so that sources and archives remove what they have
    stored and none of these needs; `sources` are those whose positions they ask for.

    Many attributes: what it was made with, and what one pass tells the next."""

    def __init__(
        self,
        store: Store,
        now_ms: Callable[[], int],
        policy: RetentionPolicy | None = None,
        every_epochs: int = _EVERY_EPOCHS,
        releases: Sequence[Callable[[RetainedHistory], None]] = (),
        sources: Collection[str] = (),
    ) -> None:
        self._store, self._log = store, ManifestLog(store)
        self._now_ms, self._policy, self._every_epochs = now_ms, policy or RetentionPolicy(), every_epochs
        self._releases = releases
        self._retained = RetainedEpochs(store, sources, self._tell)
        self._noted_manifests: deque[Manifest] = deque()
        self._new_bytes = 0
        self._passes_to_listing = 0
        self._lost_runs: tuple[str, ...] = ()
        self._reported: set[str] = set()
        self._written_ms: dict[int, int] = {}

    def note(self, manifest: Manifest) -> None:
        """Spare a pass the reading of a manifest; from any thread."""
        self._noted_manifests.append(manifest)

    def is_due(self, manifest: Manifest) -> bool:
        """Whether it is time to sweep, when `manifest` is committed."""
        self._new_bytes += (statistics_of(manifest) or {}).get("new_bytes", 0)
        if manifest.epoch % self._every_epochs and self._new_bytes < _EVERY_BYTES:
            return False
        self._new_bytes = 0
        return True

    def lose(self, run: str) -> None:
        """No task of this run of the driver will be heard any more: what it wrote for no epoch may go."""
        self._lost_runs = (*self._lost_runs[1 - _RUNS_REMEMBERED :], run)
        self._passes_to_listing = 0

    @property
    def has_lost_runs(self) -> bool:
        """Whether something may have been left by a run of this driver that failed."""
        return bool(self._lost_runs)

    def sweep(self, newest: Manifest | None) -> bool:
        """Remove what is no longer needed, as of `newest`; whether it was so much that another pass has more to do."""
        try:
            return self.sweep_once(newest)
        except Exception as error:
            _LOG.warning("the store could not be swept, and is swept later: %s", error)
            return False

    def sweep_once(self, newest: Manifest | None, is_alone: Callable[[], bool] = lambda: False) -> bool:
        """The same; raises what went wrong. `is_alone` says whether nobody runs the job, asked after files are listed:
        then what an epoch has left that never happened goes as well."""
        last, published = (0, 0) if newest is None else (newest.epoch, newest.published_through)
        specs = [(name, epoch_of_spec(name)) for name in self._store.list(SPECS)]
        self._store.delete_many([name for name, epoch in specs if epoch is not None and epoch < last])
        # The newest receipt stays: it tells which manifest must be there.
        receipts = [name for name in self._store.list(RECEIPTS) if epoch_of_receipt(name) is not None]
        self._store.delete_many([name for name in receipts[:-1] if (epoch_of_receipt(name) or 0) <= published])
        settle_removals(self._store)
        self._refresh()
        is_all = self._remove_unnamed(last, published, is_alone)
        if restore_set_aside(self._store, self._tell):
            self._refresh()
        runs, has_more = self._leaving_runs(published)
        removed = remove_runs(self._store, runs, self._held_epochs)
        files = self._retained.forget(removed)
        self._refresh()  # a job that goes back to an older epoch may have made it its newest meanwhile
        is_all = self._remove_files(files, last, published) and is_all
        if not self._retained.unreadable:  # what such an epoch needs cannot be told
            history = self._retained.history()
            for release in self._releases:
                release(history)
        return has_more or not is_all

    def clear(self) -> None:
        """Remove everything but what pins and leases hold: the job is over, and nobody is to go on with it."""
        published = self._published()
        # First, so that no start in between counts the same epochs of the same job once more.
        renew(self._store, secrets.token_hex(16))
        restore_set_aside(self._store, self._tell)
        settle_removals(self._store)
        self._refresh()
        while runs := runs_of(self._epochs(), set(self._epochs()) - self._held_epochs(self._epochs())):
            remove_runs(self._store, runs, self._held_epochs)
            self._refresh()
        self._keep_receipt(published)
        self._store.delete_many([name for name in self._listed() if name not in self._retained.files])
        if not self._epochs():
            # Stored input belongs to positions. Without any, a new start must not find that some was read and removed.
            self._store.delete_many(self._store.list(INPUT))

    def _published(self) -> int:
        """The newest epoch that is known to be published; 0 where that cannot be told."""
        record = read_job_record(self._store)
        try:
            return 0 if record is None else known_published(self._store, self._log.newest(), record.job_id)
        except StoreDamagedError:
            return 0

    def _keep_receipt(self, published: int) -> None:
        """Of all receipts, leave that of the epoch with which a start would go on: its output may have been taken."""
        last = max(self._retained.created_ms, default=0)
        if 0 < last <= published:
            write_receipt(self._store, self._log.read(last))
        self._store.delete_many([name for name in self._store.list(RECEIPTS) if epoch_of_receipt(name) != last])

    # --- files ----------------------------------------------------------------------------------------------------

    def _listed(self) -> list[str]:
        return [*self._store.list(STAGED), *self._store.list(SEGMENTS), *self._store.list(FINISHED)]

    def _remove_unnamed(self, newest: int, published: int, is_alone: Callable[[], bool]) -> bool:
        """Remove the files that no manifest names, if it is time to look at all; whether those are all."""
        if self._passes_to_listing:
            self._passes_to_listing -= 1
            return True
        aside = frozenset().union(*map(named_files, set_aside_manifests(self._store, self._tell)))
        files = self._listed()
        self._passes_to_listing = len(files) // _FILES_MAX
        unnamed = [name for name in files if name not in self._retained.files and name not in aside]
        self._store.remove_unfinished(self._now_ms() - UNFINISHED_MS)
        is_all = self._remove_files(unnamed, newest, published)
        ahead = [name for name in unnamed if epoch_of_file(name) >= max(newest, 1)]
        lost = [name for name in ahead if epoch_of_file(name) > newest and written_by(name, self._lost_runs)]
        if ahead and is_alone():
            # A driver may have committed epochs and ended since the manifests were listed.
            self._refresh()
            lost = [] if self._retained.unreadable else [name for name in ahead if name not in self._retained.files]
        self._store.delete_many(lost)
        return is_all

    def _remove_files(self, names: Iterable[str], newest: int, published: int) -> bool:
        """Remove those of these files that no manifest names, as far as they may go now; whether those are all."""
        names = (name for name in names if name not in self._retained.files)
        leaving = files_to_delete(names, (), newest=newest, published_through=published)
        # What a damaged manifest names cannot be told, but nothing that was written later. Its own epochs, where
        # several that ran ahead were committed as one, wrote under the next number as well.
        unknown = max(self._retained.unreadable, default=-1) + 1
        leaving = [name for name in leaving if epoch_of_file(name) > unknown]
        self._store.delete_many(leaving[:_FILES_MAX])
        if len(leaving) <= _FILES_MAX:
            return True
        self._passes_to_listing = 0
        return False

    # --- epochs ---------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        noted: dict[int, Manifest] = {}
        while self._noted_manifests:
            manifest = self._noted_manifests.popleft()
            noted[manifest.epoch] = manifest
        # Where another sweeper has removed an epoch, a listing may have missed an epoch that names the same files and
        # was committed meanwhile. The next one has it.
        while self._retained.refresh(noted):
            self._passes_to_listing = 0

    def _epochs(self) -> list[int]:
        return sorted({*self._retained.created_ms, *self._retained.unreadable})

    def _leaving_runs(self, published_through: int) -> tuple[list[list[int]], bool]:
        """The epochs whose manifests are to go, the oldest first, as many as one pass may remove; whether there are
        more."""
        epochs, unreadable = self._epochs(), self._retained.unreadable
        held = self._held_epochs(epochs)
        staying = retained_epochs(
            self._retained.created_ms,
            self._policy,
            published_through=published_through,
            now_ms=self._now_ms(),
            held=held,
        )
        staying |= held | {*epochs[-self._policy.keep_last :]} | {e for e in unreadable if e > published_through}
        leaving = [epoch for epoch in epochs if epoch not in staying]
        runs = runs_of(epochs, set(leaving[:_EPOCHS_MAX]))
        return runs[:_RUNS_MAX], len(leaving) > _EPOCHS_MAX or len(runs) > _RUNS_MAX

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
        self._is_requested = False
        self._is_sweeping = False
        self._closing = threading.Event()

    def committed(self, newest: Manifest) -> None:
        """An epoch was committed; sweep if it is time."""
        self._sweeper.note(newest)
        if self._sweeper.is_due(newest):
            self.sweep(newest)

    def sweep(self, newest: Manifest | None) -> None:
        """Remove, soon, what is no longer needed as of `newest`."""
        with self._lock:
            if self._closing.is_set() or (newest is None and not self._sweeper.has_lost_runs):
                return
            self._requested, self._is_requested = newest, True
            if not self._is_sweeping:
                self._is_sweeping = True
                self._thread.submit(self._run)

    def wait(self) -> None:
        """Wait until what was asked for is swept."""
        self._thread.submit(lambda: None).result()

    def lose(self, run: str) -> None:
        """No task of this run of the driver will be heard any more."""
        self._sweeper.lose(run)

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
                newest, is_requested, self._is_requested = self._requested, self._is_requested, False
                if not is_requested:
                    self._is_sweeping = False
                    return
            while self._sweeper.sweep(newest) and not self._closing.is_set():
                pass
