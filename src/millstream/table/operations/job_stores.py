"""Chooses the stores of a program's jobs, if the program starts several.

The first job uses the program's configured store. Every other job has a store next to it, named after the job. A store
records its owner (`checkpoint/job_record.py`), which is checked first, so a program finds the store of each of its
INSERTs even if their order changes or another is added before them.

A rebuilt table starts in a separate store, and the previous store is removed. Marker files next to the stores identify
the newest, so that a later session continues with it. `rebuilds` counts the rebuilds, from 0.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection

from millstream.checkpoint import job_record
from millstream.errors import StoreError
from millstream.storage.shared_names import REBUILDS, rebuild_name, rebuild_of
from millstream.storage.store import open_store

__all__ = [
    "free_rebuild",
    "markers_of",
    "newest_rebuild",
    "note_rebuild",
    "passing_store",
    "rebuilt_store",
    "store_of_job",
]

_SLUG_CHARS_MAX = 40


def store_of_job(program_store: str, job: str, others: Collection[str]) -> str:
    """The store of the job with this name. `others`: the stores of jobs that the program has already started."""
    digest = _digest(job)
    own = _next_to(program_store, f"{_slug(job)}-{digest}")
    number = 1
    while own in others:  # jobs with the same name are distinguished by their order
        number += 1
        own = _next_to(program_store, f"{_slug(job)}-{digest}-{number}")
    # Older versions numbered all jobs after the first.
    numbered = _next_to(program_store, str(len(others) + 1))
    for url in (program_store, own, numbered):
        if url not in others and job in _owners(url):
            return url
    return program_store if program_store not in others and not _owners(program_store) else own


def passing_store(program_store: str) -> str:
    """The store of a query that is never restored. It is next to the program's store, where tasks can reach it."""
    return _next_to(program_store, f"query-{secrets.token_hex(4)}")


def rebuilt_store(program_store: str, job: str, rebuilds: int) -> str:
    """The store of a table's job after its `rebuilds`th rebuild (at least 1)."""
    name = f"{job}, made anew {rebuilds}"
    return _next_to(program_store, f"{_slug(name)}-{_digest(name)}")


def newest_rebuild(program_store: str, job: str) -> int:
    """The number of rebuilds of this job's table, by this session or another, which identifies its current store."""
    numbers = [rebuild_of(name) or 0 for name in open_store(markers_of(program_store, job)).list(REBUILDS)]
    newest = max(numbers, default=0)
    return newest if newest and job in _owners(rebuilt_store(program_store, job, newest)) else 0


def free_rebuild(program_store: str, job: str, rebuilds: int) -> int:
    """The first number from `rebuilds` on with an unowned store, so that a rebuild starts empty."""
    while _owners(rebuilt_store(program_store, job, rebuilds)):
        rebuilds += 1
    return rebuilds


def note_rebuild(program_store: str, job: str, rebuilds: int) -> None:
    """Makes the store with this number current. After a crash between the steps the highest number is current."""
    markers = open_store(markers_of(program_store, job))
    before = markers.list(REBUILDS)
    markers.put(rebuild_name(rebuilds), b"")
    markers.delete_many([name for name in before if name != rebuild_name(rebuilds)])


def markers_of(program_store: str, job: str) -> str:
    """The folder of the markers for a table's current store. It is outside the stores, because each of them may be
    removed."""
    return _next_to(program_store, f"{_slug(job)}-{_digest(job)}-rebuilt")


def _digest(job: str) -> str:
    return hashlib.sha256(job.encode()).hexdigest()[:6]


def _next_to(program_store: str, ending: str) -> str:
    return f"{program_store.rstrip('/')}-{ending}"


def _slug(job: str) -> str:
    """A short name from the last parts of the table names."""
    names = (name.rpartition(".")[2] for name in job.removeprefix("insert-into_").split(","))
    return re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower()).strip("-")[:_SLUG_CHARS_MAX] or "job"


def _owners(url: str) -> tuple[str, ...]:
    try:
        record = job_record.read(open_store(url))
    except StoreError:  # the job itself reports it, with advice
        return ()
    return () if record is None else record.names
