"""Launches a job: from a graph and its settings to a running job.

All checks run before the job starts, in this order: the program, its settings, the store (writable, ours, a program
that fits it), the machine (Java, Spark). Only then does the driver's thread begin.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from millstream.checkpoint.run_end import remove_run_end
from millstream.common import options
from millstream.compiler.passes import compile_graph
from millstream.connectors.contract_checks import opened_sink, opened_source
from millstream.connectors.contracts import Sink
from millstream.connectors.print_sink import showable
from millstream.errors import MillstreamError, ProgramError
from millstream.graph.nodes import Graph, Read, Write
from millstream.graph.notices import relay_once
from millstream.jobs.clock import Clock, SystemClock
from millstream.jobs.control.requests import RequestServer
from millstream.jobs.epochs.driver import EpochDriver
from millstream.jobs.epochs.epoch_run import Deployment, Runner, new_run
from millstream.jobs.epochs.failures import run_or_log
from millstream.jobs.epochs.input_plan import PlannedSource
from millstream.jobs.epochs.progress import JobProgress, ProgressBoard
from millstream.jobs.epochs.progress_report import ProgressReporter
from millstream.jobs.launch.archive_owners import check_archive_owners, claim_archives
from millstream.jobs.launch.archive_places import check_archive_places
from millstream.jobs.launch.job import Job, commands_of
from millstream.jobs.launch.job_end import JobEnd
from millstream.jobs.launch.job_log import JobLog, attach_log
from millstream.jobs.launch.job_query_server import JobQueryServer
from millstream.jobs.launch.leased_store import LeasedStore, leased_store
from millstream.jobs.settings.driver_settings import driver_settings, savepoint_directory, tier_settings
from millstream.jobs.settings.job_settings import JobSettings
from millstream.plan.stages import Plan
from millstream.runtime.task.spec import JobFacts
from millstream.spark.masters import check_store_reachable, is_one_machine
from millstream.storage.layered_stores import layered_store
from millstream.storage.store import Store, open_store

__all__ = ["Launch", "ends_of", "is_batch", "launch", "new_folder", "session_for", "with_sources"]

DEFAULT_ROOT = ".millstream"

T = TypeVar("T")


@dataclass
class Launch:
    """The launch of a job. Tests provide their own clock, runner and store; all other code uses `launch`.

    `before_spark` is called after all other checks, when Spark's JVM is about to be started. `is_leased` False: a
    second driver is not rejected, but races with the first one to create a manifest.
    """

    clock: Clock
    runner: Runner | None = None
    store: Store | None = None
    before_spark: Callable[[], object] = lambda: None
    is_leased: bool = True

    def start(self, graph: Graph, settings: JobSettings) -> Job:
        """Check everything, then start the job on a thread of its own; from then on other processes may send it
        requests."""
        job = self.prepare(graph, settings)
        server = RequestServer(job.store, commands_of(job))
        job.at_end(server.close)
        job.at_start(server.start)
        return job.start()

    def prepare(self, graph: Graph, settings: JobSettings) -> Job:
        """Check everything; the job is ready, and waits for its `start()`."""
        plan = compile_graph(graph)
        sources, _ = ends_of(plan)
        is_batch(settings, sources)  # rejects an invalid mode before a port is opened for the job
        query_server = JobQueryServer.configured(settings.configuration, self.clock, str(settings.site))
        try:
            job, log = self._prepared(graph, plan, settings)
        except BaseException:
            if query_server is not None:
                query_server.close()
            raise
        if query_server is not None:
            query_server.attach(job, log.write)
        return job

    def _prepared(self, graph: Graph, plan: Plan, settings: JobSettings) -> tuple[Job, JobLog]:
        sources, _ = ends_of(plan)
        is_batch(settings, sources)
        plain_store = self.store or open_store(settings.store or new_folder(graph.job_name))
        self._check_reachable(plain_store, settings)
        check_archive_places(plan, plain_store)
        check_archive_owners(plan, plain_store)
        leased = leased_store(
            plain_store, graph.job_name, settings.configuration, self.clock.now_ms, is_leased=self.is_leased
        )
        try:
            job, log = self._prepared_in(leased, graph, plan, settings)
        except BaseException:
            leased.lease.close()
            raise
        return job, log

    def _prepared_in(self, leased: LeasedStore, graph: Graph, plan: Plan, settings: JobSettings) -> tuple[Job, JobLog]:
        """The job, prepared after its lease keeps other drivers from starting in its store."""
        sources, sinks = ends_of(plan)
        plain_store, batch = leased.plain, is_batch(settings, sources)
        for_driver = driver_settings(
            settings,
            batch=batch,
            parallelism=graph.parallelism,
            max_parallelism=graph.max_parallelism,
            store_url=plain_store.url,
        )
        savepoint_folder = savepoint_directory(settings.configuration)
        record = leased.ready(plan, sinks, settings.configuration, self.clock.now_ms())
        claim_archives(plan, record, plain_store.url)
        bases = tuple(map(open_store, record.bases))
        for base in bases:
            self._check_reachable(base, settings)
        store = layered_store(plain_store, bases)
        runner, session, close_runner = self._runner(settings, plan, plain_store)
        facts = JobFacts(
            job_name=record.job,
            job_id=record.job_id,
            run=new_run(),
            # The layers are on top of the patient store: a source also reads, through its store, files of the snapshot
            # that the job began with.
            store=leased.patient(bases),
            parameters=dict(settings.job_parameters),
            batch_records_max=options.read(options.BATCH_MAX_RECORDS, settings.configuration),
            tier=tier_settings(settings.configuration, plain_store.url),
            batch=batch,
            records_input=options.read(options.RECORD, settings.configuration),
        )
        board = ProgressBoard(JobProgress(record.job, record.job_id, store.url))
        log = attach_log(store, facts.run, board)

        def make_driver() -> EpochDriver:
            sites = {node.uid: str(node.site) for node in plan.nodes()}
            opened_sources = tuple(
                replace(p, source=_at(sites[p.uid], partial(opened_source, p.source, facts.store, session)))
                for p in sources
            )
            opened_sinks = {uid: _at(sites[uid], partial(opened_sink, sink, session)) for uid, sink in sinks.items()}
            replan = partial(_at_parallelism, graph, opened_sources)
            opened_plan = with_sources(plan, opened_sources)
            deployment = Deployment(
                opened_plan, opened_sources, opened_sinks, facts, runner, replan, leased.lease.check
            )
            uids = [planned.uid for planned in sources]
            reporter = ProgressReporter(board, log.write, log.failures.note, show_output, uids, sinks)
            return EpochDriver(deployment, self.clock, reporter, for_driver)

        end = JobEnd(plain_store, leased.lease, log, board, facts.run)
        job = Job(record.job_id, board, store, self.clock, make_driver, savepoint_folder, end)
        removing = partial(remove_run_end, leased.patient())
        job.at_start(partial(run_or_log, "removing the record of the last run's end", removing))
        job.at_end(close_runner)
        return job, log

    def _check_reachable(self, store: Store, settings: JobSettings) -> None:
        """Reject a store that tasks cannot reach, before a JVM is started for them."""
        if self.runner is None:
            shared = options.read(options.STORE_SHARED, settings.configuration)
            check_store_reachable(store.url, _master_of(settings), shared=shared)

    def _runner(self, settings: JobSettings, plan: Plan, store: Store) -> tuple[Runner, Any, Callable[[], None]]:
        """The runner of the tasks, its session, and a function to call when the job has ended."""
        if self.runner is not None:
            return self.runner, settings.session, lambda: None  # its owner closes it
        from millstream.spark.cluster import ready_cluster
        from millstream.spark.elastic_executors import elastic_runner
        from millstream.spark.interrupts import abandon_on_interrupt
        from millstream.spark.python_dependencies import install_requirements, ship_dependencies
        from millstream.spark.runner import SparkRunner
        from millstream.spark.session import has_application, separate_session
        from millstream.spark.stickiness import stickiness_of

        if not has_application():
            self.before_spark()
        packages = _at(str(settings.site), partial(install_requirements, settings.configuration))
        session = separate_session(session_for(settings))
        imports = ship_dependencies(session, settings.configuration, packages)
        is_cluster = not is_one_machine(_master_of(settings))
        if is_cluster:
            abandon_on_interrupt(partial(ready_cluster, session, plan, store.url, has_packages=bool(imports.folders)))
        stickiness = None
        if options.read(options.PLACEMENT_STICKY, settings.configuration):
            stickiness = stickiness_of(session, wait_ms=options.read(options.PLACEMENT_WAIT, settings.configuration))
        spark_runner = SparkRunner(session, imports=imports, stickiness=stickiness)
        runner: Runner = spark_runner
        if is_cluster and options.read(options.RESCALE_AUTO, settings.configuration):
            runner = elastic_runner(runner, session)
        return runner, session, partial(run_or_log, "closing the runner", spark_runner.close)


def _at(site: str, open_it: Callable[[], T]) -> T:
    """Calls `open_it`; an error of ours without a program line gets this one."""
    try:
        return open_it()
    except MillstreamError as error:
        if error.at is None:
            error.at, error.args = site, (f"{error.message.rstrip('.')} ({site})",)
        raise


def launch(
    graph: Graph,
    settings: JobSettings,
    configuration: dict[str, str] | None = None,
    before_spark: Callable[[], object] = lambda: None,
) -> Job:
    """Start a job on Spark. `before_spark` is called just before a JVM is started, if that is necessary."""
    if configuration:
        settings = replace(settings, configuration={**settings.configuration, **configuration})
    return Launch(SystemClock(), before_spark=before_spark).start(graph, settings)


def session_for(settings: JobSettings) -> Any:
    """The user's Spark session, or a new one."""
    if settings.session is not None:
        return settings.session
    from millstream.spark.session import make_session

    spark_settings = {k: v for k, v in settings.configuration.items() if k.startswith("spark.")}
    return make_session(options.read(options.SPARK_MASTER, settings.configuration), spark_settings)


