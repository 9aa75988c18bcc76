"""Reads a job's history: its retained epochs, and a snapshot of any of them.

A reader only reads (and writes leases, which retain the epoch it reads; not even those if opened `read_only`). It needs
neither Spark nor the job's program, and works while the job runs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import ManifestLog, Status
from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.savepoints import epoch_ranges, open_job_store
from millstream.checkpoint.snapshot_names import SnapshotName, parse_snapshot_name
from millstream.errors import ProgramError, StoreError
from millstream.records.watermarks import shown_watermark
from millstream.state_reader.snapshot import Snapshot
from millstream.state_reader.stored_jobs import records_of
from millstream.storage.names import MANIFESTS, job_name, savepoint_name
from millstream.storage.store import Store

__all__ = ["EpochInfo", "JobReader", "open"]


@dataclass(frozen=True)
class EpochInfo:
    """A retained epoch: its commit time, the job's status, its event time, and the records read so far."""

    epoch: int
    committed_ms: int
    status: Status
    watermark: int | None
    records: int
    savepoints: tuple[str, ...] = ()


def open(url: str, *, cache_folder: str | Path | None = None, read_only: bool = False) -> JobReader:
    """The reader of a job's store, or of a savepoint's folder. `url` may name an epoch or a savepoint: `jobs/clicks@7`.

    `cache_folder`: where files of a remote store are cached; without it they are held in memory.
    `read_only`: nothing is written to the store, not even a lease: a running job may then remove an epoch while it is
    read, which is an error and never a wrong result.

    >>> open("memory://doctest-no-such-job")
    Traceback (most recent call last):
    millstream.errors.StoreError: memory://doctest-no-such-job contains neither a job nor a savepoint. Give a job's \
store, STORE@EPOCH, or a savepoint's folder.
    """
    name = parse_snapshot_name(url)
    store = open_job_store(name.store, read_only=read_only)
    if not store.exists(savepoint_name()) and not store.exists(job_name()):
        half = store.list(MANIFESTS)
        what = "is a savepoint that was not copied whole" if half else "contains neither a job nor a savepoint"
        raise StoreError(f"{name.store} {what}. Give a job's store, STORE@EPOCH, or a savepoint's folder.")
    return JobReader(store, name, Path(cache_folder) if cache_folder is not None else None)


class JobReader:
    """Reads the retained epochs of a job. See `open`."""

    def __init__(
        self,
        store: Store,
        name: SnapshotName,
        cache_folder: Path | None = None,
        now_ms: Callable[[], int] = system_ms,
    ) -> None:
        self.store, self.name = store, name
        self._cache_folder, self._now_ms = cache_folder, now_ms
        self._log = ManifestLog(store)

    def epochs(self) -> list[EpochInfo]:
        """The retained epochs, oldest first."""
        pins: dict[int, list[str]] = {}
        for pin in pins_of(self.store):
            pins.setdefault(pin.epoch, []).append(pin.name)
        manifests = [
            manifest for epoch in self._log.epochs() if (manifest := self._log.read_if_present(epoch)) is not None
        ]
        return [
            EpochInfo(
                m.epoch,
                m.created_ms,
                m.status,
                shown_watermark(m.watermark),
                records_of(m),
                tuple(pins.get(m.epoch, ())),
            )
            for m in manifests
        ]

    def at(
        self, *, epoch: int | None = None, time: dt.datetime | int | None = None, savepoint: str | None = None
    ) -> Snapshot:
        """A snapshot: of an epoch, of the newest epoch committed at or before a time (a datetime with a time zone, or
        milliseconds since 1970), or of a savepoint by name. By default the address's epoch, or the newest."""
        if sum(selectors is not None for selectors in (epoch, time, savepoint)) > 1:
            raise ProgramError("at: give one of epoch, time and savepoint")
        if epoch is None and time is None and savepoint is None:
            at = self.name.at
            epoch, savepoint = (at, None) if isinstance(at, int) else (None, at)
        if savepoint is not None:
            epoch = self._epoch_of_savepoint(savepoint)
        elif time is not None:
            epoch = self.epoch_at(time)
            if epoch is None:
                raise StoreError(f"{self.name.store} retains no epoch that was committed at or before {time}.")
        return self._snapshot(epoch)

    def _snapshot(self, epoch: int | None) -> Snapshot:
        """A snapshot of an epoch, or of the newest; retries if a running job removes the newest before it is leased."""
        for attempt in range(3):
            epochs = self._log.epochs()
            if not epochs:
                raise StoreError(f"{self.name.store} has no epoch yet: the job has committed nothing. Start it first.")
            chosen = epochs[-1] if epoch is None else epoch
            if chosen not in epochs:
                raise StoreError(
                    f"{self.name.store} has no epoch {chosen}; it retains {epoch_ranges(epochs)}. Keep more of "
                    "the past with millstream.retention.epochs, or save an epoch with `millstream savepoint`."
                )
            try:
                return Snapshot(
                    self.store, chosen, where=self.name.store, now_ms=self._now_ms, cache_folder=self._cache_folder
                )
            except StoreError:
                if epoch is not None or self._log.has(chosen) or attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _epoch_of_savepoint(self, savepoint: str) -> int:
        pins = {pin.name: pin.epoch for pin in pins_of(self.store)}
        if savepoint not in pins:
            have = ", ".join(sorted(pins)) or "none"
            raise StoreError(f"{self.name.store} has no savepoint '{savepoint}'; it has {have}.")
        return pins[savepoint]

    def epoch_at(self, time: dt.datetime | int) -> int | None:
        """The newest retained epoch that was committed at or before a time; None if there is none."""
        if isinstance(time, dt.datetime):
            if time.tzinfo is None:
                raise ProgramError(f"at: {time} has no time zone. Give one: datetime(..., tzinfo=UTC)")
            time_ms = int(time.timestamp() * 1000)
        else:
            time_ms = time
        before = [info.epoch for info in self.epochs() if info.committed_ms <= time_ms]
        return before[-1] if before else None
