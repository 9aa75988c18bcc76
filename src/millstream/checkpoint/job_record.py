"""`job.json`: which job a store belongs to. Written once, by the first driver that comes.

A store holds one job. Two jobs in one store would take each other's manifests for their own, so the second is refused
before it reads or writes anything else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.names import job_name
from millstream.storage.store import Store

__all__ = ["FORMAT", "JobRecord", "claim", "read"]

FORMAT = 1
_KIND = "millstream-job-"


@dataclass(frozen=True)
class JobRecord:
    """The owner of a store."""

    job: str
    job_id: str
    created_ms: int


def claim(store: Store, job: str, *, job_id: str, now_ms: int) -> JobRecord:
    """Make `store` this job's, or find that it already is; StoreError when it is another job's.

    `job_id` and `now_ms` are used only when the store is new; the record that stands there wins.

    >>> from millstream.storage import open_store
    >>> store = open_store("memory://doctest-claim")
    >>> claim(store, "clicks", job_id="j1", now_ms=5)
    JobRecord(job='clicks', job_id='j1', created_ms=5)
    >>> claim(store, "clicks", job_id="j2", now_ms=6).job_id
    'j1'
    >>> claim(store, "orders", job_id="j3", now_ms=7)
    Traceback (most recent call last):
    millstream.errors.StoreError: Store memory://doctest-claim belongs to job 'clicks', not to 'orders'. \
Give another --store, or name the job 'clicks' to go on with it.
    """
    mine = JobRecord(job, job_id, now_ms)
    if not store.exists(job_name()) and store.create(job_name(), _encode(mine)):
        return mine
    owner = read(store)
    if owner is None:
        raise StoreError(f"Store {store.url}: {job_name()} vanished while it was read. Start the job again.")
    if owner.job != job:
        raise StoreError(
            f"Store {store.url} belongs to job {owner.job!r}, not to {job!r}. "
            f"Give another --store, or name the job {owner.job!r} to go on with it."
        )
    return owner


def read(store: Store) -> JobRecord | None:
    """The owner of `store`, or None when no job has claimed it; StoreDamagedError when that cannot be told."""
    if not store.exists(job_name()):
        return None
    # Its writer may have died between giving the name and syncing it.
    store.settle(job_name())
    return _decode(store.get(job_name()), f"{job_name()} of store {store.url}")


def _encode(record: JobRecord) -> bytes:
    return (json.dumps({"format": f"{_KIND}{FORMAT}", **asdict(record)}, indent=1) + "\n").encode()


def _decode(data: bytes, name: str) -> JobRecord:
    try:
        document: dict[str, Any] = json.loads(data)
        kind = document.pop("format")
        version = int(kind.removeprefix(_KIND))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(name, error) from error
    if version > FORMAT:
        raise StoreDamagedError(
            f"{name} has format {version}, this Millstream reads up to {FORMAT}: it was written by a newer "
            f"Millstream. Upgrade Millstream, then start the job again."
        )
    try:
        return JobRecord(str(document["job"]), str(document["job_id"]), int(document["created_ms"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> StoreDamagedError:
    return StoreDamagedError(
        f"{name} is damaged: it does not say which job the store belongs to ({type(error).__name__}: {error}). "
        f"Nothing was overwritten; restore the file from a copy."
    )
