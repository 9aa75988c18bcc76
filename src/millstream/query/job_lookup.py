"""Finds a job by its store or name, and opens it for queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.snapshot_names import SnapshotName
from millstream.errors import StoreDamagedError, StoreError
from millstream.query.epoch_opener import EpochOpener
from millstream.query.errors import UnknownJobError
from millstream.query.job_view import JobView
from millstream.state_reader import job_reader
from millstream.state_reader.job_reader import JobReader
from millstream.state_reader.stored_jobs import DROPPED, jobs
from millstream.storage.names import job_name, savepoint_name
from millstream.storage.store import Store, is_object_address, open_store, shown_address

__all__ = ["open", "open_store_of_job"]


def open(
    store_url: str,
    job: str | None = None,
    *,
    follow: bool = True,
    cache_folder: str | Path | None = None,
    clock: Callable[[], int] = system_ms,
    allow_undeclared: bool = False,
    functions: Mapping[str, Any] | None = None,
    unpickle: Callable[[bytes], Any] | None = None,
    read_only: bool = False,
) -> JobView:
    """Opens a job by its store, or by its name in a folder of stores; raises UnknownJobError with the existing jobs.

    `follow`            newer epochs are used as they are committed; otherwise `newest` stays at the first one
    `cache_folder`      where files of a remote store are cached; without it, they are held in memory
    `clock`             milliseconds since 1970, for leases
    `allow_undeclared`  undeclared states may be queried by (operator uid, state name)
    `functions`         an `AggregateFunction` for the name of an aggregating state, or of windows with one of the
                        program's own: answers are its results. Without it, they are accumulators
    `unpickle`          a function for values that were stored without a declared type; it runs code from the store:
                        `pickle.loads`, if you trust everybody who can write to it. Without it, such states are refused
    `read_only`         nothing is written to the store, not even a lease for an older epoch: the job may remove the
                        epoch during a query, which is an error and never a wrong answer

    >>> open("memory://doctest-no-such-job-to-query")
    Traceback (most recent call last):
    millstream.query.errors.UnknownJobError: memory://doctest-no-such-job-to-query holds no job. Open the store of a \
job, or a folder of stores with the job's name.
    """
    reader = _reader(_store_of(store_url, job), read_only)
    if reader.name.at is not None:
        at, place = reader.name.at, reader.name.store
        how = f"at(epoch={at})" if isinstance(at, int) else "at(epoch=…); `millstream list` shows epochs of savepoints"
        raise UnknownJobError(
            f"{store_url} names a snapshot, and a job that is queried answers from its newest epoch. Open {place!r}, "
            f"and query the snapshot by {how}"
        )
    name, job_id = _name_and_id(reader)
    if job is not None and job not in (name, job_id):
        raise UnknownJobError(f"{store_url} holds the job '{name}', not '{job}'. Open its own store, or use that name.")
    folder = None if cache_folder is None else Path(cache_folder)
    opener = EpochOpener(
        reader.store,
        reader.name.store,
        cache_folder=folder,
        allow_undeclared=allow_undeclared,
        functions=functions,
        unpickle=unpickle,
    )
    reader = JobReader(reader.store, reader.name, folder, clock)
    return JobView(reader, name, job_id, opener, follow=follow, clock=clock)


def open_store_of_job(store: Store, clock: Callable[[], int], *, allow_undeclared: bool = False) -> JobView:
    """The job of an open store, in the process that runs it: files are read and not memory-mapped, because truncating a
    mapped file would end the job with this process."""
    reader = JobReader(store, SnapshotName(shown_address(store.url)), None, clock)
    opener = EpochOpener(store, reader.name.store, maps=False, allow_undeclared=allow_undeclared)
    return JobView(reader, *_name_and_id(reader), opener, clock=clock)


def _name_and_id(reader: JobReader) -> tuple[str, str]:
    """The name and the id of the job."""
    record = read_job_record(reader.store)
    if record is not None:
        return record.job, record.job_id
    with reader.at() as snapshot:
        return snapshot.manifest.job, snapshot.manifest.job_id


def _reader(url: str, read_only: bool) -> JobReader:
    try:
        return job_reader.open(url, read_only=read_only)
    except StoreDamagedError:
        raise
    except StoreError as error:
        raise UnknownJobError(
            f"{url} holds no job. Open the store of a job, or a folder of stores with the job's name."
        ) from error


def _store_of(store_url: str, job: str | None) -> str:
    """The address of the job's own store."""
    store_url = shown_address(store_url)
    is_object = is_object_address(store_url)
    # For the store of one job in a bucket, its parent folders are not searched.
    if (is_object and job is None) or not (is_object or Path(store_url).is_dir()):
        return store_url
    if any(open_store(store_url).exists(name) for name in (job_name(), savepoint_name())):
        return store_url
    listed = [stored for stored in jobs(store_url) if stored.status != DROPPED]
    matches = [stored for stored in listed if job in (stored.name, stored.id)] if job is not None else listed
    if len(matches) == 1:
        return matches[0].store
    have = ", ".join(f"'{stored.name}' ({stored.store})" for stored in listed) or "none"
    problem = "several jobs" if job is None and listed else f"no job '{job}'" if job is not None else "no job"
    if len(matches) > 1 and job is not None:
        problem = f"several jobs '{job}'"
    raise UnknownJobError(f"{store_url} holds {problem}; it holds: {have}. Open one store, or use its name or id.")
