"""The driver's side of Spark: stages become one DataFrame, built once and executed every epoch.

    range(width) ─ mapInArrow(stage 0) ─ repartitionById ─ mapInArrow(stage 1) ─ … ─ collect

The rows are envelopes (`runtime.exchange.messages`); the last stage returns only acknowledgements. `spark.worker` runs
inside `mapInArrow`. On a cluster every stage also prefers executors for its tasks (`spark.stickiness`).

The spec, which differs per epoch, reaches the tasks as a local property, so that neither Python nor Spark plans again
(`spark.spec_files`: a long spec is packed, or written to a file in the job's store).

Each epoch needs a separate execution (Spark would reuse the shuffle files of a finished one). Spark plans it in a few
milliseconds, the same every time, so the next epoch is planned while this one runs.

If all tasks run on this machine and shuffle files are in memory, records do not cross the shuffle: tasks write blocks
to a folder there, which exists while the epoch runs (`runtime.exchange.shared_blocks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millstream.errors import StoreAwayError
from millstream.plan.stages import Plan
from millstream.runtime.exchange.messages import ENVELOPE_DDL, FAILURE
from millstream.runtime.exchange.shared_blocks import shared_block_folder
from millstream.runtime.operators.user_code import FailureReport, UserFailureError
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec
from millstream.spark.job_failures import job_failure
from millstream.spark.live_runs import LIVE_RUNS, RUNS_PROPERTY, LiveRuns
from millstream.spark.masters import application_lost_error, has_ended
from millstream.spark.placed_rows import join_places
from millstream.spark.session import local_folder_of, memory_folder_of
from millstream.spark.spec_files import SpecFiles
from millstream.spark.stickiness import PlacedRows, Stickiness
from millstream.spark.task_imports import TaskImports
from millstream.spark.unsent_files import UnsentFiles
from millstream.spark.worker import SPEC_PROPERTY, block_folder, stage_function
from millstream.spark.worker_deaths import worker_death

__all__ = ["SparkRunner", "build_frame"]

_NO_IMPORTS = TaskImports()


def build_frame(
    session: SparkSession,
    plan: Plan,
    job: ShippedJob,
    *,
    imports: TaskImports = _NO_IMPORTS,
    row_factory: PlacedRows | None = None,
    memory_folder: str | None = None,
) -> DataFrame:
    """The DataFrame of a plan. Collecting a fresh `_execution_of` it runs one epoch. `row_factory` returns, for a
    number of subtasks, the rows with their places; None: anywhere. `memory_folder`: see `stage_function`."""
    imports.apply(session.sparkContext)
    first = plan.stages[0]
    frame = session.range(0, first.width, 1, first.width) if row_factory is None else row_factory(first.width)
    frame = frame.mapInArrow(stage_function(job, 0, imports, memory_folder), ENVELOPE_DDL)
    for stage in plan.stages[1:]:
        frame = frame.repartitionById(stage.width, f.col("target"))
        if row_factory is not None:
            frame = join_places(frame, row_factory(stage.width))
        frame = frame.mapInArrow(stage_function(job, stage.index, imports, memory_folder), ENVELOPE_DDL)
    return frame.select("kind", "payload")


def _execution_of(frame: DataFrame) -> DataFrame:
    """A separate query of the same frame, fully planned and ready to run once."""
    # An alias is the cheapest way to derive an equal frame: one call into the JVM, removed by the optimiser.
    execution = frame.alias("epoch")
    execution._jdf.queryExecution().executedPlan()
    return execution


class SparkRunner:
    """Runs epochs as Spark jobs, on a session with safe settings (`spark.session`). `imports`: the import folders of
    tasks and the archives in their working directory. `stickiness` None: tasks run on any executor.

    It has many attributes, because it prepares the constant inputs of all epochs when the job begins."""

    def __init__(
        self,
        session: SparkSession,
        *,
        imports: TaskImports = _NO_IMPORTS,
        stickiness: Stickiness | None = None,
        live_runs: LiveRuns = LIVE_RUNS,
    ) -> None:
        self._session, self._imports, self._stickiness = session, imports, stickiness
        self._local_folder = local_folder_of(session)
        self._memory_folder, self._master = memory_folder_of(session), str(session.sparkContext.master)
        self._frame: DataFrame | None = None
        self._job: ShippedJob | None = None
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="millstream-plan")
        self._planned: Future[DataFrame] | None = None
        self._spec_files: SpecFiles | None = None
        self._unsent_files = UnsentFiles(session)
        self._live_runs, self._run_number = live_runs, -1

    def prepare(self, job: ShippedJob) -> None:
        """Builds the plan of a job, or of another run of it, before it begins."""
        self._job = job
        self._live_runs.end(self._run_number)
        self._run_number = self._live_runs.begin()
        if self._spec_files is not None:
            self._spec_files.close()
        self._spec_files = SpecFiles(job.facts.store)
        with self._application():
            if self._stickiness is not None:
                self._stickiness.begin(max(stage.width for stage in job.plan().stages), job)
            self._build()

    @contextmanager
    def _application(self) -> Iterator[None]:
        """Wraps calls to Spark: if the application has ended, raises the final error that states this."""
        try:
            yield
        except UserFailureError:
            raise
        except Exception as error:
            if has_ended(self._session.sparkContext):
                raise application_lost_error(self._master) from error
            raise

    def _build(self) -> None:
        assert self._job is not None
        row_factory = None if self._stickiness is None else self._stickiness.row_factory()
        self._frame = build_frame(
            self._session,
            self._job.plan(),
            self._job,
            imports=self._imports,
            row_factory=row_factory,
            memory_folder=self._memory_folder,
        )
        self._planned = self._planner.submit(_execution_of, self._frame)

    def record_places(self, places: Collection[tuple[int, str]]) -> None:
        """Records where the tasks of the last epoch ran, by subtask; the next ones prefer these places."""
        if self._stickiness is not None and self._stickiness.update_places(places):
            self._build()

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        """Runs an epoch; returns (kind, payload) of the envelopes of the last stage."""
        with self._application():
            return self._run(spec)

    def _run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        assert self._frame is not None and self._job is not None and self._spec_files is not None
        context = self._session.sparkContext
        facts = self._job.facts
        context.setJobGroup(facts.job_id, f"{facts.job_name} epoch {spec.epoch}", interruptOnCancel=True)
        context.setLocalProperty(SPEC_PROPERTY, self._spec_files.property_of(spec))
        context.setLocalProperty(RUNS_PROPERTY, self._live_runs.notice(self._run_number).encode())
        if self._stickiness is not None and self._stickiness.has_lost_places():
            self._build()
        watched = nullcontext() if self._stickiness is None else self._stickiness.watch_epoch()
        try:
            with self._block_folder(spec), watched:
                rows: list[Any] = self._next_execution().collect()
        except Exception as error:
            death = worker_death(error, self._job.plan(), self._stage_ids(facts.job_id), spec.epoch)
            if death is not None:
                raise death from None
            failure = job_failure(error, self._local_folder)
            if failure is not None:
                raise failure from error
            raise
        answers = [(row[0], bytes(row[1])) for row in rows]
        if self._stickiness is not None:
            reports = [FailureReport.decode(payload) for kind, payload in answers if kind == FAILURE and payload]
            self._stickiness.avoid({report.place for report in reports if report.error == StoreAwayError.__name__})
        return answers

    def _block_folder(self, spec: EpochSpec) -> AbstractContextManager[None]:
        """While an epoch runs: the folder for blocks that its tasks exchange, if they can."""
        assert self._job is not None
        if self._memory_folder is None:
            return nullcontext()
        return shared_block_folder(block_folder(self._memory_folder, self._job.facts, spec.round))

    def _stage_ids(self, group: str) -> list[int]:
        """The stage ids of the job's newest Spark job; empty if Spark has already dropped it."""
        tracker = self._session.sparkContext.statusTracker()
        newest = max(tracker.getJobIdsForGroup(group), default=None)
        info = None if newest is None else tracker.getJobInfo(newest)
        return [] if info is None else sorted(info.stageIds)

    def _next_execution(self) -> DataFrame:
        """The execution planned ahead; planning of the one after it starts now, concurrently with the epoch."""
        assert self._frame is not None and self._planned is not None
        planned = self._planned
        self._planned = self._planner.submit(_execution_of, self._frame)
        return planned.result()

    def send_unsent(self) -> None:
        """Lets executors send files that ended processes have left unsent; returns at once."""
        if self._job is not None:
            self._unsent_files.send(self._job.facts)

    def cancel(self) -> None:
        """Cancels the running epoch, from another thread."""
        if self._job is not None:
            self._session.sparkContext.cancelJobGroup(self._job.facts.job_id)

    def close(self) -> None:
        """Releases the runner's resources. The session belongs to the caller and stays open; workers close the job's
        operators with their next task."""
        self._live_runs.end(self._run_number)
        self._frame = self._planned = None
        self._planner.shutdown(wait=False, cancel_futures=True)
        if self._stickiness is not None:
            self._stickiness.close()
        if self._spec_files is not None:
            self._spec_files.close()
