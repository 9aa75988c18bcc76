"""Resolves jobs on the command line: by their store, or by name or id below the root folder.

    jobs/clicks, s3://bucket/clicks    a store
    clicks                             the job of that name below ./.millstream (or --root)
    3f9a                               the job whose id begins with this
    clicks@1200, clicks@before         an epoch or a savepoint of it

An ambiguous name is rejected, with the stores of its jobs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.savepoints import open_job_store
from millstream.checkpoint.snapshot_names import SnapshotName, parse_snapshot_name
from millstream.errors import StoreError
from millstream.state_reader.stored_jobs import DEFAULT_ROOT, ListedJob, jobs
from millstream.storage.names import job_name
from millstream.storage.store import Store, shown_address

__all__ = ["find_snapshot_name", "find_store", "open_store_of_job", "short_address"]


_ADVICE = "Use the folder or address of its store, or find it with `millstream list`"


def find_store(text: str, root: str | None = None) -> str:
    """The store of the job with this name; raises StoreError with the existing jobs."""
    if not text.strip():
        # Every id begins with "": an unset shell variable would stop or cancel the only job.
        raise StoreError(f"{text!r} names no job. {_ADVICE}")
    if "://" in text or (Path(text) / job_name()).is_file():
        return text
    where = root or DEFAULT_ROOT
    all_jobs = jobs(root)
    matches = [job for job in all_jobs if job.name == text] or [job for job in all_jobs if job.id.startswith(text)]
    if len(matches) == 1:
        return matches[0].store
    if matches:
        raise StoreError(f"{len(matches)} jobs are named {text!r}. Use the store of one: {_stores(matches)}")
    if not all_jobs:
        raise StoreError(f"{text!r} is neither the store of a job nor a job below {where}, which has none. {_ADVICE}")
    raise StoreError(
        f"{text!r} is neither the store of a job nor a job below {where}. There are: {_names(all_jobs)}. {_ADVICE}"
    )


def open_store_of_job(text: str, root: str | None = None) -> Store:
    """The store of the job with this name, opened, on top of the stores it shares files with."""
    store = open_job_store(find_store(text, root))
    if read_job_record(store) is None:
        raise StoreError(f"{text} holds no job. {_ADVICE}")
    return store


def find_snapshot_name(text: str, root: str | None = None) -> SnapshotName:
    """The snapshot with this name, with its store as a path or an address."""
    name = parse_snapshot_name(text)
    if Path(name.store).is_dir():
        return name  # a store, a savepoint's folder, or anything else: its content decides
    return replace(name, store=find_store(name.store, root))


def short_address(url: str) -> str:
    """A store, or a snapshot in one, in short form for this folder.

    >>> short_address("file:///jobs/clicks@7"), short_address("s3://bucket/clicks")
    ('/jobs/clicks@7', 's3://bucket/clicks')
    """
    return shown_address(url).removeprefix(f"{Path.cwd()}/")


def _stores(matches: list[ListedJob]) -> str:
    return ", ".join(job.store for job in matches)


def _names(all_jobs: list[ListedJob]) -> str:
    return ", ".join(sorted({job.name for job in all_jobs}))
