"""Which store a job of a program goes into, where the program starts several.

The store that a program was given is its first job's. Every other job has one beside it, called after the job. A store
says whose it is (`checkpoint/job_record.py`), and that is asked first: the same program finds the store of each of its
INSERTs again when they stand in another order, or when one was added before them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection

from millstream.checkpoint import job_record
from millstream.errors import StoreError
from millstream.storage.store import open_store

__all__ = ["passing_store", "store_of_job"]

_SLUG_CHARS_MAX = 40


def store_of_job(program_store: str, job: str, others: Collection[str]) -> str:
    """The store of the job of this name. `others`: those of the jobs that the program has started."""
    digest = hashlib.sha256(job.encode()).hexdigest()[:6]
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
