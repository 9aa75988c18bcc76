"""Materialised tables: each is a job that maintains the result of a query, and a catalog entry that names it.

    CREATED ──► RUNNING ──SUSPEND──► SUSPENDED ──RESUME──► RUNNING
                   │ ▲ ALTER … AS          (the same store: epochs continue, query results never regress)
                   └─┘ REFRESH             (another store: all input is read again)
    DROP stops the job and removes its store, except files that forks need.

An alteration is checked before the job stops (`table/operations/stored_fates.py`): if it would lose state it is
rejected, with the state concerned, unless 'table.materialized.on-lost-state' = 'rebuild'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.meanings import OperatorFate, fates_text
from millstream.common.options import read
from millstream.common.options.table_options import ON_LOST_STATE
from millstream.connectors.tables.state_table import ARCHIVE_PATH
from millstream.errors import StoreError
from millstream.graph.notices import log_once, warn_once
from millstream.graph.site import here
from millstream.jobs.launch.archive_owners import release_archive
from millstream.jobs.snapshots.dropping import drop_store
from millstream.planner.entries import ObjectPath, TableEntry, shown
from millstream.planner.explain import explained
from millstream.planner.materialized import (
    FORK,
    MaterializedDefinition,
    altered,
    bind_materialized,
    create_text,
    freshness_ms,
    restated,
)
from millstream.planner.relations import Sink
from millstream.planner.statement_result import OK, StatementResult, text_rows
from millstream.sql import statements as sql
from millstream.sql.places import problem
from millstream.storage.store import open_store, shown_address
from millstream.table.operations.query_runner import MaterializedJob, QueryRunner
from millstream.table.operations.stored_fates import is_lossless

if TYPE_CHECKING:
    from millstream.jobs.launch.job import Job

__all__ = ["MaterializedTables"]


@dataclass
class MaterializedTables:
    """The materialised tables of a session, by path, with the jobs that maintain them."""

    runner: QueryRunner
    tables: dict[ObjectPath, MaterializedJob] = field(default_factory=dict)

    # --- CREATE and DROP ----------------------------------------------------------------------------------------------

    def create(self, statement: sql.CreateTable) -> StatementResult:
        """CREATE [OR ALTER] MATERIALIZED TABLE."""
        session = self.runner.session
        path = session.path_of(statement.name)
        if session.store.permanent_table(path) is not None:
            if statement.if_not_exists:
                return OK
            if statement.or_alter and path in self.tables:
                assert statement.query is not None
                return self._alter_query(path, statement.query, statement)
            raise problem(f"Could not execute CreateTable in path {shown(path)}: the table already exists", statement)
        entry, _ = bind_materialized(statement, session)
        entry, snapshot = self._forked(entry, statement)
        sink = self._bound(entry)
        if snapshot is not None:
            self._check_fork(path, entry, sink, statement)
        session.store.add_table(path, entry)
        try:
            self.tables[path] = self._start(entry, sink, snapshot=snapshot)
        except BaseException:
            session.store.drop_table(path, by_owner=True)  # the corrected statement can be run again
            raise
        return OK

    def _forked(self, entry: TableEntry, statement: sql.CreateTable) -> tuple[TableEntry, str | None]:
        """The entry with the root of the table that it forks, and the snapshot to start from."""
        option = dict(entry.options).get(FORK)
        if option is None:
            return entry, None
        name, _, epoch = option.partition("@")
        path_of = entry.path
        path = self.runner.session.path_of(tuple(name.split(".")))
        origin = self.tables.get(path)
        if origin is None:
            known = ", ".join(".".join(each) for each in self.tables) or "none"
            raise problem(f"'{FORK}' names '{name}', which is not a materialized table. There are: {known}", statement)
        if epoch and not epoch.isdecimal():
            raise problem(f"'{FORK}' is '{option}': an epoch's number is expected after @", statement)
        origin_entry = self._entry(path, statement)
        assert isinstance(entry.definition, MaterializedDefinition)
        root = getattr(origin_entry.definition, "root", ()) or path
        store = shown_address(origin.job.store.url)
        options = tuple((key, value) for key, value in entry.options if key != FORK)
        definition = replace(entry.definition, root=root)
        _check_archives(entry, origin_entry, name, statement)
        # Columns that both tables have keep the origin's type, with which their rows were stored.
        like = replace(
            origin_entry, path=path_of, primary_key=entry.primary_key, options=options, definition=definition
        )
        forked = altered(like, definition.query, self.runner.session)[0]
        # Start from the current newest epoch: the fork's first results are not older.
        newest = self.runner.tables.view_of(origin_entry).newest().epoch
        return forked, f"{store}@{epoch or newest}"

    def _check_fork(self, path: ObjectPath, entry: TableEntry, sink: Sink, statement: sql.CreateTable) -> None:
        """Rejects a fork whose query cannot continue with the table's state."""
        name = dict(statement.options)[FORK].partition("@")[0]
        origin = self._entry(self.runner.session.path_of(tuple(name.split("."))), statement)
        fates = self.runner.fates(self._bound(origin), sink)
        if not is_lossless(fates):
            raise problem(
                f"{shown(path)} cannot start as a copy of '{name}' with this query:\n{fates_text(fates)}\nUse the "
                "query of that table, with columns added",
                statement,
            )

    def drop(self, statement: sql.Drop) -> StatementResult:
        """DROP MATERIALIZED TABLE: stops the job and removes its state."""
        path = self.runner.session.path_of(statement.name)
        if path not in self.tables:
            if statement.if_exists:
                return OK
            raise self._unknown(path, statement)
        # The entry is removed last, so that an interrupted statement can be repeated.
        table = self.tables[path]
        _end(table.job)
        _remove(table.job)
        if table.rebuilds:
            self.runner.remove_rebuilds(self._job_name(path))
        self.runner.tables.remove(path)
        self.runner.session.store.drop_table(path, by_owner=True)
        del self.tables[path]
        return OK

    # --- ALTER --------------------------------------------------------------------------------------------------------

    def alter(self, statement: sql.Alter) -> StatementResult:
        """SUSPEND, RESUME, REFRESH, AS, SET."""
        path = self.runner.session.path_of(statement.name)
        if path not in self.tables:
            if statement.if_exists:
                return OK
            raise self._unknown(path, statement)
        for change in statement.changes:
            act = _ALTERATIONS.get(change.action)
            if act is None:
                raise problem(
                    f"ALTER MATERIALIZED TABLE takes SUSPEND, RESUME, REFRESH, AS or SET FRESHNESS, not "
                    f"{change.action} {change.subject}. Columns are changed by AS, with another query",
                    change,
                )
            act(self, path, change)
        return OK

    def _suspend(self, path: ObjectPath, change: sql.Alteration) -> None:
        job = self.tables[path].job
        if job.status().is_terminal_state():
            raise problem(f"Materialized table {shown(path)} does not run: it is {job.status().name}", change)
        job.stop()
        job.wait()

    def _resume(self, path: ObjectPath, change: sql.Alteration) -> None:
        table = self.tables[path]
        if not table.job.status().is_terminal_state():
            raise problem(f"Materialized table {shown(path)} is already running", change)
        self._go_on(path, self._entry(path, change))

    def _refresh(self, path: ObjectPath, change: sql.Alteration) -> None:
        if change.partitions:
            raise problem("REFRESH … PARTITION: a materialized table has no partitions. Leave it out", change)
        entry = self._entry(path, change)
        self._rebuild(path, entry, self._bound(entry))

    def _set(self, path: ObjectPath, change: sql.Alteration) -> None:
        if change.subject != "FRESHNESS":
            raise problem(f"SET {change.subject} of a materialized table is not available: create it again", change)
        freshness_ms(change.expression)
        entry = self._entry(path, change)
        entry = replace(entry, definition=replace(entry.definition, freshness=change.expression))
        self._restarted(path, entry)

    def _as(self, path: ObjectPath, change: sql.Alteration) -> None:
        assert change.query is not None
        self._alter_query(path, change.query, change)

    def _alter_query(self, path: ObjectPath, query: Any, node: Any) -> StatementResult:
        entry, sink, fates = self.checked_change(path, query, node)
        if is_lossless(fates):
            for each in fates:
                if each.fate == "extended":
                    log_once(f"{path} {each.uid} {each.note}", f"{path[-1]}: {each.line}")
            self._restarted(path, entry)
            return OK
        if read(ON_LOST_STATE, self.runner.configuration) == "refuse":
            raise problem(
                f"{shown(path)} cannot continue with this query:\n{fates_text(fates)}\nNothing was changed. Rebuild it "
                f"from the start of its sources with SET '{ON_LOST_STATE.key}' = 'rebuild'",
                node,
            )
        self._rebuild(path, entry, sink)
        return OK

    def checked_change(
        self, path: ObjectPath, query: Any, node: Any
    ) -> tuple[TableEntry, Sink, tuple[OperatorFate, ...]]:
        """The table with its new query, and the fate of its state."""
        session, before = self.runner.session, self._entry(path, node)
        if isinstance(node, sql.CreateTable):
            before = restated(before, node, session)
        entry, sink = altered(before, query, session)
        return entry, sink, self.runner.fates(self._bound(before), sink)

    def _restarted(self, path: ObjectPath, entry: TableEntry) -> None:
        """Continues in the same store with the new entry; restores the previous job if the new one fails to start."""
        table, store = self.tables[path], self.runner.session.store
        before = store.permanent_table(path)
        assert isinstance(before, TableEntry)
        self.runner.check(self._bound(entry))
        was_running = not table.job.status().is_terminal_state()
        if was_running:
            table.job.stop()
            table.job.wait()
        store.add_table(path, entry, replaces=True, by_owner=True)
        if not was_running:
            return
        try:
            self._go_on(path, entry)
        except BaseException:
            store.add_table(path, before, replaces=True, by_owner=True)
            self._go_on(path, before)
            raise

    def _go_on(self, path: ObjectPath, entry: TableEntry) -> None:
        """Restarts a table's job in its store."""
        table = self.tables[path]
        self.tables[path] = self._start(entry, self._bound(entry), store=_address(table.job), rebuilds=table.rebuilds)

    def _rebuild(self, path: ObjectPath, entry: TableEntry, sink: Sink) -> None:
        """Starts again in another store, and removes the old one when the new job has started. If it fails to start,
        continues as before."""
        old = self.tables[path]
        self.runner.check(sink)
        was_running = not old.job.status().is_terminal_state()
        _end(old.job)
        archive = dict(entry.options).get(ARCHIVE_PATH)
        if archive is not None:
            release_archive(archive, str(old.job.job_id))
        try:
            self.tables[path] = self._start(entry, sink, rebuilds=old.rebuilds + 1)
        except BaseException:
            before = self.runner.session.store.permanent_table(path)
            if was_running and isinstance(before, TableEntry):
                self._go_on(path, before)
            raise
        self.runner.session.store.add_table(path, entry, replaces=True, by_owner=True)
        self.runner.note_rebuild(self._job_name(path), self.tables[path])
        _remove(old.job)

    # --- EXPLAIN, SHOW --------------------------------------------------------------------------------------------

    def explained(self, statement: sql.CreateTable, details: Sequence[str]) -> str:
        """EXPLAIN CREATE [OR ALTER] MATERIALIZED TABLE: its plan; for an existing table, also the fate of its state."""
        path = self.runner.session.path_of(statement.name)
        if path not in self.tables:
            return explained([bind_materialized(statement, self.runner.session)[1]], self.runner.session, details)
        assert statement.query is not None
        _, sink, fates = self.checked_change(path, statement.query, statement)
        plan = explained([sink], self.runner.session, details)
        return f"{plan}\n== State ==\n{fates_text(fates)}\n"

    def show(self, statement: sql.Show) -> StatementResult:
        """SHOW MATERIALIZED TABLES."""
        names = sorted(path[-1] for path in self.tables)
        return text_rows(["materialized table name"], [[name] for name in names])

    def show_create(self, statement: sql.Show) -> StatementResult:
        """SHOW CREATE MATERIALIZED TABLE."""
        path = self.runner.session.path_of(statement.name)
        return text_rows(["result"], [[create_text(self._entry(path, statement))]])

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _start(
        self,
        entry: TableEntry,
        sink: Sink,
        *,
        store: str | None = None,
        snapshot: str | None = None,
        rebuilds: int = 0,
    ) -> MaterializedJob:
        settings = {} if snapshot is None else {"execution.state-recovery.path": snapshot}
        assert isinstance(entry.definition, MaterializedDefinition)
        every_ms = freshness_ms(entry.definition.freshness)
        if every_ms is not None:
            settings["execution.checkpointing.interval"] = f"{every_ms} ms"
        return self.runner.start_materialized(sink, self._job_name(entry.path), settings, store, rebuilds)

    def _job_name(self, path: ObjectPath) -> str:
        return path[-1] if path[:2] == self.runner.first_home else ".".join(path)

    def _bound(self, entry: TableEntry) -> Sink:
        """The sink that maintains an entry, bound in the context of its definition."""
        definition = entry.definition
        assert isinstance(definition, MaterializedDefinition)
        return altered(entry, definition.query, self.runner.session.at(*definition.home))[1]

    def _entry(self, path: ObjectPath, node: Any) -> TableEntry:
        entry = self.runner.session.store.permanent_table(path)
        if not isinstance(entry, TableEntry) or not isinstance(entry.definition, MaterializedDefinition):
            raise self._unknown(path, node)
        return entry

    def _unknown(self, path: ObjectPath, node: Any) -> Exception:
        known = ", ".join(each[-1] for each in self.tables) or "none"
        return problem(f"Materialized table {shown(path)} doesn't exist. There are: {known}", node)


