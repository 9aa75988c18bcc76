"""`job.json`: which job a store belongs to. Written once, by the first driver that comes; only a job that removes its
epochs gives it another id.

A store holds one job. Two jobs in one store would take each other's manifests for their own, so the second is refused
before it reads or writes anything else. A job that was started from a snapshot of another one shares files with it:
its record names the stores they lie in (`bases`, nearest first) and the snapshot it begins with. Such a record has
format 2, so that a Millstream that knows nothing of it does not look for the files in vain.

A fork has a name of its own, but its program may still call itself by the name it had: it is accepted under both, and
the job is called by the fork's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.names import job_name
from millstream.storage.store import Store

__all__ = ["FORMAT", "JobRecord", "claim", "read", "renew"]

FORMAT = 2
_KIND = "millstream-job-"
_OF_FORMAT_2 = ("bases", "begins", "program")


@dataclass(frozen=True)
class JobRecord:
    """The owner of a store. `begins`: the snapshot it starts from, while it has no epoch of its own. `program`: what
    its program calls itself, where that is not `job`."""

    job: str
    job_id: str
    created_ms: int
    bases: tuple[str, ...] = ()
    begins: str = ""
    program: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which a program may come."""
        return (self.job, self.program) if self.program else (self.job,)


def claim(
    store: Store,
    job: str,
    *,
    job_id: str,
    now_ms: int,
    bases: tuple[str, ...] = (),
    begins: str = "",
    program: str = "",
) -> JobRecord:
    """Make `store` this job's, or find that it already is; StoreError when it is another job's.

    The rest is used only when the store is new; the record that stands there wins.

    >>> from millstream.storage import open_store
    >>> store = open_store("memory://doctest-claim")
    >>> claim(store, "clicks", job_id="j1", now_ms=5)
    JobRecord(job='clicks', job_id='j1', created_ms=5, bases=(), begins='', program='')
    >>> claim(store, "clicks", job_id="j2", now_ms=6).job_id
    'j1'
    >>> claim(store, "orders", job_id="j3", now_ms=7)
    Traceback (most recent call last):
    millstream.errors.StoreError: Store memory://doctest-claim belongs to job 'clicks', not to 'orders'. \
Give another --store, or name the job 'clicks' to go on with it.
    """
    mine = JobRecord(job, job_id, now_ms, bases, begins, program)
    if not store.exists(job_name()) and store.create(job_name(), _encode(mine)):
        return mine
    owner = read(store)
    if owner is None:
        raise StoreError(f"Store {store.url}: {job_name()} vanished while it was read. Start the job again.")
    if job not in owner.names:
        either = " or ".join(map(repr, owner.names))
        raise StoreError(
            f"Store {store.url} belongs to job {owner.job!r}, not to {job!r}. "
            f"Give another --store, or name the job {either} to go on with it."
        )
    return owner


def read(store: Store) -> JobRecord | None:
    """The owner of `store`, or None when no job has claimed it; StoreDamagedError when that cannot be told."""
    if not store.exists(job_name()):
        return None
    # Its writer may have died between giving the name and syncing it.
    store.settle(job_name())
    return _decode(store.get(job_name()), f"{job_name()} of store {store.url}")


def renew(store: Store, job_id: str) -> None:
    """Give whoever goes on in `store` another id: its epochs are about to be removed, and their numbers come again.

    What was published is known by the job's id and the epoch's number (`CommitId`), and such a name is used once.
    """
    record = read(store)
    if record is not None:
        store.put(job_name(), _encode(replace(record, job_id=job_id)))


def _encode(record: JobRecord) -> bytes:
    fields = asdict(record)
    more = {name: value for name in _OF_FORMAT_2 if (value := fields.pop(name))}
    return (json.dumps({"format": f"{_KIND}{FORMAT if more else 1}", **fields, **more}, indent=1) + "\n").encode()


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
        return JobRecord(
            str(document["job"]),
            str(document["job_id"]),
            int(document["created_ms"]),
            tuple(map(str, document.get("bases", ()))),
            str(document.get("begins", "")),
            str(document.get("program", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> StoreDamagedError:
    return StoreDamagedError(
        f"{name} is damaged: it does not say which job the store belongs to ({type(error).__name__}: {error}). "
        f"Nothing was overwritten; restore the file from a copy."
    )
