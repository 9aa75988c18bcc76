"""A job, to ask questions of while it runs, from its store alone: no server, no Spark, and nothing the job notices.

`newest` is the newest committed epoch. It looks for a newer one at most every `POLL_MS`, by one listing of the
manifests; one thread does that while others go on with the view there is. A manifest is made durable before it is
believed. Invariant: the epochs that one view gives never go backwards, whatever happens to the job.

What is open is kept from epoch to epoch: of a new epoch only new segments are opened, all of them before anybody sees
the view.
"""

from __future__ import annotations

import datetime as dt
import threading
import time as system_time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import ProgramError, StoreDamagedError, StoreError
from millstream.query.catalog import Asked, Located, QueryableState, locations_of
from millstream.query.epoch_view import EpochView, Reads
from millstream.query.errors import EpochGoneError, NoEpochError
from millstream.query.keyed_reads import KeyedReads
from millstream.query.listed_folder import ListedFolder
from millstream.query.window_reads import WindowReads
from millstream.records.codecs import refuse_pickle
from millstream.state.schemas.schema_history import History
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.job_reader import JobReader
from millstream.state_reader.table_source import is_alike, layout_of, view_of
from millstream.storage.names import manifest_name
from millstream.storage.store import Store

__all__ = ["AT_HAND_MS", "POLL_MS", "JobView"]

POLL_MS = 20
"""How long an answer to "is there a newer epoch" counts."""
AT_HAND_MS = 40
"""How long it counts for who has it asked again meanwhile."""

_TRIES = 20
_KEEP = "Keep more of the past with millstream.retention.epochs, or save an epoch with `millstream savepoint`."


class _Tables:
    """The open tables of a store. Each state has segments of its own, so that what one lets go another keeps."""

    def __init__(self, store: Store, cache_folder: Path | None, maps: bool) -> None:
        self._store, self._cache_folder, self._maps = store, cache_folder, maps
        self.touched_bytes_max = 0
        self._open: dict[tuple[str, str], OpenSegments] = {}
        self._layouts: dict[tuple[str, str], tuple[Any, History, TableLayout]] = {}

    def view(self, state: StoredState | None, past: OpenSegments | None) -> TableView | None:
        """The table of the newest epoch, or of one of the `past`, all segments open; None where there is none."""
        if state is None or not state.refs:
            return None
        if past is not None:
            view = view_of(past, state, layout_of(past, state))
            assert view.layers is not None  # opens them
            return view
        place = (state.uid, state.name)
        segments = self._open.setdefault(place, self.past())
        layout = self._layout(place, segments, state)
        view = view_of(segments, state, layout)
        assert view.layers is not None
        segments.keep_only(state.refs, layout)
        view.touch(self.touched_bytes_max)
        return view

    def past(self) -> OpenSegments:
        """Segments to be opened for epochs of the past, and let go together."""
        return OpenSegments(self._store, self._cache_folder, maps=self._maps, is_foreign=True)

    def _layout(self, place: tuple[str, str], segments: OpenSegments, state: StoredState) -> TableLayout:
        newest, oldest = (pick(state.refs, key=lambda ref: ref.epoch) for pick in (max, min))
        known = (newest.file, oldest.epoch, [entry.since for entry in state.history])
        if self._layouts.get(place, (None,))[0] != known:
            layout = layout_of(segments, state)
            before = self._layouts.get(place)
            # An equal layout stays the same object, and segments that were opened with it stay open.
            is_same = before is not None and before[1] == state.history and is_alike(before[2], layout)
            self._layouts[place] = (known, state.history, before[2] if before is not None and is_same else layout)
        return self._layouts[place][2]


