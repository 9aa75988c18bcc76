"""The jobs under a folder, read from their stores.

A store records a job's progress, and how its last run ended (`checkpoint/run_end.py`). A lock detects whether a
driver runs the job now: the system releases it with the driver (`storage/log_lock.py`), whereas a file would be stale
after a crash. Without locks, as in an object store, the driver's lease names the process: if it ran on this machine,
its state is known. Otherwise the job's state is unknown: the status is as of the newest epoch, and is shown with the
time of its commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.checkpoint.driver_lease import DriverLease, read_driver_lease
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.run_end import RunEnd, read_run_end
from millstream.checkpoint.stalled_watermarks import awaited_names
from millstream.errors import MillstreamError, StoreError
from millstream.storage.layered_stores import ReadOnlyStore
from millstream.storage.log_lock import is_anybody_running
from millstream.storage.names import LOGS, job_name
from millstream.storage.objects import ObjectStore
from millstream.storage.process_identity import has_surely_ended, is_of_this_machine
from millstream.storage.store import Store, open_store, shown_address

__all__ = ["CANCELED", "DAMAGED", "DEFAULT_ROOT", "DROPPED", "FAILED", "INTERRUPTED", "ListedJob", "jobs", "records_of"]

DEFAULT_ROOT = ".millstream"
NO_EPOCH = "NO EPOCH YET"
DAMAGED = "DAMAGED"
INTERRUPTED = "INTERRUPTED"
STARTING = "STARTING"
DROPPED = "DROPPED"
FAILED, CANCELED = "FAILED", "CANCELED"


@dataclass(frozen=True)
class ListedJob:
    """A job by its newest manifest. `last_epoch_ms` is the commit time of the newest epoch, None if there is none.
    `is_alive`: whether a driver runs it; None if unknown. `driver`: the holder of its lease, whether alive or not.

    `status` is the manifest's, but FAILED or CANCELED if the last run ended so, with the reason in `problem`;
    INTERRUPTED if the manifest has RUNNING, but no driver runs the job or has ended it (its process was killed); and
    STARTING if the job had ended and a driver runs it again. Before the first epoch it is STARTING while a driver runs
    it, INTERRUPTED if a driver ran it before, else NO EPOCH YET. DROPPED: the job no longer exists, and its store is
    retained for its forks and savepoints.
    """

    name: str
    id: str
    status: str
    epoch: int
    records: int
    last_epoch_ms: int | None
    store: str
    problem: str = ""
    is_alive: bool | None = None
    driver: str = ""
    time_awaits: tuple[str, ...] = ()


def jobs(root: str | None = None) -> list[ListedJob]:
    """The jobs under `root` (a job's store, or a folder of stores; `./.millstream` by default), most recent first.

    >>> jobs("memory://doctest-no-job")
    Traceback (most recent call last):
    millstream.errors.StoreError: memory://doctest-no-job holds no job. Give the store of one job, or a folder of \
stores
    """
    listed_jobs = [_listed(store, shown) for store, shown in _stores(root)]
    return sorted(listed_jobs, key=lambda job: (-(job.last_epoch_ms or 0), job.store))


def _stores(root: str | None) -> Iterator[tuple[Store, str]]:
    where = shown_address(root or DEFAULT_ROOT)
    if "://" in where:
        yield from _stores_at(where)
        return
    folder = Path(where)
    if not folder.is_dir():
        if root is None:
            return
        raise StoreError(f"there is no folder {where}. Give the store of a job, or a folder of stores")
    places = [folder] if (folder / job_name()).is_file() else sorted(p for p in folder.iterdir() if p.is_dir())
    for place in places:
        if (place / job_name()).is_file():
            yield ReadOnlyStore(open_store(str(place))), str(place)


def _stores_at(address: str) -> Iterator[tuple[Store, str]]:
    """The store at an address or, in an object store, the stores in the folders directly below it."""
    store = open_store(address)
    if store.exists(job_name()):
        yield ReadOnlyStore(store), address
        return
    base, mark, options = address.partition("?")
    folders = store.folders() if isinstance(store, ObjectStore) else ()
    places = [f"{base.rstrip('/')}/{folder}{mark}{options}" for folder in folders]
    stores = [(open_store(place), place) for place in places]
    job_stores = [(ReadOnlyStore(below), place) for below, place in stores if below.exists(job_name())]
    if not job_stores:
        raise StoreError(f"{address} holds no job. Give the store of one job, or a folder of stores")
    yield from job_stores


def _listed(store: Store, shown: str) -> ListedJob:
    """The entry of a store's job; a damaged store is listed too, with its problem."""
    try:
        record = read_job_record(store)
    except MillstreamError as error:
        return ListedJob("?", "?", DAMAGED, 0, 0, None, shown, error.message)
    assert record is not None, "its job.json has just been read"
    try:
        newest = ManifestLog(store).newest()
    except MillstreamError as error:
        return ListedJob(record.job, record.job_id, DAMAGED, 0, 0, None, shown, error.message)
    holder, end = _holder(store), _end(store)
    is_alive = _is_alive(store, holder)
    driver = "" if holder is None or is_alive is False else str(holder)
    if newest is None:
        was_run = bool(store.list(LOGS))  # a fork that was never started has no log
        status = STARTING if is_alive else INTERRUPTED if is_alive is False and was_run else NO_EPOCH
        if end is not None and not is_alive:
            status = end.status
        reason = end.reason if end is not None and status == end.status else ""
        return ListedJob(record.job, record.job_id, status, 0, 0, None, shown, reason, is_alive, driver)
    status = DROPPED if record.is_dropped else _status(newest.status, is_alive, end)
    return ListedJob(
        record.job,
        record.job_id,
        status,
        newest.epoch,
        records_of(newest),
        newest.created_ms,
        shown,
        end.reason if end is not None and status == end.status else "",
        is_alive,
        driver,
        awaited_names(newest),
    )


def _holder(store: Store) -> DriverLease | None:
    try:
        lease = read_driver_lease(store)
    except StoreError:
        return None
    return lease if isinstance(lease, DriverLease) else None


def _end(store: Store) -> RunEnd | None:
    try:
        return read_run_end(store)
    except StoreError:
        return None


def _is_alive(store: Store, holder: DriverLease | None) -> bool | None:
    """Whether a driver runs the job; None if unknown."""
    is_locked = is_anybody_running(store)
    if is_locked is not None:
        return is_locked
    if holder is not None and has_surely_ended(holder.process):
        return False
    return True if holder is not None and is_of_this_machine(holder.process) else None


def _status(last: str, is_alive: bool | None, end: RunEnd | None) -> str:
    """The status of a job whose newest manifest has the status `last`."""
    if end is not None and not is_alive and end.status in (FAILED, CANCELED):
        return end.status
    if last == "RUNNING" and is_alive is False:
        return INTERRUPTED
    return STARTING if last == "SUSPENDED" and is_alive else last


def records_of(manifest: Manifest) -> int:
    """The number of records that the job's sources have emitted."""
    counters: Any = manifest.counters.get("operators")
    counted: Mapping[str, Any] = counters or {}
    return sum(int(counted.get(uid, {}).get("out", 0)) for uid in manifest.sources)
