"""The jobs whose tables a session can query: jobs that it started, and jobs with stores in a catalog of jobs.

    SELECT … FROM counts                      a table stored by a job of this session
    SELECT … FROM clicks.counts               a table of the job `clicks` of this session
    SELECT … FROM live.clicks.counts          of a catalog of jobs: CREATE CATALOG live WITH ('type' = 'jobs', …)

Each job is read through one cached view, so its query results never regress to an older epoch. The view is valid as
long as the job exists: a job that was dropped, or rebuilt in another store, is looked up again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import system_ms
from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.errors import ProgramError, StoreError
from millstream.planner.entries import ColumnEntry, ObjectPath, TableEntry
from millstream.query.errors import UnknownJobError, UnknownStateError
from millstream.query.job_lookup import open as open_job
from millstream.query.job_lookup import open_store_of_job
from millstream.query.job_view import JobView
from millstream.state_reader.stored_jobs import DROPPED
from millstream.state_reader.stored_jobs import jobs as stored_jobs

if TYPE_CHECKING:
    from millstream.planner.catalog import CatalogStore
    from millstream.storage.store import Store

__all__ = ["JOBS_CATALOG", "JobTables"]

JOBS_CATALOG = "jobs"
"""The type of a catalog whose databases are jobs."""


class StartedJob(Protocol):
    """A job of the session, in its process or in a separate one."""

    @property
    def store(self) -> Store: ...


@dataclass
class JobTables:
    """Looks up tables of jobs. `owners` maps tables of the catalog to the session's jobs that store them; `home` is
    the catalog whose databases are the session's jobs."""

    catalogs: CatalogStore
    home: str
    owners: dict[ObjectPath, StartedJob] = field(default_factory=dict)
    started: dict[str, StartedJob] = field(default_factory=dict)
    _views: dict[str, JobView] = field(default_factory=dict)
    _views_of_started: dict[StartedJob, JobView] = field(default_factory=dict)

    def note(self, job: StartedJob, name: str, tables: list[ObjectPath]) -> None:
        """Records a started job and the tables it stores."""
        self.started[name] = job
        self.owners |= dict.fromkeys(tables, job)

    def remove(self, table: ObjectPath) -> None:
        """Removes a table."""
        job = self.owners.pop(table, None)
        if job is not None:
            self._views_of_started.pop(job, None)
        self.started = {name: other for name, other in self.started.items() if other is not job}

    def find(self, path: ObjectPath) -> TableEntry | None:
        """The table at (catalog, job, table); None if the job does not exist."""
        view = self._named_view(path)
        if view is None:
            return None
        newest = view.newest()
        if path[2] not in newest.tables():
            known = ", ".join(newest.tables()) or "none"
            raise UnknownStateError(
                f"job '{path[1]}' has no table '{path[2]}' at epoch {newest.epoch}. It has: {known}"
            )
        table = newest.table(path[2])
        return TableEntry(
            tuple(ColumnEntry(each.name, each.data_type) for each in table.row_type.fields),
            primary_key=table.primary_key,
            options=(("connector", STATE_CONNECTOR),),
            path=path,
        )

    def view_of(self, entry: TableEntry) -> JobView:
        """The job that stores a table."""
        job = self.owners.get(entry.path)
        view = self._view_of_job(job) if job is not None else self._named_view(entry.path)
        if view is None:
            raise ProgramError(
                f"no job of this session stores the table '{'.'.join(entry.path)}'. Start one by INSERT INTO, or query "
                "the job that does: CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '…'), then "
                f"SELECT … FROM live.job.{entry.path[-1]}"
            )
        return view

    def names(self, catalog: str) -> list[str] | None:
        """The jobs of a catalog of jobs; None for other catalogs."""
        folder = self._folder(catalog)
        return None if folder is None else sorted(job.name for job in stored_jobs(folder) if job.status != DROPPED)

    def databases(self, catalog: str) -> list[str]:
        """The jobs that are databases of a catalog: the jobs in a catalog of jobs, or the session's jobs."""
        names = self.names(catalog)
        if names is not None:
            return names
        owning = set(self.owners.values())
        return sorted(name for name, job in self.started.items() if catalog == self.home and job in owning)

    def tables(self, catalog: str, job: str) -> list[str] | None:
        """The tables of a job, empty before its first epoch; None if the job does not exist."""
        if job not in self.databases(catalog):
            return None
        try:
            view = self._named_view((catalog, job, ""))
            return [] if view is None else sorted(view.newest().tables())
        except StoreError:
            return []

    def _folder(self, catalog: str) -> str | None:
        entry = self.catalogs.catalogs.get(catalog)
        options = {} if entry is None else dict(entry.options)
        return options.get("stores") if options.get("type") == JOBS_CATALOG else None

    def _named_view(self, path: ObjectPath) -> JobView | None:
        folder = self._folder(path[0])
        if folder is None:
            job = self.started.get(path[1])
            return None if job is None else self._view_of_job(job)
        key = f"{folder}\n{path[1]}"
        if key in self._views and _is_replaced(self._views[key]):
            del self._views[key]
        if key not in self._views:
            try:
                self._views[key] = open_job(folder, path[1])
            except UnknownJobError:
                return None
        return self._views[key]

    def _view_of_job(self, job: StartedJob) -> JobView:
        # Keyed by the job itself: the id of a collected object may be reused.
        if job not in self._views_of_started:
            self._views_of_started[job] = open_store_of_job(job.store, system_ms)
        return self._views_of_started[job]


def _is_replaced(view: JobView) -> bool:
    """Whether a store no longer belongs to the viewed job. An unreachable store is assumed to belong to it."""
    try:
        record = read_job_record(view.store)
    except StoreError:
        return False
    return record is None or not record.is_still(view.job_id)
