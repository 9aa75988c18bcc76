"""Creates a store that begins with a snapshot of another one: the first half of a fork, and of every restore into
another store.

In order:

1. pin the snapshot's epoch in its own store, so that the job there retains its files (a savepoint in a separate folder
   needs no pin); if that job is itself a fork, pin the snapshot it began with as well, and so on;
2. claim the new store, with the snapshot's store as its base and the snapshot as its beginning.

The first start of a program there writes the first manifest (`jobs/snapshots/restore.py`): only a program determines
which operators continue with which state, and only its sinks decide about pending output. Until then nothing can be
lost: the pin exists, and a start without a snapshot uses the one in the store's record.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from millstream.checkpoint.job_record import JobRecord, claim
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.pins import Pin, pin_epoch, unpin
from millstream.checkpoint.savepoints import StoredSnapshot, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.errors import StoreError
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.store import Store

__all__ = ["beginning_of", "claim_fork"]


def beginning_of(snapshot: StoredSnapshot) -> str:
    """The snapshot's absolute name, valid in any folder."""
    return snapshot.store.url if snapshot.is_savepoint else f"{snapshot.store.url}@{snapshot.manifest.epoch}"


def claim_fork(store: Store, snapshot: StoredSnapshot, job: str, now_ms: int, program: str = "") -> JobRecord:
    """Make `store` the store of a job that begins with a snapshot, unless it already is one."""
    record_before = read_job_record(store)
    if record_before is None:
        pinned = _pinned(store, snapshot, job, now_ms)
        below = snapshot.store.bases if isinstance(snapshot.store, LayeredStore) else ()
        bases = (snapshot.store.url, *(base.url for base in below))
        job_id = secrets.token_hex(16)
        begins = beginning_of(snapshot)
        try:
            record = claim(store, job, job_id=job_id, now_ms=now_ms, bases=bases, begins=begins, program=program)
        except BaseException:
            with suppress(StoreError):  # the record may have been written, so the pins stay
                written = read_job_record(store)
                if written is None or written.job_id != job_id:
                    _unpin(pinned)
            raise
        if record.job_id != job_id:  # another process won the race, with its own pins
            _unpin(pinned)
    else:
        record = claim(store, job, job_id="", now_ms=now_ms)
    if record.begins != beginning_of(snapshot):
        what = f"begins with {record.begins}" if record.begins else "began without a snapshot"
        raise StoreError(
            f"store {store.url} belongs to job '{record.job}', which {what}, so it cannot start from {snapshot.name}. "
            "Start it without --from to continue it, or with another --store."
        )
    return record


def _pinned(store: Store, snapshot: StoredSnapshot, job: str, now_ms: int) -> list[tuple[Store, str]]:
    """Pin the snapshot, and those that the jobs below it began with; returns the stores and the name of the pin. If one
    snapshot no longer exists, none stays pinned, because no one would ever remove the other pins."""
    name = f"fork-{job}-{secrets.token_hex(4)}"
    pinned: list[tuple[Store, str]] = []
    point: StoredSnapshot | None = snapshot
    try:
        while point is not None and not point.is_savepoint:
            pin_epoch(point.store, Pin(name, point.manifest.epoch, "fork", now_ms, by=store.url))
            pinned.append((point.store, name))
            record = read_job_record(point.store)
            began = record.begins if record is not None else ""
            point = find_snapshot(parse_snapshot_name(began)) if began else None
    except BaseException:
        with suppress(StoreError):  # the first error is the one to report
            _unpin(pinned)
        raise
    return pinned


def _unpin(pinned: list[tuple[Store, str]]) -> None:
    for pinned_store, name in pinned:
        unpin(pinned_store, name)
