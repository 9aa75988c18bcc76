"""Plans become jobs here: relations are optimised, lowered into a graph of their own, and started.

A query is collected by the program; INSERTs of one statement or set are one job. Nothing else in `table` starts jobs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.meanings import OperatorFate
from millstream.common.configuration import Configuration
from millstream.common.options import STORE, read
from millstream.common.options.table_options import DISPLAY_WIDTH, DML_SYNC
from millstream.expressions.types import BigIntType
from millstream.graph.site import refuse
from millstream.jobs.snapshots.dropping import drop_store
from millstream.planner.entries import TableEntry
from millstream.planner.explain import explained, plan_tree
from millstream.planner.lowering import lower
from millstream.planner.lowering.endpoints import CollectTarget
from millstream.planner.lowering.materialised import is_stored_in_job
from millstream.planner.passes import optimised
from millstream.planner.relations import Field, Relation, Schema, Sink
from millstream.planner.session import PlannerSession
from millstream.query.statement_answers import answer_by
from millstream.records.table_type import TableRowType
from millstream.storage.store import shown_address
from millstream.table.operations.detached_jobs import DetachedJob
from millstream.table.operations.job_stores import (
    free_rebuild,
    newest_rebuild,
    note_rebuild,
    passing_store,
    rebuilt_store,
    signs_of,
    store_of_job,
)
from millstream.table.operations.job_tables import JobTables
from millstream.table.operations.live_queries import explained_live, is_live, started_live
from millstream.table.operations.own_graph import own_graph
from millstream.table.operations.statement_processes import StatementProcesses
from millstream.table.operations.stored_fates import plan_fates, stored_fates
from millstream.table.results.outcome import Outcome
from millstream.table.results.row_source import ColumnCollectSink, InsertedRows, JobRows

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.graph.builder import GraphBuilder
    from millstream.graph.nodes import Node
    from millstream.jobs.launch.job import Job

__all__ = ["KeptTable", "QueryRunner"]

_OWN_KEYS = ("table.", "sql-client.", "python.")
_NAME = "pipeline.name"


@dataclass(frozen=True)
class KeptTable:
    """The job that keeps a materialised table; `rebuilds`: how often it was made anew."""

    job: Job
    rebuilds: int = 0


@dataclass
class QueryRunner:
    """The environment jobs run in, the session plans are made with, and the settings of both."""

    environment: StreamExecutionEnvironment
    session: PlannerSession
    configuration: Configuration
    jobs: list[tuple[Job, datetime]] = field(default_factory=list)  # in the order they were started
    stores: list[str] = field(default_factory=list)  # those of the jobs of INSERTs
    detached: list[tuple[DetachedJob, datetime]] = field(default_factory=list)  # those in processes of their own
    sees_others: bool = False  # whether SHOW JOBS lists those that run beside them: a person comes back to them

    def __post_init__(self) -> None:
        self.tables = JobTables(self.session.store, self.session.catalog)
        self.first_home = (self.session.catalog, self.session.database)
        self.session.job_table = self.tables.find
        self.session.job_databases, self.session.job_tables = self.tables.databases, self.tables.tables
        answer_by(StatementProcesses)  # jobs of tables that serve their state answer statements, too

    def collect(self, relation: Relation) -> Outcome:
        """Run a query; its rows come to the program."""
        sink = ColumnCollectSink(TableRowType(relation.schema.row_type))
        live = is_live(relation)
        queue = sink.open()
        if live:
            target = Sink(relation.schema, relation, CollectTarget(sink))
            job = started_live(target, self.session, self.tables)
            return self._outcome(relation, JobRows(job, queue, sink.id), with_kinds=False)
        job = self._started([Sink(relation.schema, relation, CollectTarget(sink))], "collect", is_passing=True)
        return self._outcome(relation, JobRows(job, queue, sink.id), not self.session.is_batch)

    def _outcome(self, relation: Relation, rows: JobRows, with_kinds: bool) -> Outcome:
        return Outcome(
            relation.schema,
            rows,
            is_query=True,
            with_kinds=with_kinds,
            zone=self.session.zone,
            width_max=self.configuration.get_integer(
                "sql-client.display.max-column-width", read(DISPLAY_WIDTH, self.configuration)
            ),
        )

    def insert(self, sinks: Sequence[Sink], is_optimised: bool = False) -> Outcome:
        """Run INSERTs as one job; the result is one number for each, which is not counted: -1. `is_optimised`: they are
        a stored plan, which is run as it is."""
        if not sinks:
            raise refuse(
                "there is nothing to execute: no INSERT was added. Add one by add_insert() or add_insert_sql()"
            )
        names = [sink_name(sink) for sink in sinks]
        job = self._started(sinks, _default_name(sinks), is_optimised=is_optimised)
        unique = [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names, 1)]
        schema = Schema(tuple(Field(name, BigIntType(False)) for name in unique))
        rows = InsertedRows(job, TableRowType(schema.row_type))
        if read(DML_SYNC, self.configuration):
            rows.wait(None)
        return Outcome(schema, rows, zone=self.session.zone)

    def place_of(self, sinks: Sequence[Sink]) -> tuple[str, str]:
        """The name and the store of a job of these sinks that another process will start."""
        from millstream.jobs.launch.launch import new_folder

        self._configure()
        name = self.configuration.get_string(_NAME, None) or _default_name(sinks)
        given = self.environment._configuration.get_string(STORE.key, None)
        return name, new_folder(name) if given is None else store_of_job(given, name, self.stores)

    def root(self) -> str | None:
        """The folder that the stores of this session's jobs lie in; None: the usual one."""
        self._configure()
        given = self.environment._configuration.get_string(STORE.key, None)
        return None if given is None else os.path.dirname(shown_address(given).rstrip("/")) or "."

    def explained(self, sinks: Sequence[Sink], details: Sequence[str]) -> str:
        """The plan of queries and INSERTs, as text; and what becomes of the state that their job has in its store."""
        text = explained(sinks, self.session, details)
        given = self.environment._configuration.get_string(STORE.key, None) or self.configuration.get_string(
            STORE.key, None
        )
        if given is None or not all(isinstance(sink.target, TableEntry) for sink in sinks):
            return text
        name = self.configuration.get_string(_NAME, None) or _default_name(sinks)
        plan, builder = optimised(sinks, self.session), self.environment._builder.separate_job()
        lines = stored_fates(store_of_job(given, name, ()), plan, self.session, builder)
        return f"{text}\n== State ==\n{lines}\n" if lines else text

    def explained_plan(self, plan: Sequence[Sink]) -> str:
        """A stored plan, as text."""
        return f"== Optimized Physical Plan ==\n{plan_tree(plan)}\n"

    def explained_query(self, relation: Relation, details: Sequence[str]) -> str:
        """The plan of a query, as text."""
        collected = ColumnCollectSink(TableRowType(relation.schema.row_type))
        sink = Sink(relation.schema, relation, CollectTarget(collected))
        if is_live(relation):
            return explained_live(sink, self.session, self.tables, details)
        return self.explained([sink], details)

    def attach(self, sinks: Sequence[Sink]) -> tuple[Node, ...]:
        """Add the plan to the program's own graph, whose `execute` runs it; the node of each sink."""
        self._configure()
        return self._lower(sinks, self.environment._builder)

    def check(self, sink: Sink) -> None:
        """Refuse what could not be started, as far as that is known before."""
        self._configure()
        self._lower([sink], self.environment._builder.separate_job())

    def fates(self, before: Sink, after: Sink) -> tuple[OperatorFate, ...]:
        """What becomes of the state of one query under another, as the start of its job will judge it."""
        plans = [optimised([sink], self.session) for sink in (before, after)]
        return plan_fates(plans[0], plans[1], self.session, self.environment._builder)

    def keep(
        self, sink: Sink, name: str, settings: Mapping[str, str], store: str | None = None, rebuilds: int = 0
    ) -> KeptTable:
        """Start the job that keeps a table: in this store, or in one of its own. `rebuilds`: how often it has been made
        anew, this time included. 0: it goes on where it was last, if it is there."""
        self._configure()
        given = self.environment._configuration.get_string(STORE.key, None)
        if store is None and given is not None:
            rebuilds = free_rebuild(given, name, rebuilds) if rebuilds else newest_rebuild(given, name)
            store = rebuilt_store(given, name, rebuilds) if rebuilds else store_of_job(given, name, self.stores)
        with own_graph(self.environment, store) as builder:
            for key, value in settings.items():
                self.environment._configuration.set_string(key, value)
            self._lower([sink], builder)
            job = self.environment._start(name)
        if store is not None and store not in self.stores:
            self.stores.append(store)
        self.jobs.append((job, datetime.now()))
        assert isinstance(sink.target, TableEntry)
        self.tables.note(job, name, [sink.target.path])
        return KeptTable(job, rebuilds)

    def note_rebuild(self, name: str, table: KeptTable) -> None:
        """Later sessions go on with the store that a table was made anew in."""
        given = self.environment._configuration.get_string(STORE.key, None)
        if given is not None:
            note_rebuild(given, name, table.rebuilds)

    def forget_rebuilds(self, name: str) -> None:
        """A table is dropped: one of its name begins anew."""
        given = self.environment._configuration.get_string(STORE.key, None)
        if given is not None:
            drop_store(signs_of(given, name), system_ms)

    def _started(
        self, sinks: Sequence[Sink], default_name: str, is_passing: bool = False, is_optimised: bool = False
    ) -> Job:
        """Start a job; nobody goes on from one that `is_passing`."""
        self._configure()
        name = self.configuration.get_string(_NAME, None) or default_name
        given = self.environment._configuration.get_string(STORE.key, None)
        store = None
        if given is not None:
            store = passing_store(given) if is_passing else store_of_job(given, name, self.stores)
        with own_graph(self.environment, store) as builder:
            self._lower(sinks, builder, is_optimised)
            job = self.environment._start(name)
        if store is not None and not is_passing:
            self.stores.append(store)
        kept = [
            sink.target.path for sink in sinks if isinstance(sink.target, TableEntry) and is_stored_in_job(sink.target)
        ]
        if not is_passing:
            self.tables.note(job, name, kept)
        self.jobs.append((job, datetime.now()))
        return job

    def _lower(self, sinks: Sequence[Sink], builder: GraphBuilder, is_optimised: bool = False) -> tuple[Node, ...]:
        return lower(sinks if is_optimised else optimised(sinks, self.session), builder, self.session)

    def _configure(self) -> None:
        """Hand what is not the tables' own to the environment, which checks it."""
        settings = {key: value for key, value in self.configuration.to_dict().items() if not key.startswith(_OWN_KEYS)}
        settings.pop(_NAME, None)
        self.environment.configure(Configuration.from_dict(settings))


def _default_name(sinks: Sequence[Sink]) -> str:
    return "insert-into_" + ",".join(sink_name(sink) for sink in sinks)


def sink_name(sink: Sink) -> str:
    """The name of where rows go, as results and jobs show it."""
    if isinstance(sink.target, TableEntry) and sink.target.path:
        return ".".join(sink.target.path)
    return "sink"