def _check_archives(entry: TableEntry, origin: TableEntry, name: str, statement: sql.CreateTable) -> None:
    """Checks the archives of a fork, which reads its origin's archive and writes to a separate one."""
    old, new = (dict(each.options).get(ARCHIVE_PATH) for each in (origin, entry))
    if old is not None and new is None:
        raise problem(
            f"'{name}' has an archive, and its copy names none: archived rows would be missing in every "
            f"query result. Set '{ARCHIVE_PATH}' to another folder than '{old}', and when rows are archived",
            statement,
        )
    if old is not None and new is not None and open_store(old).url == open_store(new).url:
        raise problem(
            f"'{ARCHIVE_PATH}' is '{new}', which is the archive of '{name}': a copy needs its own, and reads the rows "
            "archived there before its start anyway. Set another folder",
            statement,
        )


def _end(job: Job) -> None:
    if not job.status().is_terminal_state():
        job.cancel()
    job.wait()


def _address(job: Job) -> str:
    return shown_address(job.store.url)


def _remove(job: Job) -> None:
    """Removes a job's store, except files that forks and savepoints need. The table is dropped in any case."""
    where = _address(job)
    try:
        holders = drop_store(job.store.url, system_ms)
    except StoreError as error:
        warn_once(f"not removed {where}", f"{where} could not be removed, and can be deleted: {error.message}", here())
        return
    if holders:
        log_once(f"dropped {where}", f"{where}: files needed by {', '.join(holders)} remain there")


_ALTERATIONS: dict[str, Callable[[MaterializedTables, ObjectPath, sql.Alteration], None]] = {
    "SUSPEND": MaterializedTables._suspend,
    "RESUME": MaterializedTables._resume,
    "REFRESH": MaterializedTables._refresh,
    "SET": MaterializedTables._set,
    "AS": MaterializedTables._as,
}