def _master_of(settings: JobSettings) -> str:
    """The master of the user's Spark session, or of the one that will be made."""
    from pyspark.sql import SparkSession

    session = settings.session or SparkSession.getActiveSession()
    if session is not None:
        return str(session.sparkContext.master)
    from millstream.spark.session import chosen_master

    return chosen_master(options.read(options.SPARK_MASTER, settings.configuration), settings.configuration)


def ends_of(plan: Plan) -> tuple[tuple[PlannedSource, ...], dict[str, Sink]]:
    """The sources of a plan, and its sinks by uid."""
    sources = tuple(
        PlannedSource(node.uid or "", node.operation.source, node.parallelism or 1)
        for node in plan.nodes()
        if isinstance(node.operation, Read)
    )
    sinks = {node.uid or "": node.operation.sink for node in plan.nodes() if isinstance(node.operation, Write)}
    return sources, sinks


def with_sources(plan: Plan, opened_sources: tuple[PlannedSource, ...]) -> Plan:
    """The plan with its opened sources, which tasks read with."""
    by_uid = {planned.uid: planned.source for planned in opened_sources}
    stages = tuple(
        replace(
            stage,
            operators=tuple(
                replace(node, operation=replace(node.operation, source=by_uid[node.uid or ""]))
                if isinstance(node.operation, Read)
                else node
                for node in stage.operators
            ),
        )
        for stage in plan.stages
    )
    return replace(plan, stages=stages)


