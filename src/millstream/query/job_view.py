"""Queries a job while it runs, from its store alone: without a server and Spark, and without affecting the job.

`newest` is the newest committed epoch. It checks for a newer one at most every `POLL_MS`, by one listing of the
manifests; one thread does that while others use the existing view. A manifest is made durable before it is used.
Invariant: the epochs that one view returns never go backwards, whatever happens to the job.

All segments of a new epoch are open before its view is returned (`epoch_opener.py`).
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time as system_time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import epoch_ranges
from millstream.errors import ProgramError, StoreDamagedError, StoreError
from millstream.query.catalog import QueryableState, StateName
from millstream.query.epoch_opener import EpochOpener
from millstream.query.epoch_view import EpochView
from millstream.query.errors import EpochGoneError, NoEpochError
from millstream.state_reader.job_reader import JobReader
from millstream.storage.names import manifest_name
from millstream.storage.store import Store

__all__ = ["POLL_MS", "JobView", "ListedFolder"]

POLL_MS = 20
"""How long the result of a check for newer epochs is valid."""
_KNOWN_MS = 40
"""How long it is valid for a caller that has begun another check."""
_SETTLED_MS = 100
_TRUSTED_S = 1.0  # a file server may answer from its cache for a while
_COMPARED_NAMES_MAX = 1_000
_TRIES = 20
_KEEP = "Retain more epochs with millstream.retention.epochs, or save an epoch with `millstream savepoint`."


class ListedFolder:
    """A local folder as of its last listing, and whether names may have been added since.

    `has_nothing_new` is true only if that is certain. The folder's modification time suffices if it was well in the
    past at the listing: any later change sets another time. Otherwise its names are compared, which is still far
    cheaper than waking a thread that lists the store. For a folder too large to compare, or not on a local disk, it is
    false.

    >>> ListedFolder().has_nothing_new(0)
    False
    """

    def __init__(self) -> None:
        self._listing: _Listing | None = None
        self._listed_s = float("-inf")

    def note(self, folder: Path | None, now_ms: int) -> None:
        """Call before listing the folder. None: it is not on a local disk."""
        self._listing = None if folder is None else _Listing.of(str(folder), now_ms)
        self._listed_s = system_time.monotonic()

    def discard(self) -> None:
        """Discard the listing, because a listed file could not be read."""
        self._listing = None

    def has_nothing_new(self, now_ms: int) -> bool:
        """Whether another listing would contain no new name."""
        listing = self._listing
        if listing is None or system_time.monotonic() - self._listed_s >= _TRUSTED_S:
            return False
        if listing.is_settled and _changed_ns(listing.folder) == listing.changed_ns:
            return True
        newer = _Listing.of(listing.folder, now_ms) if len(listing.names) <= _COMPARED_NAMES_MAX else None
        if newer is None or not newer.names <= listing.names:
            return False
        self._listing = newer
        return True


@dataclass(frozen=True)
class _Listing:
    """The names in a folder, and its modification time, read before them. `is_settled`: any later change sets another
    time."""

    folder: str
    changed_ns: int
    is_settled: bool
    names: frozenset[str]

    @classmethod
    def of(cls, folder: str, now_ms: int) -> _Listing | None:
        changed_ns = _changed_ns(folder)
        if changed_ns is None:
            return None
        # File systems have timestamps of milliseconds: changes within one tick of the listing are not distinguishable.
        is_settled = now_ms - changed_ns // 1_000_000 > _SETTLED_MS
        try:
            return cls(folder, changed_ns, is_settled, frozenset(os.listdir(folder)))
        except OSError:
            return None


def _changed_ns(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


class JobView:
    """See `millstream.query.open`."""

    def __init__(
        self,
        reader: JobReader,
        job: str,
        job_id: str,
        opener: EpochOpener,
        *,
        follow: bool = True,
        clock: Callable[[], int],
        sleep: Callable[[float], None] = system_time.sleep,
    ) -> None:
        self.job, self.job_id = job, job_id
        self._reader, self._opener = reader, opener
        self._log = ManifestLog(reader.store)
        self._follows, self._clock, self._sleep = follow, clock, sleep
        self._newest: EpochView | None = None
        self._checked_s = float("-inf")
        self._checking = threading.Lock()
        self._manifests = ListedFolder()

    @property
    def store(self) -> Store:
        """The job's store."""
        return self._reader.store

    @property
    def where(self) -> str:
        """The job's name in errors: its store, unless set otherwise."""
        return self._opener.where

    def set_name_in_errors(self, name: str) -> None:
        """Set the job's name in errors: a server does not reveal the address of its store to untrusted clients."""
        self._opener.where = name

    def check_ahead(self, bytes_max: int) -> None:
        """Verify the new bytes of each state, up to `bytes_max`, before a new epoch is used instead of on first read:
        new epochs are available some milliseconds later, and no query waits."""
        self._opener.check_ahead(bytes_max)

    def states(self) -> list[QueryableState]:
        """The queryable states at the newest epoch."""
        return self.newest().states()

    # --- the newest ---------------------------------------------------------------------------------------------

    def newest(self) -> EpochView:
        """The newest committed epoch; raises NoEpochError while there is none."""
        current = self._newest
        if current is not None:
            # Monotonic time: setting the clock back must not stop the checks.
            if not self._follows or system_time.monotonic() - self._checked_s < POLL_MS / 1000:
                return current
            if self._manifests.has_nothing_new(self._clock()):  # checks a folder instead of listing the store
                self._checked_s = system_time.monotonic()
                return current
            if not self._checking.acquire(blocking=False):
                return current  # another thread is checking
        else:
            self._checking.acquire()
        try:
            return self._check()
        finally:
            self._checking.release()

    def known_newest(self, is_sought: bool = False) -> EpochView | None:
        """The newest known epoch, for a caller that must not wait; None unless the last check is recent, or another is
        running."""
        if self.is_check_due and self._manifests.has_nothing_new(self._clock()):
            self._checked_s = system_time.monotonic()
        if not is_sought and self._check_age_ms() >= _KNOWN_MS and not self._checking.locked():
            return None
        return self._newest

    @property
    def is_check_due(self) -> bool:
        """Whether a check for a newer epoch is due; `newest` performs it."""
        return self._check_age_ms() >= POLL_MS

    def _check_age_ms(self) -> float:
        return (system_time.monotonic() - self._checked_s) * 1000 if self._follows else 0.0

    def check_again(self) -> None:
        """A newer epoch is known to exist: the next query checks for it, no matter how recent the last check is."""
        self._checked_s = float("-inf")

    def _check(self) -> EpochView:
        current = self._newest
        # Set before the check: an epoch announced during the check may be missed, and makes the next check due.
        self._checked_s = system_time.monotonic()
        try:
            self._note_listing()
            epochs = self._log.epochs_from(0 if current is None else current.epoch)
            if current is None or epochs[-1:] > [current.epoch]:
                self._newest = current = self._opened_newest(0 if current is None else current.epoch)
                if epochs[-1:] > [current.epoch]:
                    self._manifests.discard()
        except StoreDamagedError:
            self.check_again()
            self._manifests.discard()
            raise
        except StoreError:
            # The store cannot be reached now: the existing view stays correct, and shows its age.
            self._manifests.discard()
            if current is None:
                raise
        assert current is not None
        return current

    def _note_listing(self) -> None:
        if self._newest is not None and self._follows:
            path = self.store.local_path(manifest_name(self._newest.epoch))
            self._manifests.note(None if path is None else path.parent, self._clock())

    def _opened_newest(self, after: int) -> EpochView:
        """The newest epoch with all its segments open. An epoch that is removed in the meantime has a successor."""
        for attempt in range(_TRIES):
            manifest = self._log.newest(after)
            if manifest is None or manifest.epoch <= after:
                if self._newest is not None:
                    return self._newest
                raise NoEpochError(f"{self.where} has no epoch yet: the job has committed nothing. Query again later.")
            try:
                return self._opener.view(manifest)
            except StoreDamagedError:
                if attempt == _TRIES - 1 or self._log.epochs_from(manifest.epoch)[-1:] <= [manifest.epoch]:
                    raise
        raise AssertionError("unreachable")

    def follow(self) -> Iterator[EpochView]:
        """The newest epoch, and each newer one once it is committed; epochs that were superseded in between are
        skipped. Ends when the job has reached the end of its input."""
        seen = 0
        while True:
            if self._newest is not None or self._log.epochs():
                view = self.newest()
                if view.epoch > seen:
                    seen = view.epoch
                    yield view
                if view.status == "FINISHED":
                    return  # a suspended job may continue
            self._sleep(POLL_MS / 1000)

    def wait_for(self, epoch: int, timeout_s: float) -> EpochView:
        """The newest epoch, once it is `epoch` or later; raises NoEpochError after `timeout_s`."""
        ends_s = system_time.monotonic() + timeout_s
        while True:
            newest: EpochView | None
            try:
                newest = self.newest()
            except NoEpochError:
                newest = None
            if newest is not None and newest.epoch >= epoch:
                return newest
            if system_time.monotonic() >= ends_s:
                at = "no epoch yet" if newest is None else f"epoch {newest.epoch}"
                raise NoEpochError(
                    f"{self.where} has not committed epoch {epoch} within {timeout_s:g} s: it has {at}. Wait longer, "
                    "or check whether the job runs."
                )
            self._sleep(POLL_MS / 1000)

    # --- the past -----------------------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """The retained epochs, oldest first."""
        return self._log.epochs()

    def at(self, *, epoch: int | None = None, time: dt.datetime | int | None = None) -> EpochView:
        """An older epoch, selected by its number, or as the newest one committed at or before a time (a datetime with a
        time zone, or ms since 1970). It is leased until the view is closed."""
        if time is not None and epoch is None:
            epoch = self._epoch_at(time)
        elif time is not None:
            raise ProgramError("at: pass epoch or time, not both")
        self._check_retained(epoch)
        self._catch_up(epoch)
        try:
            snapshot = self._reader.at(epoch=epoch)
        except StoreError:
            self._check_retained(epoch)  # it may have been removed just now
            raise
        try:
            return self._opener.view(snapshot.manifest, self._opener.past_segments(), snapshot.close)
        except BaseException:
            snapshot.close()
            raise

    def _catch_up(self, epoch: int | None) -> None:
        """If the requested epoch is newer than the newest known one, `newest` must not return an older one
        afterwards."""
        current = self._newest
        if not self._follows or current is None or epoch is None or epoch <= current.epoch:
            return
        with self._checking:
            self._check()

    def _epoch_at(self, time: dt.datetime | int) -> int:
        epoch = self._reader.epoch_at(time)
        if epoch is not None:
            return epoch
        epochs = self._log.epochs()
        if not epochs and self._newest is None:
            raise NoEpochError(f"{self.where} has no epoch yet: the job has committed nothing. Query again later.")
        oldest = f"the oldest is {epochs[0]}" if epochs else "it has none any more"
        raise EpochGoneError(f"{self.where} retains no epoch that was committed at or before {time}; {oldest}. {_KEEP}")

    def _check_retained(self, epoch: int | None) -> None:
        if epoch is None or self._log.has(epoch):
            return
        epochs = self._log.epochs()
        newest = max([0 if self._newest is None else self._newest.epoch, *epochs])
        if epoch > newest:
            have = f"the newest is {newest}" if newest else "it has none yet"
            raise NoEpochError(f"{self.where} has no epoch {epoch} yet: {have}. Use wait_for(epoch, timeout_s).")
        have = epoch_ranges(epochs) or "none"
        raise EpochGoneError(f"{self.where} no longer retains epoch {epoch}; it has {have}. {_KEEP}")

    def series(self, state: StateName, key: Any) -> list[tuple[int, int, Any]]:
        """(epoch, its commit time, the answer) for a key at every retained epoch, oldest first. Epochs in which the
        state was not declared yet are omitted."""
        return list(self.points(state, key))

    def points(self, state: StateName, key: Any) -> Iterator[tuple[int, int, Any]]:
        """The same as an iterator: callers may stop early."""
        self.check_again()
        newest = self.newest()  # a newer one is not known to be durable yet
        newest.state(state)  # raises with the existing names if there is no such state
        # An epoch shares most segments with the previous one, so they are opened once. No epoch is leased: one that is
        # removed in the meantime no longer belongs to the series.
        past = self._opener.past_segments()
        for epoch in self._log.epochs():
            manifest = self._log.read_if_present(epoch) if epoch <= newest.epoch else None
            if manifest is None:
                continue
            try:
                view = self._opener.view(manifest, past)
                point = (view.epoch, view.committed_ms, view.answer(state, key)) if view.has(state) else None
            except StoreDamagedError:
                if self._log.has(epoch):
                    raise
                continue
            if point is not None:
                yield point
