"""The driver's side of Spark: stages become one DataFrame, built once and executed every epoch.

    range(width) ─ mapInArrow(stage 0) ─ repartitionById ─ mapInArrow(stage 1) ─ … ─ collect

The rows are envelopes (`runtime.exchange.messages`); the last stage returns acknowledgements only. What runs inside
`mapInArrow` is `spark.worker`. On a cluster every stage also says where its tasks should run (`spark.stickiness`).

What differs from epoch to epoch, the spec, reaches the tasks as a local property, so that neither Python nor Spark
plans anything twice (`spark.spec_files`: a long one is packed, or written to a file in the job's store).

Each epoch needs an execution of its own (Spark would reuse the shuffle files of one that has run). Spark plans it
in some milliseconds, the same every time, so the next epoch's is planned while this epoch runs.

Where all tasks are on this machine and shuffle files lie in its memory, records do not cross the shuffle: tasks lay
blocks in a folder there, which lives as long as the epoch runs (`runtime.exchange.shared_blocks`).
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
from millstream.spark.masters import has_ended, lost_application
from millstream.spark.placed_rows import at_their_places
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
    placed: PlacedRows | None = None,
    memory_folder: str | None = None,
) -> DataFrame:
    """The DataFrame of a plan. Collecting a fresh `_execution_of` it is one epoch. `placed` makes, for a number of
    subtasks, the rows that say where they run; None: anywhere. `memory_folder`: see `stage_function`."""
    imports.apply(session.sparkContext)
    first = plan.stages[0]
    frame = session.range(0, first.width, 1, first.width) if placed is None else placed(first.width)
    frame = frame.mapInArrow(stage_function(job, 0, imports, memory_folder), ENVELOPE_DDL)
    for stage in plan.stages[1:]:
        frame = frame.repartitionById(stage.width, f.col("target"))
        if placed is not None:
            frame = at_their_places(frame, placed(stage.width))
        frame = frame.mapInArrow(stage_function(job, stage.index, imports, memory_folder), ENVELOPE_DDL)
    return frame.select("kind", "payload")


def _execution_of(frame: DataFrame) -> DataFrame:
    """The same frame as a query of its own, planned to the end and ready to run once."""
    # Of all the ways to derive an equal frame an alias is the cheapest: one call into the JVM, gone when optimised.
    execution = frame.alias("epoch")
    execution._jdf.queryExecution().executedPlan()
    return execution


class SparkRunner:
    """Runs epochs as Spark jobs, on a session whose settings are safe (`spark.session`). `imports`: what tasks import
    from, and the archives in their working directory. `stickiness` None: tasks run wherever Spark likes.

    Many attributes: what each epoch is sent with is made once, when the job begins."""

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
        """A job, or another run of it, is about to begin: build its plan."""
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
        """Around whatever is asked of Spark: an error of an application that is over says so, and is final."""
        try:
            yield
        except UserFailureError:
            raise
        except Exception as error:
            if has_ended(self._session.sparkContext):
                raise lost_application(self._master) from error
            raise

    def _build(self) -> None:
        assert self._job is not None
        placed = None if self._stickiness is None else self._stickiness.placed()
        self._frame = build_frame(
            self._session,
            self._job.plan(),
            self._job,
            imports=self._imports,
            placed=placed,
            memory_folder=self._memory_folder,
        )
        self._planned = self._planner.submit(_execution_of, self._frame)

    def ran_at(self, places: Collection[tuple[int, str]]) -> None:
        """Where the tasks of the epoch that just ended ran, by subtask: that is where the next ones should."""
        if self._stickiness is not None and self._stickiness.settle(places):
            self._build()

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        """One epoch; returns (kind, payload) of what the last stage sends."""
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
        watched = nullcontext() if self._stickiness is None else self._stickiness.watched()
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
        """While an epoch runs: the folder in which its tasks lay blocks for each other, if they can."""
        assert self._job is not None
        if self._memory_folder is None:
            return nullcontext()
        return shared_block_folder(block_folder(self._memory_folder, self._job.facts, spec.round))

    def _stage_ids(self, group: str) -> list[int]:
        """The stages of the job's newest Spark job, as Spark numbers them; none if it is forgotten already."""
        tracker = self._session.sparkContext.statusTracker()
        newest = max(tracker.getJobIdsForGroup(group), default=None)
        info = None if newest is None else tracker.getJobInfo(newest)
        return [] if info is None else sorted(info.stageIds)

    def _next_execution(self) -> DataFrame:
        """The execution planned ahead; the one after it is planned from now on, beside the epoch."""
        assert self._frame is not None and self._planned is not None
        planned = self._planned
        self._planned = self._planner.submit(_execution_of, self._frame)
        return planned.result()

    def send_unsent(self) -> None:
        """Executors are to send what processes there have written and left; returns at once."""
        if self._job is not None:
            self._unsent_files.send(self._job.facts)

    def cancel(self) -> None:
        """Stop the epoch that is running, from another thread."""
        if self._job is not None:
            self._session.sparkContext.cancelJobGroup(self._job.facts.job_id)

    def close(self) -> None:
        """The session belongs to its owner and stays; workers close what they have open of the job with their next
        task."""
        self._live_runs.end(self._run_number)
        self._frame = self._planned = None
        self._planner.shutdown(wait=False, cancel_futures=True)
        if self._stickiness is not None:
            self._stickiness.close()
        if self._spec_files is not None:
            self._spec_files.close()
