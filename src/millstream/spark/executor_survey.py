"""Surveys executors: versions of Python, Arrow and Spark, importable modules, clock, and access to the store.

The survey is a Spark job with one task per core, run before the first job on a cluster. It must work where millstream
does not: its tasks run the text of `executor_probe`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.spark import executor_probe

__all__ = ["ExecutorReport", "last_task_failure", "survey_executors"]

_STATUS_S, _POLL_S = 5.0, 0.05
_TASKS_MAX = 1_000


@dataclass(frozen=True)
class ExecutorReport:
    """The report of an executor. A version is "" if the package is missing. `clock_ahead_ms`: how far its clock is
    ahead of the driver's, 0 within the duration of the survey; `store_refusal`: why the store cannot be used."""

    place: str
    python: str
    interpreter: str
    platform: str
    pyspark: str
    pyarrow: str
    millstream: str
    missing: tuple[str, ...]
    clock_ahead_ms: int
    store_refusal: str
    disk_refusal: str


def survey_executors(context: Any, modules: tuple[str, ...], store_url: str | None) -> list[ExecutorReport]:
    """Reports of all executors that ran a task: which of `modules` they lack, and whether they reach the store."""
    slots = max(int(context.defaultParallelism), 1)
    started_ms = int(time.time() * 1000)
    rows = context.parallelize(range(slots), slots).mapPartitions(_probe_task(modules, store_url)).collect()
    finished_ms = int(time.time() * 1000)
    reports = {_report(row, started_ms, finished_ms) for row in rows}
    return sorted(reports, key=lambda report: report.place)


def last_task_failure(context: Any) -> str:
    """The executor and message of the last failed task, from Spark's status store; empty if unknown. The raised error
    may be the task's own exception, which does not name the executor."""
    deadline_s = time.monotonic() + _STATUS_S
    try:
        tracker, statuses = context.statusTracker(), context._jsc.sc().statusStore()
        newest = max(tracker.getJobIdsForGroup(None), default=None)
        while newest is not None and time.monotonic() < deadline_s:
            for stage in sorted(tracker.getJobInfo(newest).stageIds, reverse=True):
                tasks = statuses.taskList(stage, 0, _TASKS_MAX).iterator()
                while tasks.hasNext():
                    task = tasks.next()
                    if task.status() == "FAILED" and task.errorMessage().isDefined():
                        return f"({task.host()} executor {task.executorId()}): {task.errorMessage().get()}"
            time.sleep(_POLL_S)  # the status store receives events shortly after the error
    except Exception:
        return ""  # the application has ended, or Spark's internals differ
    return ""


def _probe_task(modules: tuple[str, ...], store_url: str | None) -> Callable[[Iterable[int]], Iterator[dict[str, Any]]]:
    """The task's function. It is local and references no module of ours, so cloudpickle sends it by value."""
    text = inspect.getsource(executor_probe)

    def run_probe(_rows: Iterable[int]) -> Iterator[dict[str, Any]]:
        names: dict[str, Any] = {"__name__": "millstream_probe"}
        exec(text, names)
        yield names["probe"](modules, store_url)

    return run_probe


def _report(row: dict[str, Any], started_ms: int, finished_ms: int) -> ExecutorReport:
    """Builds a report. The executor read its clock at some time between start and finish."""
    clock_ms = row.pop("clock_ms")
    return ExecutorReport(**row, clock_ahead_ms=max(clock_ms - finished_ms, 0) + min(clock_ms - started_ms, 0))
