"""`ended.json`: how the job's last run ended, as written by its driver.

A manifest shows the progress of a job, but not that it failed: a failure commits nothing. So a driver writes a note
when it ends, and the next one removes it when it begins to run. A job without a driver and without a note was
interrupted: its process was killed or ended in some other way. The note is purely informative; an unreadable one is
ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import StoreAwayError, StoreError
from millstream.storage.json_records import Misfit, from_json, to_json
from millstream.storage.shared_names import ended_name
from millstream.storage.store import Store

__all__ = ["RunEnd", "read_run_end", "remove_run_end", "write_run_end"]

FORMAT = 1
_REASON_MAX = 2_000


@dataclass(frozen=True)
class RunEnd:
    """The end of a run. `status`: FINISHED, SUSPENDED, CANCELED or FAILED. `epoch`: the newest committed one. `log`:
    the path of the run's log on `host`."""

    run: str
    status: str
    epoch: int
    ended_ms: int
    host: str
    pid: int
    reason: str = ""
    log: str = ""


def write_run_end(store: Store, end: RunEnd) -> None:
    """Writes the note."""
    fields = to_json(end)
    store.put(ended_name(), seal("run-end", FORMAT, {**fields, "reason": end.reason[:_REASON_MAX]}))


def remove_run_end(store: Store) -> None:
    """Removes the note: the job runs again."""
    if store.exists(ended_name()):
        store.delete(ended_name())


def read_run_end(store: Store) -> RunEnd | None:
    """How the last run ended; None without a note.

    >>> from millstream.storage import open_store
    >>> store = open_store("memory://doctest-run-end")
    >>> write_run_end(store, RunEnd("a1", "FAILED", 7, 0, "db1", 42, "no memory"))
    >>> read_run_end(store)
    RunEnd(run='a1', status='FAILED', epoch=7, ended_ms=0, host='db1', pid=42, reason='no memory', log='')
    >>> remove_run_end(store)
    >>> read_run_end(store) is None
    True
    """
    try:
        if not store.exists(ended_name()):
            return None
        return from_json(RunEnd, None, unseal(store.get(ended_name()), "run-end", FORMAT, ended_name()))
    except StoreAwayError:
        raise
    except (StoreError, Misfit):
        return None
