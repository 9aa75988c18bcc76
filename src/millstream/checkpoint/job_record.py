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

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.names import MANIFESTS, epoch_of_manifest, job_name
from millstream.storage.store import Store

__all__ = ["FORMAT", "JobRecord", "check_owner", "claim", "mark_dropped", "read", "renew"]

FORMAT = 2
_KIND = "millstream-job-"
_PAST_IDS_MAX = 100
_OF_FORMAT_2 = ("bases", "begins", "program", "past_ids", "is_dropped")


@dataclass(frozen=True)
class JobRecord:
    """The owner of a store. `begins`: the snapshot it starts from, while it has no epoch of its own. `program`: what
    its program calls itself, where that is not `job`. `past_ids`: what the job was called when it wrote some of the
    epochs that are there. `is_dropped`: the job was removed, and what is left is for forks and savepoints of it."""

    job: str
    job_id: str
    created_ms: int
    bases: tuple[str, ...] = ()
    begins: str = ""
    program: str = ""
    past_ids: tuple[str, ...] = ()
    is_dropped: bool = field(default=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which a program may come: no program has that of a job that was dropped."""
        if self.is_dropped:
            return ("",)
        return (self.job, self.program) if self.program else (self.job,)

    @property
    def ids(self) -> tuple[str, ...]:
        """All that the job was called by."""
        return (self.job_id, *self.past_ids)

    def is_still(self, job_id: str) -> bool:
        """Whether the job that was once called so is here, and was not dropped."""
        return not self.is_dropped and job_id in self.ids


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
    JobRecord(job='clicks', job_id='j1', created_ms=5, bases=(), begins='', program='', past_ids=())
    >>> claim(store, "clicks", job_id="j2", now_ms=6).job_id
    'j1'
    >>> claim(store, "orders", job_id="j3", now_ms=7)
    Traceback (most recent call last):
    millstream.errors.StoreError: Store memory://doctest-claim belongs to job 'clicks', not to 'orders'. \
Give another --store, or name the job 'clicks' to go on with it.
    """
    record = JobRecord(job, job_id, now_ms, bases, begins, program)
    if not store.exists(job_name()):
        _check_unclaimed(store)
        if store.create(job_name(), _encode(record)):
            return record
    owner = read(store)
    if owner is None:
        raise StoreError(f"Store {store.url}: {job_name()} vanished while it was read. Start the job again.")
    if owner.is_dropped:
        raise StoreError(
            f"Store {store.url} is what is left of job {owner.job!r}, which was dropped: its forks or savepoints need "
            "it. Give another --store."
        )
    if job not in owner.names:
        either = " or ".join(map(repr, owner.names))
        raise StoreError(
            f"Store {store.url} belongs to job {owner.job!r}, not to {job!r}. "
            f"Give another --store, or name the job {either} to go on with it."
        )
    return owner


def _check_unclaimed(store: Store) -> None:
    """A store with epochs and no record is damaged, or a savepoint: neither is a place to begin a job in."""
    if any(epoch_of_manifest(name) is not None for name in store.list(MANIFESTS)):
        # A driver that has just claimed the store may have committed since we looked.
        if store.exists(job_name()):
            return
        raise StoreDamagedError(
            f"Store {store.url} has epochs, and no {job_name()} that says whose they are. Restore it from a copy, or, "
            "to start from a savepoint, give another --store, and --from with this one."
        )


def check_owner(store: Store, record: JobRecord, job_id: str, epoch: int) -> None:
    """Refuse a store whose newest epoch is another job's than its record says; StoreDamagedError says so.

    >>> from millstream.storage import open_store
    >>> store, record = open_store("memory://doctest-owner"), JobRecord("clicks", "j1", 5)
    >>> check_owner(store, record, "j1", epoch=7)
    >>> check_owner(store, record, "j2", epoch=7)
    Traceback (most recent call last):
    millstream.errors.StoreDamagedError: Store memory://doctest-owner: job.json is of job 'clicks' with id j1, and \
epoch 7 was committed by a job with id j2. Was a file copied from another store? Put the right one back.
    """
    if job_id not in (record.job_id, *record.past_ids):
        raise StoreDamagedError(
            f"Store {store.url}: {job_name()} is of job {record.job!r} with id {record.job_id}, and epoch {epoch} was "
            f"committed by a job with id {job_id}. Was a file copied from another store? Put the right one back."
        )


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
        # Epochs that are held stay, and were committed under the id that the job had.
        past_ids = (*record.past_ids, record.job_id)[-_PAST_IDS_MAX:]
        store.put(job_name(), _encode(replace(record, job_id=job_id, past_ids=past_ids)))


def mark_dropped(store: Store) -> None:
    """Let no job go on in `store` any more."""
    record = read(store)
    if record is not None:
        store.put(job_name(), _encode(replace(record, is_dropped=True)))


def _encode(record: JobRecord) -> bytes:
    fields = asdict(record)
    more = {name: value for name in _OF_FORMAT_2 if (value := fields.pop(name))}
    document = {"format": f"{_KIND}{FORMAT if more else 1}", **fields, **more}
    return (json.dumps({**document, "checksum": _checksum(document)}, indent=1) + "\n").encode()


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _decode(data: bytes, name: str) -> JobRecord:
    try:
        document: dict[str, Any] = json.loads(data)
        checksum = document.pop("checksum", None)  # records of the first Millstreams have none
        is_whole = checksum is None or checksum == _checksum(document)
        kind = document.pop("format")
        version = int(kind.removeprefix(_KIND))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(name, error) from error
    if version > FORMAT:
        raise StoreDamagedError(
            f"{name} has format {version}, this Millstream reads up to {FORMAT}: it was written by a newer "
            f"Millstream. Upgrade Millstream, then start the job again."
        )
    if not is_whole:
        raise _damaged(name, ValueError("its checksum does not match its content"))
    try:
        return JobRecord(
            str(document["job"]),
            str(document["job_id"]),
            int(document["created_ms"]),
            tuple(map(str, document.get("bases", ()))),
            str(document.get("begins", "")),
            str(document.get("program", "")),
            tuple(map(str, document.get("past_ids", ()))),
            bool(document.get("is_dropped", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> StoreDamagedError:
    return StoreDamagedError(
        f"{name} is damaged: it does not say which job the store belongs to ({type(error).__name__}: {error}). "
        f"Nothing was overwritten; restore the file from a copy."
    )
