"""`job.json`: the job that a store belongs to. The first driver writes it once; its id changes only when the job
removes its epochs.

A store holds one job. Two jobs in one store would confuse each other's manifests, so the second is rejected before it
reads or writes anything else. A job that was started from a snapshot of another one shares files with it: its record
names the stores of these files (`bases`, nearest first) and the initial snapshot. That record has format 2, so that an
older Millstream rejects it instead of missing the files.

A fork has its own name, but its program may still use the original name: both are accepted, and the job is reported
under the fork's name.
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
    """The owner of a store. `begins`: the snapshot it starts from, while it has no epochs. `program`: the
    name its program uses, if that is not `job`. `past_ids`: ids under which the job wrote some of the existing epochs.
    `is_dropped`: the job was removed; the remaining files are for its forks and savepoints."""

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
        """The names that a program may use; none for a dropped job."""
        if self.is_dropped:
            return ("",)
        return (self.job, self.program) if self.program else (self.job,)

    @property
    def ids(self) -> tuple[str, ...]:
        """The current and past ids of the job."""
        return (self.job_id, *self.past_ids)

    def is_still(self, job_id: str) -> bool:
        """Whether the store still holds the job with this (perhaps past) id, and it was not dropped."""
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
    """Claims `store` for this job, or returns the existing record; StoreError if another job owns it.

    The remaining arguments apply only to a new store; an existing record takes precedence.

    >>> from millstream.storage import open_store
    >>> store = open_store("memory://doctest-claim")
    >>> claim(store, "clicks", job_id="j1", now_ms=5)
    JobRecord(job='clicks', job_id='j1', created_ms=5, bases=(), begins='', program='', past_ids=())
    >>> claim(store, "clicks", job_id="j2", now_ms=6).job_id
    'j1'
    >>> claim(store, "orders", job_id="j3", now_ms=7)
    Traceback (most recent call last):
    millstream.errors.StoreError: Store memory://doctest-claim belongs to job 'clicks', not to 'orders'. \
Use another --store, or name the job 'clicks' to continue it.
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
            f"Store {store.url} holds the remains of job {owner.job!r}, which was dropped: its forks or savepoints "
            "need them. Use another --store."
        )
    if job not in owner.names:
        either = " or ".join(map(repr, owner.names))
        raise StoreError(
            f"Store {store.url} belongs to job {owner.job!r}, not to {job!r}. "
            f"Use another --store, or name the job {either} to continue it."
        )
    return owner


def _check_unclaimed(store: Store) -> None:
    """Rejects a store with epochs but without a record: it is damaged, or a savepoint."""
    if any(epoch_of_manifest(name) is not None for name in store.list(MANIFESTS)):
        # A driver that has just claimed the store may have committed since the listing.
        if store.exists(job_name()):
            return
        raise StoreDamagedError(
            f"Store {store.url} has epochs, but no {job_name()} that names their job. Restore it from a copy, or, "
            "to start from a savepoint, use another --store, and --from with this one."
        )


def check_owner(store: Store, record: JobRecord, job_id: str, epoch: int) -> None:
    """StoreDamagedError if the newest epoch of the store belongs to a job other than that in its record.

    >>> from millstream.storage import open_store
    >>> store, record = open_store("memory://doctest-owner"), JobRecord("clicks", "j1", 5)
    >>> check_owner(store, record, "j1", epoch=7)
    >>> check_owner(store, record, "j2", epoch=7)
    Traceback (most recent call last):
    millstream.errors.StoreDamagedError: Store memory://doctest-owner: job.json is of job 'clicks' with id j1, and \
epoch 7 was committed by a job with id j2. Was a file copied from another store? Restore the right one.
    """
    if job_id not in (record.job_id, *record.past_ids):
        raise StoreDamagedError(
            f"Store {store.url}: {job_name()} is of job {record.job!r} with id {record.job_id}, and epoch {epoch} was "
            f"committed by a job with id {job_id}. Was a file copied from another store? Restore the right one."
        )


def read(store: Store) -> JobRecord | None:
    """The owner of `store`, or None if no job has claimed it; StoreDamagedError if the record is unreadable."""
    if not store.exists(job_name()):
        return None
    # The writer may have died between creating the file and syncing it.
    store.settle(job_name())
    return _decode(store.get(job_name()), f"{job_name()} of store {store.url}")


def renew(store: Store, job_id: str) -> None:
    """Changes the job's id before its epochs are removed, since their numbers will be reused.

    Published output is identified by job id and epoch number (`CommitId`), and each pair is used once.
    """
    record = read(store)
    if record is not None:
        # Held epochs remain, and were committed under the previous id.
        past_ids = (*record.past_ids, record.job_id)[-_PAST_IDS_MAX:]
        store.put(job_name(), _encode(replace(record, job_id=job_id, past_ids=past_ids)))


def mark_dropped(store: Store) -> None:
    """Marks the job as dropped: no job may continue in `store`."""
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
        checksum = document.pop("checksum", None)  # records of the first versions have none
        is_intact = checksum is None or checksum == _checksum(document)
        kind = document.pop("format")
        version = int(kind.removeprefix(_KIND))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(name, error) from error
    if version > FORMAT:
        raise StoreDamagedError(
            f"{name} has format {version}, this Millstream reads up to {FORMAT}: it was written by a newer "
            f"Millstream. Upgrade Millstream, then start the job again."
        )
    if not is_intact:
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
        f"{name} is damaged: the job of the store is unknown ({type(error).__name__}: {error}). "
        f"Nothing was overwritten; restore the file from a copy."
    )
