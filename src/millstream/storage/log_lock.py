"""Who lives: the driver of a run locks the run's log as long as it logs to it, and the system lets go when it dies.

So a store in a folder tells a job that runs from one that was killed, at once and without a clock: no file has to be
written again and again, and none is left behind that lies. A lock is told by the system that holds the file: it holds
for other machines as far as their shared file system carries locks.
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
    """Lock the open log until it is closed. A file system without locks has none: then the job seems not to run."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_PAUSE_S)  # somebody looks at this very moment
        except OSError:
            return


def is_anybody_running(store: Store) -> bool | None:
    """Whether a driver has a log of this store open; None where that cannot be told, as for a store that is no folder.

    >>> from millstream.storage import open_store
    >>> is_anybody_running(open_store("memory://doctest-nobody")) is None
    True
    """
    if store.local_path(job_name()) is None:
        return None
    places = (store.local_path(name) for name in reversed(store.list(LOGS)))
    return any(is_held(place) for place in places if place is not None)


def is_surely_idle(store: Store) -> bool:
    """Whether nobody runs the job, and locks are seen to work where the store is: for who removes what a driver may be
    writing. False where that cannot be told.

    >>> from millstream.storage import open_store
    >>> is_surely_idle(open_store("memory://doctest-nobody"))
    False
    """
    place = store.local_path(job_name())
    logs = [store.local_path(name) for name in store.list(LOGS)]
    if place is None or not logs or logs[-1] is None:
        return False  # without a log nobody knows who has one open
    return is_anybody_running(store) is False and _has_locks(logs[-1])


def _has_locks(log: Path) -> bool:
    """Whether a lock of this process is seen by a second look at the file."""
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
        # A look's lock is shared: two who look at the same time must not take each other for a driver.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
