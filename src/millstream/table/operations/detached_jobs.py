"""Jobs that INSERTs of a session started in processes of their own, so that they outlive it.

The session knows such a job by its store, as every other process does: it reads there how far the job is, and leaves
requests there. Starting the process is its caller's (`cli/sql_client/detached.py`); here it is decided which store the
job gets and what the session remembers of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.savepoints import open_job_store
from millstream.errors import StoreError
from millstream.jobs.control.requests import Mailbox
from millstream.jobs.snapshots.saving import epoch_to_save, save_newest
from millstream.planner.entries import TableEntry
from millstream.planner.lowering.materialised import is_stored_in_job
from millstream.planner.relations import Sink
from millstream.state_reader.stored_jobs import DEFAULT_ROOT, ListedJob, jobs
from millstream.storage.store import Store, open_store

if TYPE_CHECKING:
    from millstream.table.operations.query_runner import QueryRunner

__all__ = ["DetachedJob", "detach", "jobs_running_below"]

_TAKEN_WITHIN_S = 10.0
_ENDED = ("FINISHED", "CANCELED", "SUSPENDED", "FAILED", "INTERRUPTED", "DROPPED")


@dataclass(frozen=True)
class DetachedJob:
    """A job of another process, by its store."""

    job_id: str
    name: str
    address: str

    @property
    def store(self) -> Store:
        """The job's store."""
        return open_store(self.address)

    @property
    def short_name(self) -> str:
        """What commands find the job by, in the folder that the session is in."""
        return self.job_id[:8] if self.address.startswith(f"{DEFAULT_ROOT}/") else self.address

    def status(self) -> str:
        """Where the job is in its life, as its store tells."""
        return next((job.status for job in jobs(self.address)), "UNKNOWN")

    @property
    def has_ended(self) -> bool:
        """Whether nobody runs it any more."""
        return self.status() in _ENDED

    def cancel(self) -> None:
        """End it now."""
        self._ask("cancel")

    def stop(self, drain: bool = False) -> None:
        """Have it finish its running epoch, publish it and end."""
        self._ask("stop", drain=drain)

    def savepoint(self) -> str:
        """Save the newest published epoch by reference; what to start from it with."""
        store = open_job_store(self.address)
        return save_newest(store, lambda: epoch_to_save(store), system_ms, to=None, name=None).name

    def _ask(self, command: str, **arguments: bool) -> None:
        Mailbox(self.store).send(command, arguments, system_ms(), _TAKEN_WITHIN_S)


def detach(runner: QueryRunner, sinks: Sequence[Sink], start: Callable[[str], str]) -> DetachedJob:
    """Have another process run these sinks as one job. `start` is given the job's store, starts the process, and
    returns the job's id when the job runs."""
    name, store = runner.place_of(sinks)
    job = DetachedJob(start(store), name, store)
    kept = [sink.target.path for sink in sinks if isinstance(sink.target, TableEntry) and is_stored_in_job(sink.target)]
    runner.stores.append(store)
    runner.tables.note(job, name, kept)
    runner.detached.append((job, datetime.now()))
    return job


def jobs_running_below(root: str | None) -> list[tuple[ListedJob, datetime]]:
    """The jobs that anybody runs and whose stores lie in a folder, with the time each was made."""
    try:
        running = [job for job in jobs(root or DEFAULT_ROOT) if job.is_alive]
    except StoreError:
        return []
    records = [(job, read_job_record(open_store(job.store))) for job in running]
    return [(job, datetime.fromtimestamp(record.created_ms / 1000)) for job, record in records if record is not None]
