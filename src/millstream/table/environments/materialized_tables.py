"""Materialised tables: each is a job that keeps the result of a query, and an entry in the catalog that names it.

    CREATED ──► RUNNING ──SUSPEND──► SUSPENDED ──RESUME──► RUNNING
                   │ ▲ ALTER … AS          (the same store: epochs go on, answers never go back)
                   └─┘ REFRESH             (another store: everything is read anew)
    DROP ends the job and removes its store, but for what forks of it need.

An alteration is judged before anything is stopped (`table/operations/stored_fates.py`): where state would be lost it is
refused, with what would be, unless 'table.materialized.on-lost-state' = 'rebuild'.
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
from millstream.table.operations.query_runner import KeptTable, QueryRunner
from millstream.table.operations.stored_fates import goes_on

if TYPE_CHECKING:
    from millstream.jobs.launch.job import Job

__all__ = ["MaterializedTables"]


@dataclass
class MaterializedTables:
    """The materialised tables of a session, by path, with the jobs that keep them."""

    runner: QueryRunner
    keepers: dict[ObjectPath, KeptTable] = field(default_factory=dict)

    # --- CREATE and DROP ----------------------------------------------------------------------------------------------

    def create(self, statement: sql.CreateTable) -> StatementResult:
        """CREATE [OR ALTER] MATERIALIZED TABLE."""
        session = self.runner.session
        path = session.path_of(statement.name)
        if session.store.permanent_table(path) is not None:
            if statement.if_not_exists:
                return OK
            if statement.or_alter and path in self.keepers:
                assert statement.query is not None
                return self._alter_query(path, statement.query, statement)
            raise problem(f"Could not execute CreateTable in path {shown(path)}: the table already exists", statement)
        entry, _ = bind_materialized(statement, session)
        entry, begins = self._forked(entry, statement)
        sink = self._bound(entry)
        if begins is not None:
            self._check_fork(path, entry, sink, statement)
        session.store.add_table(path, entry)
        try:
            self.keepers[path] = self._start(entry, sink, begins=begins)
        except BaseException:
            session.store.drop_table(path, by_owner=True)  # it can be corrected and run again
            raise
        return OK

    def _forked(self, entry: TableEntry, statement: sql.CreateTable) -> tuple[TableEntry, str | None]:
        """The entry under the root of the table it begins as, and the snapshot it begins with."""
        option = dict(entry.options).get(FORK)
        if option is None:
            return entry, None
        name, _, epoch = option.partition("@")
        path_of = entry.path
        path = self.runner.session.path_of(tuple(name.split(".")))
        origin = self.keepers.get(path)
        if origin is None:
            have = ", ".join(".".join(each) for each in self.keepers) or "none"
            raise problem(f"'{FORK}' names '{name}', which is no materialized table. There are: {have}", statement)
        if epoch and not epoch.isdecimal():
            raise problem(f"'{FORK}' is '{option}': behind @ stands the number of an epoch", statement)
        origin_entry = self._entry(path, statement)
        assert isinstance(entry.definition, MaterializedDefinition)
        root = getattr(origin_entry.definition, "root", ()) or path
        store = shown_address(origin.job.store.url)
        options = tuple((key, value) for key, value in entry.options if key != FORK)
        definition = replace(entry.definition, root=root)
        _check_archives(entry, origin_entry, name, statement)
        # Its columns are those of the table it begins as, where both have them: that is how its rows were saved.
        like = replace(
            origin_entry, path=path_of, primary_key=entry.primary_key, options=options, definition=definition
        )
        forked = altered(like, definition.query, self.runner.session)[0]
        # The epoch that answers are of now: what the fork answers first is not older.
        newest = self.runner.tables.view_of(origin_entry).newest().epoch
        return forked, f"{store}@{epoch or newest}"

    def _check_fork(self, path: ObjectPath, entry: TableEntry, sink: Sink, statement: sql.CreateTable) -> None:
        """Refuse a fork whose query does not go on with what the table keeps."""
        name = dict(statement.options)[FORK].partition("@")[0]
        origin = self._entry(self.runner.session.path_of(tuple(name.split("."))), statement)
        fates = self.runner.fates(self._bound(origin), sink)
        if not goes_on(fates):
            raise problem(
                f"{shown(path)} cannot begin as a copy of '{name}' with this query:\n{fates_text(fates)}\nGive it the "
                "query of that table, with columns added",
                statement,
            )

    def drop(self, statement: sql.Drop) -> StatementResult:
        """DROP MATERIALIZED TABLE: the job ends, its state goes."""
        path = self.runner.session.path_of(statement.name)
        if path not in self.keepers:
            if statement.if_exists:
                return OK
            raise self._unknown(path, statement)
        # The table is known until all is done: a statement that was interrupted can be given again.
        table = self.keepers[path]
        _end(table.job)
        _remove(table.job)
        if table.rebuilds:
            self.runner.forget_rebuilds(self._job_name(path))
        self.runner.tables.forget(path)
        self.runner.session.store.drop_table(path, by_owner=True)
        del self.keepers[path]
        return OK

    # --- ALTER --------------------------------------------------------------------------------------------------------

    def alter(self, statement: sql.Alter) -> StatementResult:
        """SUSPEND, RESUME, REFRESH, AS, SET."""
        path = self.runner.session.path_of(statement.name)
        if path not in self.keepers:
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
        job = self.keepers[path].job
        if job.status().is_terminal_state():
            raise problem(f"Materialized table {shown(path)} does not run: it is {job.status().name}", change)
        job.stop()
        job.wait()

    def _resume(self, path: ObjectPath, change: sql.Alteration) -> None:
        table = self.keepers[path]
        if not table.job.status().is_terminal_state():
            raise problem(f"Materialized table {shown(path)} runs already", change)
        self._go_on(path, self._entry(path, change))

    def _refresh(self, path: ObjectPath, change: sql.Alteration) -> None:
        if change.partitions:
            raise problem("REFRESH … PARTITION: a materialized table has no partitions. Leave it out", change)
        entry = self._entry(path, change)
        self._rebuild(path, entry, self._bound(entry))

    def _set(self, path: ObjectPath, change: sql.Alteration) -> None:
        if change.subject != "FRESHNESS":
            raise problem(f"SET {change.subject} of a materialized table is not available: make it anew", change)
        freshness_ms(change.expression)
        entry = self._entry(path, change)
        entry = replace(entry, definition=replace(entry.definition, freshness=change.expression))
        self._restarted(path, entry)

    def _as(self, path: ObjectPath, change: sql.Alteration) -> None:
        assert change.query is not None
        self._alter_query(path, change.query, change)

    def _alter_query(self, path: ObjectPath, query: Any, node: Any) -> StatementResult:
        entry, sink, fates = self.judged(path, query, node)
        if goes_on(fates):
            for each in fates:
                if each.fate == "extended":
                    log_once(f"{path} {each.uid} {each.note}", f"{path[-1]}: {each.line}")
            self._restarted(path, entry)
            return OK
        if read(ON_LOST_STATE, self.runner.configuration) == "refuse":
            raise problem(
                f"{shown(path)} cannot go on with this query:\n{fates_text(fates)}\nNothing was changed. Make it anew "
                f"from the beginning of its sources with SET '{ON_LOST_STATE.key}' = 'rebuild'",
                node,
            )
        self._rebuild(path, entry, sink)
        return OK

    def judged(self, path: ObjectPath, query: Any, node: Any) -> tuple[TableEntry, Sink, tuple[OperatorFate, ...]]:
        """The table with another query, and what becomes of its state."""
        session, before = self.runner.session, self._entry(path, node)
        if isinstance(node, sql.CreateTable):
            before = restated(before, node, session)
        entry, sink = altered(before, query, session)
        return entry, sink, self.runner.fates(self._bound(before), sink)

    def _restarted(self, path: ObjectPath, entry: TableEntry) -> None:
        """Go on in the same store with another entry; as before, where that cannot start."""
        table, store = self.keepers[path], self.runner.session.store
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
        """Start the job of a table again, in its store."""
        table = self.keepers[path]
        self.keepers[path] = self._start(entry, self._bound(entry), store=_address(table.job), rebuilds=table.rebuilds)

    def _rebuild(self, path: ObjectPath, entry: TableEntry, sink: Sink) -> None:
        """Begin anew in another store; the old one goes when the new job has started. Where that cannot start, go on as
        before."""
        old = self.keepers[path]
        self.runner.check(sink)
        was_running = not old.job.status().is_terminal_state()
        _end(old.job)
        archive = dict(entry.options).get(ARCHIVE_PATH)
        if archive is not None:
            release_archive(archive, str(old.job.job_id))
        try:
            self.keepers[path] = self._start(entry, sink, rebuilds=old.rebuilds + 1)
        except BaseException:
            before = self.runner.session.store.permanent_table(path)
            if was_running and isinstance(before, TableEntry):
                self._go_on(path, before)
            raise
        self.runner.session.store.add_table(path, entry, replaces=True, by_owner=True)
        self.runner.note_rebuild(self._job_name(path), self.keepers[path])
        _remove(old.job)

    # --- EXPLAIN, SHOW --------------------------------------------------------------------------------------------

    def explained(self, statement: sql.CreateTable, details: Sequence[str]) -> str:
        """EXPLAIN CREATE [OR ALTER] MATERIALIZED TABLE: its plan; of one that is there, what becomes of its state."""
        path = self.runner.session.path_of(statement.name)
        if path not in self.keepers:
            return explained([bind_materialized(statement, self.runner.session)[1]], self.runner.session, details)
        assert statement.query is not None
        _, sink, fates = self.judged(path, statement.query, statement)
        plan = explained([sink], self.runner.session, details)
        return f"{plan}\n== State ==\n{fates_text(fates)}\n"

    def show(self, statement: sql.Show) -> StatementResult:
        """SHOW MATERIALIZED TABLES."""
        names = sorted(path[-1] for path in self.keepers)
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
        begins: str | None = None,
        rebuilds: int = 0,
    ) -> KeptTable:
        settings = {} if begins is None else {"execution.state-recovery.path": begins}
        assert isinstance(entry.definition, MaterializedDefinition)
        every_ms = freshness_ms(entry.definition.freshness)
        if every_ms is not None:
            settings["execution.checkpointing.interval"] = f"{every_ms} ms"
        return self.runner.keep(sink, self._job_name(entry.path), settings, store, rebuilds)

    def _job_name(self, path: ObjectPath) -> str:
        return path[-1] if path[:2] == self.runner.first_home else ".".join(path)

    def _bound(self, entry: TableEntry) -> Sink:
        """What keeps an entry, bound where its query was written."""
        definition = entry.definition
        assert isinstance(definition, MaterializedDefinition)
        return altered(entry, definition.query, self.runner.session.at(*definition.home))[1]

    def _entry(self, path: ObjectPath, node: Any) -> TableEntry:
        entry = self.runner.session.store.permanent_table(path)
        if not isinstance(entry, TableEntry) or not isinstance(entry.definition, MaterializedDefinition):
            raise self._unknown(path, node)
        return entry

    def _unknown(self, path: ObjectPath, node: Any) -> Exception:
        have = ", ".join(each[-1] for each in self.keepers) or "none"
        return problem(f"Materialized table {shown(path)} doesn't exist. There are: {have}", node)


def _check_archives(entry: TableEntry, origin: TableEntry, name: str, statement: sql.CreateTable) -> None:
    """A fork reads what its origin has archived, and writes to an archive of its own."""
    was, now = (dict(each.options).get(ARCHIVE_PATH) for each in (origin, entry))
    if was is not None and now is None:
        raise problem(
            f"'{name}' has an archive, and its copy names none: rows that are archived would be missing in every "
            f"answer. Give it '{ARCHIVE_PATH}', another folder than '{was}', and when rows go there",
            statement,
        )
    if was is not None and now is not None and open_store(was).url == open_store(now).url:
        raise problem(
            f"'{ARCHIVE_PATH}' is '{now}', which is the archive of '{name}': a copy goes its own way, and reads what "
            "is archived there up to its begin anyway. Give it another folder",
            statement,
        )


def _end(job: Job) -> None:
    if not job.status().is_terminal_state():
        job.cancel()
    job.wait()


def _address(job: Job) -> str:
    return shown_address(job.store.url)


def _remove(job: Job) -> None:
    """Remove what a job kept, but for what forks and savepoints of it need. The table is gone in any case."""
    where = _address(job)
    try:
        holders = drop_store(job.store.url, system_ms)
    except StoreError as error:
        warn_once(f"not removed {where}", f"{where} could not be removed, and can be deleted: {error.message}", here())
        return
    if holders:
        log_once(f"dropped {where}", f"{where}: what is needed of it stays there, for {', '.join(holders)}")


_ALTERATIONS: dict[str, Callable[[MaterializedTables, ObjectPath, sql.Alteration], None]] = {
    "SUSPEND": MaterializedTables._suspend,
    "RESUME": MaterializedTables._resume,
    "REFRESH": MaterializedTables._refresh,
    "SET": MaterializedTables._set,
    "AS": MaterializedTables._as,
}
