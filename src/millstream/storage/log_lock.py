"""Detects a running driver: the driver of a run holds a lock on the run's log, and the system releases the lock when
the process dies.

So a store in a folder distinguishes a running job from a killed one immediately and without a clock: no file must be
renewed or can become stale. The file system reports the lock, so this works across machines if their shared file system
supports locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from millstream.storage.names import LOGS, job_name
from millstream.storage.store import Store

__all__ = ["hold", "is_anybody_running", "is_held", "is_surely_idle"]

_TRIES, _PAUSE_S = 50, 0.01


def hold(descriptor: int) -> None:
    """Lock the open log until it is closed. On a file system without locks the job appears not to be running."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_PAUSE_S)  # another process is just checking
        except OSError:
            return


def is_anybody_running(store: Store) -> bool | None:
    """Whether a driver has a log of this store open; None if unknown, as for a store that is not a folder.

    >>> from millstream.storage import open_store
    >>> is_anybody_running(open_store("memory://doctest-nobody")) is None
    True
    """
    if store.local_path(job_name()) is None:
        return None
    places = (store.local_path(name) for name in reversed(store.list(LOGS)))
    return any(is_held(place) for place in places if place is not None)


def is_surely_idle(store: Store) -> bool:
    """Whether no driver runs the job, and locks demonstrably work on the store's file system. Required before removing
    files that a driver may be writing. False if unknown.

    >>> from millstream.storage import open_store
    >>> is_surely_idle(open_store("memory://doctest-nobody"))
    False
    """
    place = store.local_path(job_name())
    logs = [store.local_path(name) for name in store.list(LOGS)]
    if place is None or not logs or logs[-1] is None:
        return False  # without a log no lock can be checked
    return is_anybody_running(store) is False and _has_locks(logs[-1])


def _has_locks(log: Path) -> bool:
    """Whether a second open of the file sees a lock of this process."""
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return is_held(log)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def is_held(log: Path) -> bool:
    """Whether a driver has this log open."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # A checker's lock is shared: two concurrent checkers must not mistake each other for a driver.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
