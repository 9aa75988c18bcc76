"""What executors are like: their Python, Arrow and Spark, what they can import, their clock, if they reach the store.

Asked by a Spark job with a task for every core there is, before a job of ours runs on a cluster. It must work where
millstream does not: what runs there is the text of `executor_answers`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.spark import executor_answers

__all__ = ["ExecutorReport", "noted_failure", "survey_executors"]

_NOTED_S, _POLL_S = 5.0, 0.05
_TASKS_MAX = 1_000


@dataclass(frozen=True)
class ExecutorReport:
    """What one executor says. A version is "" where the package is missing; `clock_ahead_ms` is how far its clock is
    ahead of the driver's (0: not further than the question took), `store_refusal` why it cannot use the store."""

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
    """A report of every executor that a task came to: which of `modules` it lacks, whether it reaches the store."""
    slots = max(int(context.defaultParallelism), 1)
    asked_ms = int(time.time() * 1000)
    rows = context.parallelize(range(slots), slots).mapPartitions(_question(modules, store_url)).collect()
    answered_ms = int(time.time() * 1000)
    reports = {_report(row, asked_ms, answered_ms) for row in rows}
    return sorted(reports, key=lambda report: report.place)


def noted_failure(context: Any) -> str:
    """Whose task failed last and why, as Spark has noted it, once it has: the error that was raised may be the task's
    own, which does not say whose it was. Empty if nothing is noted."""
    deadline_s = time.monotonic() + _NOTED_S
    try:
        tracker, notes = context.statusTracker(), context._jsc.sc().statusStore()
        newest = max(tracker.getJobIdsForGroup(None), default=None)
        while newest is not None and time.monotonic() < deadline_s:
            for stage in sorted(tracker.getJobInfo(newest).stageIds, reverse=True):
                tasks = notes.taskList(stage, 0, _TASKS_MAX).iterator()
                while tasks.hasNext():
                    task = tasks.next()
                    if task.status() == "FAILED" and task.errorMessage().isDefined():
                        return f"({task.host()} executor {task.executorId()}): {task.errorMessage().get()}"
            time.sleep(_POLL_S)  # events come to it a moment after the error
    except Exception:
        return ""  # the application has ended, or its insides are not as we know them
    return ""


def _question(modules: tuple[str, ...], store_url: str | None) -> Callable[[Iterable[int]], Iterator[dict[str, Any]]]:
    """The function of the tasks. It is local, and uses nothing of ours: so it is sent by value."""
    text = inspect.getsource(executor_answers)

    def ask(_rows: Iterable[int]) -> Iterator[dict[str, Any]]:
        names: dict[str, Any] = {"__name__": "millstream_answers"}
        exec(text, names)
        yield names["answer"](modules, store_url)

    return ask


def _report(row: dict[str, Any], asked_ms: int, answered_ms: int) -> ExecutorReport:
    """The executor looked at its clock at some moment between question and answer."""
    clock_ms = row.pop("clock_ms")
    return ExecutorReport(**row, clock_ahead_ms=max(clock_ms - answered_ms, 0) + min(clock_ms - asked_ms, 0))