class JobView:
    """See `millstream.query.open`."""

    def __init__(
        self,
        reader: JobReader,
        job: str,
        job_id: str,
        *,
        follow: bool = True,
        cache_folder: Path | None = None,
        clock: Callable[[], int],
        sleep: Callable[[float], None] = system_time.sleep,
        allow_undeclared: bool = False,
        functions: Mapping[str, Any] | None = None,
        unpickle: Callable[[bytes], Any] | None = None,
        maps: bool = True,
    ) -> None:
        self.job, self.job_id = job, job_id
        self._reader, self._store, self._where = reader, reader.store, reader.name.store
        self._log = ManifestLog(reader.store)
        self._follows, self._clock, self._sleep = follow, clock, sleep
        self._allow_undeclared = allow_undeclared
        self._functions = dict(functions or {})
        self._open_pickle = unpickle or refuse_pickle
        self._tables = _Tables(reader.store, cache_folder, maps)
        self._newest: EpochView | None = None
        self._looked_s = float("-inf")
        self._looking = threading.Lock()
        self._manifests = ListedFolder()

    @property
    def store(self) -> Store:
        """The job's store."""
        return self._store

    @property
    def allows_undeclared(self) -> bool:
        """Whether states without a queryable name may be asked for."""
        return self._allow_undeclared

    def speak_of(self, name: str) -> None:
        """How errors call the job from now on: who serves it to strangers does not tell where its store is."""
        self._where = name

    def touch_ahead(self, bytes_max: int) -> None:
        """Check what is new in a state, up to so many bytes, before the epoch is shown, not when it is first asked for:
        newer epochs are seen some milliseconds later, and no question waits."""
        self._tables.touched_bytes_max = bytes_max

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
            if self._manifests.is_unchanged():  # one look at a folder's time, in place of a listing
                self._looked_s = system_time.monotonic()
                return current
            if not self._looking.acquire(blocking=False):
                return current  # somebody looks already
        else:
            self._looking.acquire()
        try:
            return self._look()
        finally:
            self._looking.release()

    def at_hand(self, is_looked_for: bool = False) -> EpochView | None:
        """The newest epoch as far as it is known, for who must not wait; None unless it was looked for a moment ago, or
        is being looked for."""
        if self.looked_ms_ago() >= POLL_MS and self._manifests.is_unchanged():
            self._looked_s = system_time.monotonic()
        if not is_looked_for and self.looked_ms_ago() >= AT_HAND_MS and not self._looking.locked():
            return None
        return self._newest

    def looked_ms_ago(self) -> float:
        """How long ago a newer epoch was looked for. From `POLL_MS` on, `newest` does so again."""
        return (system_time.monotonic() - self._looked_s) * 1000 if self._follows else 0.0

    def look_again(self) -> None:
        """Somebody knows of a newer epoch: the next question looks for it, however short ago the last one did."""
        self._looked_s = float("-inf")

    def _look(self) -> EpochView:
        current = self._newest
        # Noted before looking: an epoch that is told of meanwhile may not have been seen, and is looked for again.
        self._looked_s = system_time.monotonic()
        try:
            self._note_listing()
            epochs = self._log.epochs()
            if current is None or epochs[-1:] > [current.epoch]:
                self._newest = current = self._opened_newest(0 if current is None else current.epoch)
        except StoreDamagedError:
            self.look_again()
            self._manifests.note(None, 0)  # what was listed could not be read, so it counts for nothing
            raise
        except StoreError:
            # A store that cannot be reached now: what there is stays right, and tells its age.
            if current is None:
                raise
        assert current is not None
        return current

    def _note_listing(self) -> None:
        if self._newest is not None and self._follows:
            path = self._store.local_path(manifest_name(self._newest.epoch))
            self._manifests.note(None if path is None else path.parent, self._clock())

    def _opened_newest(self, after: int) -> EpochView:
        """The newest epoch with all its segments open. One that is collected meanwhile has a newer one."""
        for attempt in range(_TRIES):
            manifest = self._log.newest()
            if manifest is None or manifest.epoch <= after:
                if self._newest is not None:
                    return self._newest
                raise NoEpochError(f"{self._where} has no epoch yet: the job has committed nothing. Ask again later.")
            try:
                return self._view(manifest)
            except StoreDamagedError:
                if attempt == _TRIES - 1 or self._log.epochs()[-1:] <= [manifest.epoch]:
                    raise
        raise AssertionError("unreachable")

    def follow(self) -> Iterator[EpochView]:
        """The newest epoch, and each newer one once it is committed; one that is passed meanwhile is left out. Ends
        when the job has come to the end of its input."""
        seen = 0
        while True:
            if self._log.epochs() or self._newest is not None:
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
                    f"{self._where} has not committed epoch {epoch} within {timeout_s:g} s: it has {at}. Wait longer, "
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
        try:
            snapshot = self._reader.at(epoch=epoch)
        except StoreError:
            self._check_retained(epoch)  # it may have been collected just now
            raise
        try:
            return self._view(snapshot.manifest, self._tables.past(), snapshot.close)
        except BaseException:
            snapshot.close()
            raise

    def _epoch_at(self, time: dt.datetime | int) -> int:
        found = self._reader.epoch_at(time)
        if found is not None:
            return found
        epochs = self._log.epochs()
        if not epochs and self._newest is None:
            raise NoEpochError(f"{self._where} has no epoch yet: the job has committed nothing. Ask again later.")
        oldest = f"the oldest is {epochs[0]}" if epochs else "it has none any more"
        raise EpochGoneError(
            f"{self._where} retains no epoch that was committed at or before {time}; {oldest}. {_KEEP}"
        )

    def _check_retained(self, epoch: int | None) -> None:
        epochs = self._log.epochs()
        if epoch is None or epoch in epochs:
            return
        newest = max([0 if self._newest is None else self._newest.epoch, *epochs])
        if epoch > newest:
            have = f"the newest is {newest}" if newest else "it has none yet"
            raise NoEpochError(f"{self._where} has no epoch {epoch} yet: {have}. Use wait_for(epoch, timeout_s).")
        have = ", ".join(map(str, epochs)) or "none"
        raise EpochGoneError(f"{self._where} retains epoch {epoch} no more; it has {have}. {_KEEP}")

    def series(self, state: Asked, key: Any) -> list[tuple[int, int, Any]]:
        """(epoch, when it was committed, the answer) for a key at every retained epoch, oldest first. Epochs in which
        the state was not declared yet are left out."""
        self.look_again()
        newest = self.newest()  # what is newer is not known to be durable yet
        newest.state(state)  # says what there is, if it is none of them
        # An epoch shares most segments with the one before it: they are opened once. None is leased: one that is
        # collected meanwhile belongs to the series no more.
        found, past = [], self._tables.past()
        for epoch in self._log.epochs():
            manifest = self._log.read_if_there(epoch) if epoch <= newest.epoch else None
            if manifest is None:
                continue
            try:
                view = self._view(manifest, past)
                if view.has(state):
                    found.append((view.epoch, view.committed_ms, view.answer(state, key)))
            except StoreDamagedError:
                if epoch in self._log.epochs():
                    raise
        return found

    # --- making views -------------------------------------------------------------------------------------------

    def _view(
        self, manifest: Manifest, past: OpenSegments | None = None, close: Callable[[], None] | None = None
    ) -> EpochView:
        states = locations_of(manifest, self._allow_undeclared)
        return EpochView(
            manifest,
            states,
            lambda place: self._reads(place, past),
            self._where,
            is_opened=past is None,
            allow_undeclared=self._allow_undeclared,
            close=close,
        )

    def _reads(self, place: Located, past: OpenSegments | None) -> Reads:
        function = self._functions.get(place.info.name or "")
        result_of = None if function is None else getattr(function, "get_result", function)
        view = self._tables.view(place.stored, past)
        if place.info.kind != "window":
            return KeyedReads(place, view, result_of, self._open_pickle)
        merges = place.declared is not None and place.declared.merges
        homes = self._tables.view(place.homes, past) if merges else None
        return WindowReads(place, view, homes, result_of, self._open_pickle)
