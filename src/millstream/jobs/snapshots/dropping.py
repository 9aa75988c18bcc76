"""Removes a job's store permanently, except for files that other stores need.

A fork has no copy of its initial state: its manifests name files of the store that it was forked from, which a pin
there retains. The same holds for a savepoint by reference. A store with such pins is not removed completely. In order:

1. remove the pins that this store's job holds in other stores, unless a savepoint in this store still needs them; a
   fork of this store has its own pins on everything it needs;
2. if this store has no pins, remove everything. Otherwise mark the store as dropped, so that no job continues in it or
   claims it, and remove everything but the pinned epochs;
3. check whether a store released by step 1 was dropped before, and is no longer needed.

The removal can be repeated after a crash; files that were not removed only use space.
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
    """Remove the store of a job that has ended; returns the savepoints and forks that retain some of it."""
    store = open_store(url)
    record = read_job_record(store)
    pins = [pin for _, pin in read_pins(store)]
    is_saved = any(not isinstance(pin, Pin) or pin.reason == "savepoint" for pin in pins)
    bases = () if record is None or is_saved else record.bases
    for base in bases:
        _release(open_store(base), by=store.url)
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


def _release(store: Store, by: str) -> None:
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
