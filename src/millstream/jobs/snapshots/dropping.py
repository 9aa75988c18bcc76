"""Removing a job's store for good, but for what others need of it.

A fork has no copy of what it began with: its manifests name files of the store that it was forked from, which a pin
there keeps; and so does a savepoint by reference. A store with such pins is not removed. In order:

1. let go of what this store's job has pinned elsewhere: nobody goes on with it. Not while a savepoint is here, which
   needs it as the job did; a fork of this store has pinned all that it needs itself;
2. where nobody has pinned anything here, remove all. Else mark the store as dropped, so that no job goes on in it or
   takes it for its own, and remove everything but the epochs that are pinned;
3. look whether a store that 1 let go of was dropped before, and is needed no more.

If this dies in between it can be done again, and what was not removed only takes room.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from millstream.checkpoint.job_record import mark_dropped
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.pins import Pin, pins_of, read_pins, unpin
from millstream.errors import StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.storage.store import Store, open_store, shown_address

__all__ = ["drop_store"]


def drop_store(url: str, now_ms: Callable[[], int]) -> tuple[str, ...]:
    """Remove the store of a job that has ended; returns the savepoints and forks for which some of it stays."""
    store = open_store(url)
    record = read_job_record(store)
    pins = [pin for _, pin in read_pins(store)]
    is_saved = any(not isinstance(pin, Pin) or pin.reason == "savepoint" for pin in pins)
    bases = () if record is None or is_saved else record.bases
    for base in bases:
        _let_go(open_store(base), by=store.url)
    holders = tuple(map(_shown, pins))
    if holders:
        mark_dropped(store)
        Sweeper(store, now_ms).clear()
    else:
        _remove_all(store)
    for base in bases:
        below = read_job_record(open_store(base))
        if below is not None and below.is_dropped:
            drop_store(base, now_ms)
    return holders


def _let_go(store: Store, by: str) -> None:
    for pin in pins_of(store):
        if pin.reason == "fork" and pin.by == by:
            unpin(store, pin.name)


def _shown(pin: Pin | StoreError) -> str:
    if not isinstance(pin, Pin):
        return "a pin that cannot be read"
    return f"the savepoint {pin.name}" if pin.reason == "savepoint" else f"the fork in {shown_address(pin.by)}"


def _remove_all(store: Store) -> None:
    place = store.local_path("any")
    if place is not None:
        shutil.rmtree(place.parent, ignore_errors=True)
    else:
        store.delete_many(store.list(""))
