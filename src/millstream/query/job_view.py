"""A job, to ask questions of while it runs, from its store alone: no server, no Spark, and nothing the job notices.

`newest` is the newest committed epoch. It looks for a newer one at most every `POLL_MS`, by one listing of the
manifests; one thread does that while others go on with the view there is. A manifest is made durable before it is
believed. Invariant: the epochs that one view gives never go backwards, whatever happens to the job.

All segments of a new epoch are open before anybody sees its view (`epoch_opener.py`).
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
"""How long an answer to "is there a newer epoch" counts."""
_KNOWN_MS = 40
"""How long it counts for a caller that has begun to look again."""
_SETTLED_MS = 100
_TRUSTED_S = 1.0  # a file server may answer from memory for a while
_COMPARED_NAMES_MAX = 1_000
_TRIES = 20
_KEEP = "Keep more of the past with millstream.retention.epochs, or save an epoch with `millstream savepoint`."


class ListedFolder:
    """A folder of this machine, as it stood when it was listed last, and whether anything may have come since.

    "Nothing new" is certain. One look at the folder's time says so where that was long past at the listing: any change
    afterwards gives it another time. Else its names are compared, which is still far cheaper than to wake a thread that
    lists the store. Where the folder is on no disk of this machine, or large, the answer is that something may be new.

    >>> ListedFolder().has_nothing_new(0)
    False
    """

    def __init__(self) -> None:
        self._listing: _Listing | None = None
        self._listed_s = float("-inf")

    def note(self, folder: Path | None, now_ms: int) -> None:
        """It is about to be listed. None: it is on no disk of this machine."""
        self._listing = None if folder is None else _Listing.of(str(folder), now_ms)
        self._listed_s = system_time.monotonic()

    def forget(self) -> None:
        """What was listed could not be read, so the listing counts for nothing."""
        self._listing = None

    def has_nothing_new(self, now_ms: int) -> bool:
        """Whether a listing would find nothing that the last one did not find."""
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
    """The names in a folder, and its time, seen before them. `is_settled`: whatever changes gives it another time."""

    folder: str
    changed_ns: int
    is_settled: bool
    names: frozenset[str]

    @classmethod
    def of(cls, folder: str, now_ms: int) -> _Listing | None:
        changed_ns = _changed_ns(folder)
        if changed_ns is None:
            return None
        # Clocks of file systems tick by milliseconds: what changes within a tick of the listing is not told apart.
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
        self._looked_s = float("-inf")
        self._looking = threading.Lock()
        self._manifests = ListedFolder()

    @property
    def store(self) -> Store:
        """The job's store."""
        return self._reader.store

    @property
    def where(self) -> str:
        """How errors call the job: by its store, unless it was said otherwise."""
        return self._opener.where

    def set_name_in_errors(self, name: str) -> None:
        """How errors call the job from now on: a server does not tell strangers where its store is."""
        self._opener.where = name

    def check_ahead(self, bytes_max: int) -> None:
        """Check the new bytes of each state, up to so many, before a new epoch is shown, and not when a key of them is
        first read: newer epochs are seen some milliseconds later, and no question waits."""
        self._opener.check_ahead(bytes_max)

    def states(self) -> list[QueryableState]:
        """What can be asked for at the newest epoch."""
        return self.newest().states()

    # --- the newest ---------------------------------------------------------------------------------------------

    def newest(self) -> EpochView:
        """The newest committed epoch; NoEpochError while there is none."""
        current = self._newest
        if current is not None:
            # Monotonic time, not the clock: a clock that is set back must not stop anybody from looking.
            if not self._follows or system_time.monotonic() - self._looked_s < POLL_MS / 1000:
                return current
            if self._manifests.has_nothing_new(self._clock()):  # a look at a folder, in place of a listing
                self._looked_s = system_time.monotonic()
                return current
            if not self._looking.acquire(blocking=False):
                return current  # another thread is looking
        else:
            self._looking.acquire()
        try:
            return self._look()
        finally:
            self._looking.release()

    def known_newest(self, is_sought: bool = False) -> EpochView | None:
        """The newest epoch as far as it is known, for a caller that must not wait; None unless it was looked for a
        moment ago, or a newer one is being sought."""
        if self.is_look_due and self._manifests.has_nothing_new(self._clock()):
            self._looked_s = system_time.monotonic()
        if not is_sought and self._look_age_ms() >= _KNOWN_MS and not self._looking.locked():
            return None
        return self._newest

    @property
    def is_look_due(self) -> bool:
        """Whether it is time to look for a newer epoch: `newest` does."""
        return self._look_age_ms() >= POLL_MS

    def _look_age_ms(self) -> float:
        return (system_time.monotonic() - self._looked_s) * 1000 if self._follows else 0.0

    def look_again(self) -> None:
        """Somebody knows of a newer epoch: the next question looks for it, however short ago the last one did."""
        self._looked_s = float("-inf")

    def _look(self) -> EpochView:
        current = self._newest
        # Set before looking: an epoch that is announced meanwhile may be missed by this look, and makes the next due.
        self._looked_s = system_time.monotonic()
        try:
            self._note_listing()
            epochs = self._log.epochs_from(0 if current is None else current.epoch)
            if current is None or epochs[-1:] > [current.epoch]:
                self._newest = current = self._opened_newest(0 if current is None else current.epoch)
                if epochs[-1:] > [current.epoch]:
                    self._manifests.forget()
        except StoreDamagedError:
            self.look_again()
            self._manifests.forget()
            raise
        except StoreError:
            # A store that cannot be reached now: what there is stays right, and tells its age.
            self._manifests.forget()
            if current is None:
                raise
        assert current is not None
        return current

    def _note_listing(self) -> None:
        if self._newest is not None and self._follows:
            path = self.store.local_path(manifest_name(self._newest.epoch))
            self._manifests.note(None if path is None else path.parent, self._clock())

    def _opened_newest(self, after: int) -> EpochView:
        """The newest epoch with all its segments open. One that is collected meanwhile has a newer one."""
        for attempt in range(_TRIES):
            manifest = self._log.newest(after)
            if manifest is None or manifest.epoch <= after:
                if self._newest is not None:
                    return self._newest
                raise NoEpochError(f"{self.where} has no epoch yet: the job has committed nothing. Ask again later.")
            try:
                return self._opener.view(manifest)
            except StoreDamagedError:
                if attempt == _TRIES - 1 or self._log.epochs_from(manifest.epoch)[-1:] <= [manifest.epoch]:
                    raise
        raise AssertionError("unreachable")

    def follow(self) -> Iterator[EpochView]:
        """The newest epoch, and each newer one once it is committed; one that is passed meanwhile is left out. Ends
        when the job has come to the end of its input."""
        seen = 0
        while True:
            if self._newest is not None or self._log.epochs():
                view = self.newest()
                if view.epoch > seen:
                    seen = view.epoch
                    yield view
                if view.status == "FINISHED":
                    return  # one that is only suspended may go on
            self._sleep(POLL_MS / 1000)

    def wait_for(self, epoch: int, timeout_s: float) -> EpochView:
        """The newest epoch, once it is `epoch` or later; NoEpochError when that takes longer."""
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
                    "or look whether the job runs."
                )
            self._sleep(POLL_MS / 1000)

    # --- the past -----------------------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """The retained epochs, oldest first."""
        return self._log.epochs()

    def at(self, *, epoch: int | None = None, time: dt.datetime | int | None = None) -> EpochView:
        """An older epoch, by its number or as the newest one committed at or before a time (a datetime with a time
        zone, or ms since 1970). It is held until the view is closed."""
        if time is not None and epoch is None:
            epoch = self._epoch_at(time)
        elif time is not None:
            raise ProgramError("at: give epoch or time, not both")
        self._check_retained(epoch)
        self._catch_up(epoch)
        try:
            snapshot = self._reader.at(epoch=epoch)
        except StoreError:
            self._check_retained(epoch)  # it may have been collected just now
            raise
        try:
            return self._opener.view(snapshot.manifest, self._opener.past_segments(), snapshot.close)
        except BaseException:
            snapshot.close()
            raise

    def _catch_up(self, epoch: int | None) -> None:
        """An epoch is asked for that is newer than the newest one known: `newest` must not give an older one then."""
        current = self._newest
        if not self._follows or current is None or epoch is None or epoch <= current.epoch:
            return
        with self._looking:
            self._look()

    def _epoch_at(self, time: dt.datetime | int) -> int:
        epoch = self._reader.epoch_at(time)
        if epoch is not None:
            return epoch
        epochs = self._log.epochs()
        if not epochs and self._newest is None:
            raise NoEpochError(f"{self.where} has no epoch yet: the job has committed nothing. Ask again later.")
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
        raise EpochGoneError(f"{self.where} retains epoch {epoch} no more; it has {have}. {_KEEP}")

    def series(self, state: StateName, key: Any) -> list[tuple[int, int, Any]]:
        """(epoch, when it was committed, the answer) for a key at every retained epoch, oldest first. Epochs in which
        the state was not declared yet are left out."""
        return list(self.points(state, key))

    def points(self, state: StateName, key: Any) -> Iterator[tuple[int, int, Any]]:
        """The same, one after the other: whoever has enough stops."""
        self.look_again()
        newest = self.newest()  # what is newer is not known to be durable yet
        newest.state(state)  # says what there is, if it is none of them
        # An epoch shares most segments with the one before it: they are opened once. None is leased: one that is
        # collected meanwhile belongs to the series no more.
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