def _at_parallelism(
    graph: Graph, opened_sources: tuple[PlannedSource, ...], parallelism: int
) -> tuple[Plan, tuple[PlannedSource, ...]]:
    """The plan of the program at another parallelism; operators with a parallelism of their own are unchanged."""
    if type(parallelism) is not int or not 1 <= parallelism <= graph.max_parallelism:
        raise ProgramError(
            f"rescale: found {parallelism!r}, expected 1 to {graph.max_parallelism}, the job's maximum parallelism. It "
            "cannot change: it is the number of key groups that state is partitioned into"
        )
    plan = compile_graph(replace(graph, parallelism=parallelism))
    widths = {node.uid: node.parallelism or 1 for node in plan.nodes()}
    sources = tuple(replace(planned, parallelism=widths[planned.uid]) for planned in opened_sources)
    return with_sources(plan, sources), sources


def is_batch(settings: JobSettings, sources: tuple[PlannedSource, ...]) -> bool:
    """Whether the job processes its input as one whole."""
    unbounded = [planned for planned in sources if not planned.source.bounded]
    if settings.runtime_mode == "BATCH" and unbounded:
        raise ProgramError(
            f"runtime mode BATCH needs bounded input, but {unbounded[0].source.describe()} never ends. "
            "Use RuntimeExecutionMode.STREAMING",
            at=str(settings.site),
        )
    return settings.runtime_mode == "BATCH" or (settings.runtime_mode == "AUTOMATIC" and not unbounded)


def new_folder(job_name: str) -> str:
    """A new store for a job without a configured one."""
    slug = re.sub(r"[^a-z0-9]+", "-", job_name.lower()).strip("-")[:40] or "job"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return str(Path(DEFAULT_ROOT, f"{slug}-{stamp}-{secrets.token_hex(2)}"))


def show_output(lines: list[list[str]]) -> None:
    """Replays user code's output and log records from tasks on this process's own streams and loggers."""
    for stream, *rest in lines:
        if stream == "log":
            level, name, text = rest
            if not relay_once(name, logging.getLevelName(level), text):
                logging.getLogger(name).log(logging.getLevelName(level), "%s", text)
        else:
            screen = sys.stderr if stream == "stderr" else sys.stdout
            print(showable(rest[0], screen), file=screen)
