"""Jobs that a session's INSERTs start in separate processes, so that they outlive the session.

Like any other process, the session identifies each job by its store, where it reads the job's progress and writes
requests. The caller starts the process (`cli/sql_client/detached.py`); this module chooses the job's store and records
the job in the session.
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

_REQUEST_TIMEOUT_S = 10.0
_ENDED = ("FINISHED", "CANCELED", "SUSPENDED", "FAILED", "INTERRUPTED", "DROPPED")


@dataclass(frozen=True)
class DetachedJob:
    """A job in another process, identified by its store."""

    job_id: str
    name: str
    address: str

    @property
    def store(self) -> Store:
        """The job's store."""
        return open_store(self.address)

    @property
    def short_name(self) -> str:
        """The job's short name for commands, in the session's folder."""
        return self.job_id[:8] if self.address.startswith(f"{DEFAULT_ROOT}/") else self.address

    def status(self) -> str:
        """The job's status, read from its store."""
        return next((job.status for job in jobs(self.address)), "UNKNOWN")

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended or lost its driver."""
        return self.status() in _ENDED

    def cancel(self) -> None:
        """Cancels the job."""
        self._request("cancel")

    def stop(self, drain: bool = False) -> None:
        """Requests that the job finish its running epoch, publish it and end."""
        self._request("stop", drain=drain)

    def savepoint(self) -> str:
        """Creates a savepoint that references the newest published epoch; returns its name."""
        store = open_job_store(self.address)
        return save_newest(store, lambda: epoch_to_save(store), system_ms, to=None, name=None).name

    def _request(self, command: str, **arguments: bool) -> None:
        Mailbox(self.store).send(command, arguments, system_ms(), _REQUEST_TIMEOUT_S)


def detach(runner: QueryRunner, sinks: Sequence[Sink], start: Callable[[str], str]) -> DetachedJob:
    """Runs these sinks as one job in another process. `start` receives the job's store, starts the process, and returns
    the job's id once the job is running."""
    name, store = runner.place_of(sinks)
    job = DetachedJob(start(store), name, store)
    stored = [
        sink.target.path for sink in sinks if isinstance(sink.target, TableEntry) and is_stored_in_job(sink.target)
    ]
    runner.stores.append(store)
    runner.tables.note(job, name, stored)
    runner.detached.append((job, datetime.now()))
    return job


def jobs_running_below(root: str | None) -> list[tuple[ListedJob, datetime]]:
    """The running jobs whose stores are in a folder, with their creation times."""
    try:
        running = [job for job in jobs(root or DEFAULT_ROOT) if job.is_alive]
    except StoreError:
        return []
    records = [(job, read_job_record(open_store(job.store))) for job in running]
    return [(job, datetime.fromtimestamp(record.created_ms / 1000)) for job, record in records if record is not None]
