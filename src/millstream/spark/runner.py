"""Where plans meet PySpark: stages become one DataFrame, built once and executed every epoch.

    range(width) ─ mapInArrow(stage 0) ─ repartitionById ─ mapInArrow(stage 1) ─ … ─ collect

The rows are envelopes (`runtime.exchange.envelope`); the last stage returns acknowledgements only. What differs from
epoch to epoch reaches the tasks as a local property, so that neither Python nor Spark plans anything twice; a spec too
large for that goes through a file in the job's store, which a worker process reads once for all its tasks.

Each epoch needs an execution of its own (Spark would reuse the shuffle files of one that has run). Spark plans it
in some milliseconds, the same every time, so the next epoch's is planned while this epoch runs.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millstream.plan.stages import Plan
from millstream.runtime.exchange.envelope import ENVELOPE_DDL
from millstream.runtime.task.garbage import fewer_collections
from millstream.runtime.task.residents import Residents
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec
from millstream.runtime.task.task import run_task
from millstream.storage.names import spec_name
from millstream.storage.store import Store

__all__ = ["LastingObjects", "SparkRunner", "SpecFile", "build_frame"]

_PROPERTY = "millstream.epoch"
_INLINE_CHARACTERS_MAX = 65_536
_FILE_MARK = "file:"

# Operators that stay open between epochs, for the life of a Python worker process.
_RESIDENTS = Residents()


class SpecFile:
    """The spec that this worker process read last, if it came in a file. Its name stands for its content."""

    def __init__(self) -> None:
        self._place, self._text = ("", ""), ""

    def text(self, store: Store, name: str) -> str:
        """The text of the file."""
        if self._place != (store.url, name):
            self._place, self._text = (store.url, name), store.get(name).decode()
        return self._text


_SPEC_FILE = SpecFile()


def build_frame(session: SparkSession, plan: Plan, job: ShippedJob) -> DataFrame:
    """The DataFrame of a plan. Collecting a fresh `_execution_of` it is one epoch."""
    first = plan.stages[0]
    frame = session.range(0, first.width, 1, first.width).mapInArrow(_stage_function(job, 0), ENVELOPE_DDL)
    for stage in plan.stages[1:]:
        frame = frame.repartitionById(stage.width, f.col("target"))
        frame = frame.mapInArrow(_stage_function(job, stage.index), ENVELOPE_DDL)
    return frame.select("kind", "payload")


def _stage_function(job: ShippedJob, stage: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _run_in_worker(job, stage, rows)

    return run


def _run_in_worker(job: ShippedJob, stage: int, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    text = context.getLocalProperty(_PROPERTY)
    assert text is not None
    if text.startswith(_FILE_MARK):
        text = _SPEC_FILE.text(job.facts.store, text.removeprefix(_FILE_MARK))
    spec = EpochSpec.decode(text, context.partitionId())
    assignment = Assignment(
        stage=stage,
        subtask=context.partitionId(),
        attempt=context.attemptNumber(),
        nonce=f"{job.facts.run}t{spec.try_}n{context.taskAttemptId()}",
    )
    openings = _RESIDENTS.openings
    with fewer_collections():
        yield from run_task(job, spec, assignment, rows, _RESIDENTS)
    if _RESIDENTS.openings != openings:
        _LASTING_OBJECTS.set_aside(_RESIDENTS)


class LastingObjects:
    """Hides what lives on in this worker (modules, open operators) from the garbage collector.

    Spark's worker makes a full collection after every task, over every object there is: 20 to 40 ms of each task, just
    when the next one is due. Operators that were set aside and have been closed since, and garbage that was hidden with
    the rest, are found again by a collection of our own. That costs as much, so it is made when as many subtasks have
    been opened since the last one as were open then, not for each of many.
    """

    def __init__(self) -> None:
        self._openings = self._open = 0  # when they were collected last

    def set_aside(self, residents: Residents) -> None:
        """Something was opened: hide it."""
        if residents.openings - self._openings >= self._open:
            self._openings, self._open = residents.openings, len(residents)
            gc.unfreeze()
            gc.collect()
        gc.freeze()


_LASTING_OBJECTS = LastingObjects()


def _execution_of(frame: DataFrame) -> DataFrame:
    """The same frame as a query of its own, planned to the end and ready to run once."""
    # Of all the ways to derive an equal frame an alias is the cheapest: one call into the JVM, gone when optimised.
    execution = frame.alias("epoch")
    execution._jdf.queryExecution().executedPlan()
    return execution


class SparkRunner:
    """Runs epochs as Spark jobs, on a session whose settings are safe (`spark.session`)."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._frame: DataFrame | None = None
        self._job: ShippedJob | None = None
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="millstream-plan")
        self._planned: Future[DataFrame] | None = None

    def prepare(self, job: ShippedJob) -> None:
        """A job, or another run of it, is about to begin: build its plan."""
        self._job = job
        self._frame = build_frame(self._session, job.plan(), job)
        self._planned = self._planner.submit(_execution_of, self._frame)

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        """One epoch; returns (kind, payload) of what the last stage sends."""
        assert self._frame is not None and self._job is not None
        context = self._session.sparkContext
        facts = self._job.facts
        context.setJobGroup(facts.job_id, f"{facts.job_name} epoch {spec.epoch}", interruptOnCancel=True)
        context.setLocalProperty(_PROPERTY, self._property(spec))
        rows: list[Any] = self._next_execution().collect()
        return [(row[0], bytes(row[1])) for row in rows]

    def _next_execution(self) -> DataFrame:
        """The execution planned ahead; the one after it is planned from now on, beside the epoch."""
        assert self._frame is not None and self._planned is not None
        planned = self._planned
        self._planned = self._planner.submit(_execution_of, self._frame)
        return planned.result()

    def _property(self, spec: EpochSpec) -> str:
        text = spec.encode()
        if len(text) <= _INLINE_CHARACTERS_MAX:
            return text
        assert self._job is not None
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = spec_name(spec.epoch, digest)
        self._job.facts.store.put(name, text.encode())
        return _FILE_MARK + name

    def cancel(self) -> None:
        """Stop the epoch that is running, from another thread."""
        if self._job is not None:
            self._session.sparkContext.cancelJobGroup(self._job.facts.job_id)

    def close(self) -> None:
        """The session belongs to its owner and stays."""
        self._frame = self._planned = None
        self._planner.shutdown(wait=False, cancel_futures=True)
