"""Removes from a store the files that no epoch needs any more: old manifests, published output, attempts that lost.

`checkpoint.retention` decides what is removed; the sweeper does so periodically, so the store of a job that runs for
months at ten epochs a second does not grow. Sweeping never fails a job: failed removals are tried again.

A pass has two parts, in this order:

1. files that no manifest names. This writes nothing, so it makes room on a full disk. The first pass lists all files,
   and later passes list them the less often the more there are: the manifests of removed epochs name their files;
2. manifests that retention releases, by the rules of `checkpoint/removals.py`, and the files that only they named.
   Savepoints, forks and readers run concurrently, in other processes, and so may other sweepers.

A file that cannot be read is logged once, and costs only space: a damaged manifest is removed when it is as old as
others that are removed. Until then every file that it might name stays, i.e. all files that are not newer than it.
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
    """Sweeps one job's store in bounded passes. `every_epochs`: how often, while the job runs; sooner if epochs
    write much. `releases` are called with the retained epochs, so that sources and archives can remove stored data that
    none of these needs; `sources` are the sources whose positions they need.

    Many attributes: the arguments, and the state that one pass leaves to the next.
    """

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
        self._retained = RetainedEpochs(store, sources, self._warn_once)
        self._noted_manifests: deque[Manifest] = deque()
        self._new_bytes = 0
        self._passes_to_listing = 0
        self._lost_runs: tuple[str, ...] = ()
        self._reported: set[str] = set()
        self._written_ms: dict[int, int] = {}

    def note(self, manifest: Manifest) -> None:
        """Provide a manifest, so that a pass need not read it; from any thread."""
        self._noted_manifests.append(manifest)

    def is_due(self, manifest: Manifest) -> bool:
        """Whether a pass is due after the commit of `manifest`."""
        self._new_bytes += (statistics_of(manifest) or {}).get("new_bytes", 0)
        if manifest.epoch % self._every_epochs and self._new_bytes < _EVERY_BYTES:
            return False
        self._new_bytes = 0
        return True

    def lose(self, run: str) -> None:
        """No message of this run's tasks will be accepted any more: files that it wrote for no epoch may be removed."""
        self._lost_runs = (*self._lost_runs[1 - _RUNS_REMEMBERED :], run)
        self._passes_to_listing = 0

    @property
    def has_lost_runs(self) -> bool:
        """Whether failed runs of this driver may have left files."""
        return bool(self._lost_runs)

    def sweep(self, newest: Manifest | None) -> bool:
        """Remove what is no longer needed as of `newest`; returns whether another pass has more to remove."""
        try:
            return self.sweep_once(newest)
        except Exception as error:
            _LOG.warning("the store could not be swept, and is swept later: %s", error)
            return False

    def sweep_once(self, newest: Manifest | None, is_idle: Callable[[], bool] = lambda: False) -> bool:
        """Like `sweep`, but raises errors. `is_idle` returns whether no process runs the job; it is called after files
        are listed. If no process does, files of epochs that were never committed are removed as well."""
        last, published = (0, 0) if newest is None else (newest.epoch, newest.published_through)
        specs = [(name, epoch_of_spec(name)) for name in self._store.list(SPECS)]
        self._store.delete_many([name for name, epoch in specs if epoch is not None and epoch < last])
        # The newest receipt stays: it proves which manifest must exist.
        receipts = [name for name in self._store.list(RECEIPTS) if epoch_of_receipt(name) is not None]
        self._store.delete_many([name for name in receipts[:-1] if (epoch_of_receipt(name) or 0) <= published])
        settle_removals(self._store)
        self._refresh()
        is_all = self._remove_unnamed(last, published, is_idle)
        if restore_set_aside(self._store, self._warn_once):
            self._refresh()
        runs, has_more = self._leaving_runs(published)
        removed = remove_runs(self._store, runs, self._held_epochs)
        files = self._retained.remove(removed)
        self._refresh()  # a job that went back to an older epoch may have made it its newest in the meantime
        is_all = self._remove_files(files, last, published) and is_all
        if not self._retained.unreadable:  # the needs of an unreadable epoch are unknown
            history = self._retained.history()
            for release in self._releases:
                release(history)
        return has_more or not is_all

    def clear(self) -> None:
        """Remove everything but what pins and leases hold: the job is over, and will not be continued."""
        published = self._published()
        # First, so that a concurrent start does not reuse epoch numbers of the same job.
        renew(self._store, secrets.token_hex(16))
        restore_set_aside(self._store, self._warn_once)
        settle_removals(self._store)
        self._refresh()
        while runs := runs_of(self._epochs(), set(self._epochs()) - self._held_epochs(self._epochs())):
            remove_runs(self._store, runs, self._held_epochs)
            self._refresh()
        self._keep_receipt(published)
        self._store.delete_many([name for name in self._listed() if name not in self._retained.files])
        if not self._epochs():
            # Stored input belongs to positions, and these are removed: a new start must not depend on input that was
            # read before.
            self._store.delete_many(self._store.list(INPUT))

    def _published(self) -> int:
        """The newest epoch that is known to be published; 0 if unknown."""
        record = read_job_record(self._store)
        try:
            return 0 if record is None else known_published(self._store, self._log.newest(), record.job_id)
        except StoreDamagedError:
            return 0

    def _keep_receipt(self, published: int) -> None:
        """Remove all receipts except that of the epoch from which a start would continue: its output may have been
        consumed."""
        last = max(self._retained.created_ms, default=0)
        if 0 < last <= published:
            write_receipt(self._store, self._log.read(last))
        self._store.delete_many([name for name in self._store.list(RECEIPTS) if epoch_of_receipt(name) != last])

    # --- files ----------------------------------------------------------------------------------------------------

    def _listed(self) -> list[str]:
        return [*self._store.list(STAGED), *self._store.list(SEGMENTS), *self._store.list(FINISHED)]

    def _remove_unnamed(self, newest: int, published: int, is_idle: Callable[[], bool]) -> bool:
        """Remove the files that no manifest names, if a listing is due. Returns False if some remain."""
        if self._passes_to_listing:
            self._passes_to_listing -= 1
            return True
        aside = frozenset().union(*map(named_files, set_aside_manifests(self._store, self._warn_once)))
        files = self._listed()
        self._passes_to_listing = len(files) // _FILES_MAX
        unnamed = [name for name in files if name not in self._retained.files and name not in aside]
        self._store.remove_unfinished(self._now_ms() - UNFINISHED_MS)
        is_all = self._remove_files(unnamed, newest, published)
        ahead = [name for name in unnamed if epoch_of_file(name) >= max(newest, 1)]
        lost = [name for name in ahead if epoch_of_file(name) > newest and written_by(name, self._lost_runs)]
        if ahead and is_idle():
            # A driver may have committed epochs and ended since the manifests were listed.
            self._refresh()
            lost = [] if self._retained.unreadable else [name for name in ahead if name not in self._retained.files]
        self._store.delete_many(lost)
        return is_all

    def _remove_files(self, names: Iterable[str], newest: int, published: int) -> bool:
        """Remove those of `files` that no manifest names and that may be removed now; returns whether none remain."""
        names = (name for name in names if name not in self._retained.files)
        leaving = files_to_delete(names, (), newest=newest, published_through=published)
        # A damaged manifest may name any file except those written later. Its own epochs, if several that ran ahead
        # were committed as one, wrote under the next number as well.
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
        # If another sweeper has removed an epoch, a listing may have missed an epoch that names the same files and was
        # committed at the same time. The next listing has it.
        while self._retained.refresh(noted):
            self._passes_to_listing = 0

    def _epochs(self) -> list[int]:
        return sorted({*self._retained.created_ms, *self._retained.unreadable})

    def _leaving_runs(self, published_through: int) -> tuple[list[list[int]], bool]:
        """The epochs to remove, oldest first, as many as one pass may remove; and whether there are more."""
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
        """Those of these epochs that pins and leases name."""
        return held_epochs(self._store, set(epochs), self._warn_once, self._written_ms)

    def _warn_once(self, name: str, what: str) -> None:
        """Warns once for each file."""
        if name not in self._reported:
            self._reported.add(name)
            _LOG.warning("%s", what)


