"""Which store a job of a program goes into, where the program starts several.

The store that a program was given is its first job's. Every other job has one beside it, called after the job. A store
says whose it is (`checkpoint/job_record.py`), and that is asked first: the same program finds the store of each of its
INSERTs again when they stand in another order, or when one was added before them.

A table that is made anew begins in a store of its own, and the one before goes. Which is the newest is said beside
them, so that a later session goes on with it, and not with one that is gone: `rebuilds` counts them, from 0.
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
    "newest_rebuild",
    "note_rebuild",
    "passing_store",
    "rebuilt_store",
    "signs_of",
    "store_of_job",
]

_SLUG_CHARS_MAX = 40


def store_of_job(program_store: str, job: str, others: Collection[str]) -> str:
    """The store of the job of this name. `others`: those of the jobs that the program has started."""
    digest = _digest(job)
    own = _beside(program_store, f"{_slug(job)}-{digest}")
    number = 1
    while own in others:  # jobs of one name are told apart by their order
        number += 1
        own = _beside(program_store, f"{_slug(job)}-{digest}-{number}")
    # An older Millstream numbered all that came behind the first.
    numbered = _beside(program_store, str(len(others) + 1))
    for url in (program_store, own, numbered):
        if url not in others and job in _owners(url):
            return url
    return program_store if program_store not in others and not _owners(program_store) else own


def passing_store(program_store: str) -> str:
    """The store of a query that nobody goes on from: beside the program's, where tasks can reach it."""
    return _beside(program_store, f"query-{secrets.token_hex(4)}")


def rebuilt_store(program_store: str, job: str, rebuilds: int) -> str:
    """The store of the job of a table that was made anew so often, once at least."""
    name = f"{job}, made anew {rebuilds}"
    return _beside(program_store, f"{_slug(name)}-{_digest(name)}")


def newest_rebuild(program_store: str, job: str) -> int:
    """How often the table of this job was made anew, by this session or another: which of its stores counts."""
    numbers = [rebuild_of(name) or 0 for name in open_store(signs_of(program_store, job)).list(REBUILDS)]
    newest = max(numbers, default=0)
    return newest if newest and job in _owners(rebuilt_store(program_store, job, newest)) else 0


def free_rebuild(program_store: str, job: str, rebuilds: int) -> int:
    """The first number from `rebuilds` on whose store is nobody's: a table that is made anew finds nothing there."""
    while _owners(rebuilt_store(program_store, job, rebuilds)):
        rebuilds += 1
    return rebuilds


def note_rebuild(program_store: str, job: str, rebuilds: int) -> None:
    """From now on the store of this number counts. If this dies in between, the greater number does."""
    signs = open_store(signs_of(program_store, job))
    before = signs.list(REBUILDS)
    signs.put(rebuild_name(rebuilds), b"")
    signs.delete_many([name for name in before if name != rebuild_name(rebuilds)])


def signs_of(program_store: str, job: str) -> str:
    """Where it stands which store of a table's job counts: in none of them, for each of them may go."""
    return _beside(program_store, f"{_slug(job)}-{_digest(job)}-rebuilt")


def _digest(job: str) -> str:
    return hashlib.sha256(job.encode()).hexdigest()[:6]


def _beside(program_store: str, ending: str) -> str:
    return f"{program_store.rstrip('/')}-{ending}"


def _slug(job: str) -> str:
    """The last parts of the names of the tables."""
    names = (name.rpartition(".")[2] for name in job.removeprefix("insert-into_").split(","))
    return re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower()).strip("-")[:_SLUG_CHARS_MAX] or "job"


def _owners(url: str) -> tuple[str, ...]:
    try:
        record = job_record.read(open_store(url))
    except StoreError:  # said by the job itself, with what to do
        return ()
    return () if record is None else record.names
