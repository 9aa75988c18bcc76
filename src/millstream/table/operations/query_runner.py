"""Runs plans as jobs: optimises relations, lowers them into a separate graph, and starts the job.

The program collects a query's rows; INSERTs of one statement or set are one job. No other module of `table` starts
jobs.
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
    markers_of,
    newest_rebuild,
    note_rebuild,
    passing_store,
    rebuilt_store,
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

__all__ = ["MaterializedJob", "QueryRunner"]

_OWN_KEYS = ("table.", "sql-client.", "python.")
_NAME = "pipeline.name"


@dataclass(frozen=True)
class MaterializedJob:
    """The job that maintains a materialised table; `rebuilds`: the number of its rebuilds."""

    job: Job
    rebuilds: int = 0


@dataclass
class QueryRunner:
    """The environment that runs jobs, the planner's session, and the settings of both."""

    environment: StreamExecutionEnvironment
    session: PlannerSession
    configuration: Configuration
    jobs: list[tuple[Job, datetime]] = field(default_factory=list)  # in the order they were started
    stores: list[str] = field(default_factory=list)  # of INSERT jobs
    detached: list[tuple[DetachedJob, datetime]] = field(default_factory=list)  # in separate processes
    sees_others: bool = False  # whether SHOW JOBS lists running jobs of other sessions, for users who reconnect

    def __post_init__(self) -> None:
        self.tables = JobTables(self.session.store, self.session.catalog)
        self.first_home = (self.session.catalog, self.session.database)
        self.session.job_table = self.tables.find
        self.session.job_databases, self.session.job_tables = self.tables.databases, self.tables.tables
        answer_by(StatementProcesses)  # jobs that serve their tables also execute statements

    def collect(self, relation: Relation) -> Outcome:
        """Runs a query; the program collects its rows."""
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
        """Runs INSERTs as one job. The result is one row count per INSERT, always -1. `is_optimised`: the sinks are a
        stored plan, which runs unchanged."""
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
        """The name and store of the job that another process will start for these sinks."""
        from millstream.jobs.launch.launch import new_folder

        self._configure()
        name = self.configuration.get_string(_NAME, None) or _default_name(sinks)
        program_store = self.environment._configuration.get_string(STORE.key, None)
        return name, new_folder(name) if program_store is None else store_of_job(program_store, name, self.stores)

    def root(self) -> str | None:
        """The folder with the stores of this session's jobs; None means the default."""
        self._configure()
        program_store = self.environment._configuration.get_string(STORE.key, None)
        return None if program_store is None else os.path.dirname(shown_address(program_store).rstrip("/")) or "."

    def explained(self, sinks: Sequence[Sink], details: Sequence[str]) -> str:
        """The plan of queries and INSERTs, as text, and the fate of the state in their job's store."""
        text = explained(sinks, self.session, details)
        program_store = self.environment._configuration.get_string(STORE.key, None) or self.configuration.get_string(
            STORE.key, None
        )
        if program_store is None or not all(isinstance(sink.target, TableEntry) for sink in sinks):
            return text
        name = self.configuration.get_string(_NAME, None) or _default_name(sinks)
        plan, builder = optimised(sinks, self.session), self.environment._builder.separate_job()
        lines = stored_fates(store_of_job(program_store, name, ()), plan, self.session, builder)
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
        """Adds the plan to the program's own graph, which `execute` runs; returns the node of each sink."""
        self._configure()
        return self._lower(sinks, self.environment._builder)

    def check(self, sink: Sink) -> None:
        """Rejects sinks that are known in advance to fail at start."""
        self._configure()
        self._lower([sink], self.environment._builder.separate_job())

    def fates(self, before: Sink, after: Sink) -> tuple[OperatorFate, ...]:
        """The fate of a query's state under another query, as the job's start would determine it."""
        plans = [optimised([sink], self.session) for sink in (before, after)]
        return plan_fates(plans[0], plans[1], self.session, self.environment._builder)

    def start_materialized(
        self, sink: Sink, name: str, settings: Mapping[str, str], store: str | None = None, rebuilds: int = 0
    ) -> MaterializedJob:
        """Starts the job that maintains a table: in the given store, or in a separate one. `rebuilds`: the number of
        rebuilds, including this one; 0 continues from the last epoch, if any."""
        self._configure()
        program_store = self.environment._configuration.get_string(STORE.key, None)
        if store is None and program_store is not None:
            rebuilds = free_rebuild(program_store, name, rebuilds) if rebuilds else newest_rebuild(program_store, name)
            store = (
                rebuilt_store(program_store, name, rebuilds)
                if rebuilds
                else store_of_job(program_store, name, self.stores)
            )
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
        return MaterializedJob(job, rebuilds)

    def note_rebuild(self, name: str, table: MaterializedJob) -> None:
        """Makes later sessions continue with the store of a rebuilt table."""
        program_store = self.environment._configuration.get_string(STORE.key, None)
        if program_store is not None:
            note_rebuild(program_store, name, table.rebuilds)

    def remove_rebuilds(self, name: str) -> None:
        """Removes the rebuild markers of a dropped table."""
        program_store = self.environment._configuration.get_string(STORE.key, None)
        if program_store is not None:
            drop_store(markers_of(program_store, name), system_ms)

    def _started(
        self, sinks: Sequence[Sink], default_name: str, is_passing: bool = False, is_optimised: bool = False
    ) -> Job:
        """Starts a job. `is_passing`: it is never restored."""
        self._configure()
        name = self.configuration.get_string(_NAME, None) or default_name
        program_store = self.environment._configuration.get_string(STORE.key, None)
        store = None
        if program_store is not None:
            store = passing_store(program_store) if is_passing else store_of_job(program_store, name, self.stores)
        with own_graph(self.environment, store) as builder:
            self._lower(sinks, builder, is_optimised)
            job = self.environment._start(name)
        if store is not None and not is_passing:
            self.stores.append(store)
        stored = [
            sink.target.path for sink in sinks if isinstance(sink.target, TableEntry) and is_stored_in_job(sink.target)
        ]
        if not is_passing:
            self.tables.note(job, name, stored)
        self.jobs.append((job, datetime.now()))
        return job

    def _lower(self, sinks: Sequence[Sink], builder: GraphBuilder, is_optimised: bool = False) -> tuple[Node, ...]:
        return lower(sinks if is_optimised else optimised(sinks, self.session), builder, self.session)

    def _configure(self) -> None:
        """Passes settings other than table options to the environment, which checks them."""
        settings = {key: value for key, value in self.configuration.to_dict().items() if not key.startswith(_OWN_KEYS)}
        settings.pop(_NAME, None)
        self.environment.configure(Configuration.from_dict(settings))


def _default_name(sinks: Sequence[Sink]) -> str:
    return "insert-into_" + ",".join(sink_name(sink) for sink in sinks)


def sink_name(sink: Sink) -> str:
    """A sink's name in results and job names."""
    if isinstance(sink.target, TableEntry) and sink.target.path:
        return ".".join(sink.target.path)
    return "sink"