class BackgroundSweeper:
    """Sweeps on a thread of its own: no epoch and no publishing ever waits for it.

    One pass at a time. A request during a pass causes one more pass after it, as of the newest requested epoch. A pass
    is bounded; the next one follows immediately, unless the job ends. The end waits for the running and the requested
    pass, and starts no other.
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
        """Request a pass that removes what is no longer needed as of `newest`."""
        with self._lock:
            if self._closing.is_set() or (newest is None and not self._sweeper.has_lost_runs):
                return
            self._requested, self._is_requested = newest, True
            if not self._is_sweeping:
                self._is_sweeping = True
                self._thread.submit(self._run)

    def wait(self) -> None:
        """Wait until the requested pass is done."""
        self._thread.submit(lambda: None).result()

    def lose(self, run: str) -> None:
        """No message of this run's tasks will be accepted any more."""
        self._sweeper.lose(run)

    def close(self) -> None:
        """Complete the requested pass, and sweep no more."""
        with self._lock:
            self._closing.set()
        self._thread.shutdown(wait=True)

    def clear(self) -> None:
        """After `close`: remove everything but what pins and leases hold."""
        self._sweeper.clear()

    def _run(self) -> None:
        """Runs on the sweeping thread."""
        while True:
            with self._lock:
                newest, is_requested, self._is_requested = self._requested, self._is_requested, False
                if not is_requested:
                    self._is_sweeping = False
                    return
            while self._sweeper.sweep(newest) and not self._closing.is_set():
                pass
