"""Runs inside a Spark task: determines the subtask and its epoch, and the state that the process shares between tasks.

Spark calls a stage's function with the rows that the previous stage sent to this task. A Python worker process runs
many tasks, one after the other, and retains five things between them: open operators (`Residents`), the runs that they
belong to, a long spec of the epoch, which is read once for all tasks, the objects hidden from the garbage collector,
and the folder in which the process was started.
"""

from __future__ import annotations

import base64
import gc
import os
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark import __version__ as pyspark_version

from millstream.errors import MillstreamError
from millstream.runtime.task.garbage import fewer_collections
from millstream.runtime.task.residents import Residents
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec, JobFacts
from millstream.runtime.task.task import failed_start, run_task
from millstream.spark.executor_checks import check_this_executor
from millstream.spark.executors import own_place
from millstream.spark.live_runs import RUNS_PROPERTY, RunNotice, SeenRuns
from millstream.spark.task_imports import TaskImports
from millstream.storage.store import Store

__all__ = [
    "SPEC_FILE_MARK",
    "SPEC_PACKED_MARK",
    "SPEC_PROPERTY",
    "LastingObjects",
    "SpecFile",
    "WorkingFolder",
    "block_folder",
    "pack_spec",
    "stage_function",
    "unpack_spec",
]

SPEC_PROPERTY = "millstream.epoch"
"""The local property of a Spark job that contains the epoch's spec, or its location."""
SPEC_FILE_MARK = "file:"
"""Prefix of the property if the spec is in a file of the job's store; the file's name follows."""
SPEC_PACKED_MARK = "packed:"
"""Prefix of the property if the spec is packed because of its length; the result of `pack_spec` follows."""

_HIDDEN_OPENINGS = 8
"""How many subtasks may be opened and closed before their remains are collected."""

StageFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def stage_function(
    job: ShippedJob, stage: int, imports: TaskImports | None = None, memory_folder: str | None = None
) -> StageFunction:
    """The function of a stage's tasks; Spark sends it to the workers once. `imports`: it runs in the folder of the
    program's archives, if there are any. `memory_folder`: the parent of the folder for exchanged blocks."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _run_in_worker(job, stage, rows, imports or TaskImports(), memory_folder)

    return run


def _run_in_worker(
    job: ShippedJob, stage: int, rows: Iterator[pa.RecordBatch], imports: TaskImports, memory_folder: str | None
) -> Iterator[pa.RecordBatch]:
    check_this_executor(pyspark_version)
    _WORKING_FOLDER.enter(imports.working_folder(SparkFiles.getRootDirectory()) if imports.archives else None)
    context = TaskContext.get()
    assert context is not None
    _close_ended_runs(context, job.facts.run)
    try:
        spec = _spec(context, job.facts)
    except MillstreamError as error:  # the store is unavailable, or no longer has it
        yield from failed_start(job, stage, context.partitionId(), own_place(), rows, error)
        return
    assignment = Assignment(
        stage=stage,
        subtask=context.partitionId(),
        attempt=context.attemptNumber(),
        nonce=f"{job.facts.run}t{spec.round}n{context.taskAttemptId()}",
        place=own_place(),
        block_folder=block_folder(memory_folder, job.facts, spec.round) if memory_folder else "",
    )
    openings = _RESIDENTS.openings
    with fewer_collections():
        yield from run_task(job, spec, assignment, rows, _RESIDENTS)
    if _RESIDENTS.openings != openings:
        _LASTING_OBJECTS.freeze(_RESIDENTS)


def _close_ended_runs(context: TaskContext, run: str) -> None:
    """Closes operators of ended runs in this process."""
    notice = context.getLocalProperty(RUNS_PROPERTY)
    if notice is not None:
        _RESIDENTS.close_runs(_SEEN_RUNS.pop_ended(run, RunNotice.decode(notice)))


def block_folder(memory_folder: str, facts: JobFacts, round_: int) -> str:
    """The folder for blocks of one execution of the plan, unique to it."""
    return f"{memory_folder}/blocks-{facts.run}t{round_}"


def _spec(context: TaskContext, facts: JobFacts) -> EpochSpec:
    """This task's part of the epoch's spec."""
    text = context.getLocalProperty(SPEC_PROPERTY)
    assert text is not None
    if text.startswith(SPEC_FILE_MARK):
        text = _SPEC_FILE.text(facts.in_task().store, text.removeprefix(SPEC_FILE_MARK))
    elif text.startswith(SPEC_PACKED_MARK):
        text = unpack_spec(text)
    return EpochSpec.decode(text, context.partitionId())


def pack_spec(text: str) -> str:
    """Compresses the text of a spec for the property. The entries of subtasks are similar: an eighth remains.

    >>> unpack_spec(pack_spec('{"epoch": 7}'))
    '{"epoch": 7}'
    """
    return SPEC_PACKED_MARK + base64.b64encode(zlib.compress(text.encode(), 1)).decode("ascii")


@lru_cache(maxsize=1)
def unpack_spec(packed: str) -> str:
    """Inverts `pack_spec`. Cached for the tasks of one epoch, which all get the same text."""
    return zlib.decompress(base64.b64decode(packed.removeprefix(SPEC_PACKED_MARK))).decode()


class SpecFile:
    """Caches the spec file that this worker process read last. The file's name identifies its content."""

    def __init__(self) -> None:
        self._place, self._text = ("", ""), ""

    def text(self, store: Store, name: str) -> str:
        """The text of the file."""
        if self._place != (store.url, name):
            self._place, self._text = (store.url, name), store.get(name).decode()
        return self._text


class LastingObjects:
    """Hides long-lived objects of this worker (modules, open operators) from the garbage collector.

    Spark's worker runs a full collection after every task, over all objects: 20 to 60 ms of each task, just when the
    next one is due. New objects are collected before they are hidden, which costs almost nothing. Operators that were
    hidden and have been closed since are found only by a collection of everything. That costs as much as Spark's, so
    it runs when as many subtasks have been opened since the last one as were open then, and at least a minimum: a
    short job opens few, and would spend a twentieth of its time on it.
    """

    def __init__(self) -> None:
        self._openings = self._open = 0  # when all was collected last

    def freeze(self, residents: Residents) -> None:
        """Hides new objects, after operators were opened."""
        if residents.openings - self._openings >= max(self._open, _HIDDEN_OPENINGS):
            self._openings, self._open = residents.openings, len(residents)
            gc.unfreeze()
        gc.collect()
        gc.freeze()


class WorkingFolder:
    """The working directory of this worker. Jobs of one application share workers, and each has a separate one."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._current: str | None = None

    def enter(self, folder: str | None) -> None:
        """Changes the directory; None: where the worker was started."""
        if folder == self._current:
            return
        self._first = self._first or os.getcwd()
        os.chdir(folder or self._first)
        self._current = folder


# These live as long as the Python worker process.
_RESIDENTS = Residents()
_SEEN_RUNS = SeenRuns()
_SPEC_FILE = SpecFile()
_WORKING_FOLDER = WorkingFolder()
_LASTING_OBJECTS = LastingObjects()
