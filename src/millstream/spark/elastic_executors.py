"""Executors on demand: a job that changes its parallelism by itself asks Spark for as many as that takes.

Asked for are always enough for the widest stage, at once when a plan begins. Given back are executors that had no task
for a while, never so many that fewer than that are left. An executor that goes takes nothing along that is needed: a
change of the parallelism waits until all that was acknowledged is committed, so one that is idle since then has sent
its files. Should it have some left (its subtasks moved while the store was away), they are written again, as after any
loss.

Spark's own dynamic allocation does the same by other rules (it counts waiting tasks, of which an epoch has none for
most of its time). Where an application has that on, it is left alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec
from millstream.spark.executors import ExecutorList
from millstream.spark.placement import Executor, executor_of

__all__ = ["ElasticRunner", "ExecutorRequests", "elastic_runner", "executors_for"]

_LOG = logging.getLogger("millstream")
_IDLE_S = 10.0


class _Runner(Protocol):
    """What an elastic runner stands before."""

    def prepare(self, job: ShippedJob) -> None: ...
    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]: ...
    def ran_at(self, places: Collection[tuple[int, str]]) -> None: ...
    def send_unsent(self) -> None: ...
    def cancel(self) -> None: ...


class _Requests(Protocol):
    """What is asked of a cluster: see `ExecutorRequests`."""

    def executors(self) -> tuple[Executor, ...]: ...
    def request(self, count: int) -> None: ...
    def release(self, numbers: list[str]) -> None: ...


def executors_for(width: int, cores: int) -> int:
    """How many executors of so many cores run `width` subtasks at once.

    >>> [executors_for(width, 4) for width in (1, 4, 5, 12)]
    [1, 1, 2, 3]
    """
    return max(1, -(-width // max(cores, 1)))


class ExecutorRequests:
    """The requests of one application."""

    def __init__(self, context: Any) -> None:
        self._jvm, self._scheduler = context._jvm, context._jsc.sc()
        self._list = ExecutorList(context)

    def executors(self) -> tuple[Executor, ...]:
        """Those that run now."""
        return self._list.now()

    def request(self, count: int) -> None:
        """Ask for so many in all: more are started where the cluster has room, none is stopped."""
        self._scheduler.requestTotalExecutors(count, 0, self._jvm.PythonUtils.toScalaMap({}))

    def release(self, numbers: list[str]) -> None:
        """Stop these."""
        self._scheduler.killExecutors(self._jvm.PythonUtils.toSeq(numbers))


class ElasticRunner:
    """A runner that sees to its executors before a plan begins, and after every epoch."""

    def __init__(self, runner: _Runner, requests: _Requests, now_s: Callable[[], float] = time.monotonic) -> None:
        self._runner, self._requests, self._now_s = runner, requests, now_s
        self._width = self._count = 0
        self._worked_s: dict[str, float] = {}

    def prepare(self, job: ShippedJob) -> None:
        """Ask for the executors of the plan that begins."""
        self._width = max(stage.width for stage in job.plan().stages)
        self._attempt("ask for executors", self._ask)
        self._runner.prepare(job)

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        return self._runner.run(spec)

    def ran_at(self, places: Collection[tuple[int, str]]) -> None:
        """After an epoch: give back executors that had nothing to do for a while."""
        self._runner.ran_at(places)
        working = {executor_of(place) for _, place in places if place}
        self._attempt("give executors back", lambda: self._give_back(working))

    def send_unsent(self) -> None:
        self._runner.send_unsent()

    def cancel(self) -> None:
        self._runner.cancel()

    def _ask(self) -> None:
        executors = self._requests.executors()
        cores = min((executor.cores for executor in executors), default=1)
        self._count = executors_for(self._width, cores)
        self._requests.request(self._count)

    def _give_back(self, working: set[str]) -> None:
        """By their ids: driver and task need not have the same name for a host."""
        now_s, executors = self._now_s(), self._requests.executors()
        for executor in executors:
            if executor.id in working:
                self._worked_s[executor.id] = now_s
            self._worked_s.setdefault(executor.id, now_s)
        surplus = len(executors) - self._count
        idle = [e.id for e in executors if now_s - self._worked_s[e.id] >= _IDLE_S]
        released = idle[::-1][: max(surplus, 0)]
        if not released or not working:
            return
        self._requests.release(released)
        self._requests.request(self._count)
        for number in released:
            del self._worked_s[number]
        _LOG.info(
            "%d executors were idle and are given back; %d are left", len(released), len(executors) - len(released)
        )

    def _attempt(self, what: str, act: Callable[[], None]) -> None:
        """The job runs on what executors there are, whatever becomes of a wish for others."""
        try:
            act()
        except Exception as error:
            _LOG.warning("could not %s: %s", what, str(error).strip().partition("\n")[0])


def elastic_runner(runner: _Runner, session: Any) -> _Runner:
    """The runner with executors on demand, unless Spark itself sees to their number."""
    context = session.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return runner
    return ElasticRunner(runner, ExecutorRequests(context))
