"""Executors on demand: a job that changes its own parallelism requests and releases executors.

When a plan begins, enough executors for the widest stage are requested at once. Executors that ran no task for a while
are released, but never below that number. No needed data is lost with an executor: a change of parallelism waits until
everything acknowledged is committed, so an executor idle since then has sent its files. Files that remain (if its
subtasks moved while the store was unavailable) are written again, as after any loss.

Spark's dynamic allocation follows other rules (it counts waiting tasks, of which an epoch has none most of the time).
If the application enables it, this module does nothing.
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
    """The interface of runners that `ElasticRunner` wraps."""

    def prepare(self, job: ShippedJob) -> None: ...
    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]: ...
    def record_places(self, places: Collection[tuple[int, str]]) -> None: ...
    def send_unsent(self) -> None: ...
    def cancel(self) -> None: ...


class _Requests(Protocol):
    """The requests to a cluster: see `ExecutorRequests`."""

    def executors(self) -> tuple[Executor, ...]: ...
    def request(self, count: int) -> None: ...
    def release(self, numbers: list[str]) -> None: ...


def executors_for(width: int, cores: int) -> int:
    """The number of executors with `cores` cores that run `width` subtasks at once.

    >>> [executors_for(width, 4) for width in (1, 4, 5, 12)]
    [1, 1, 2, 3]
    """
    return max(1, -(-width // max(cores, 1)))


class ExecutorRequests:
    """Requests and releases executors of one application."""

    def __init__(self, context: Any) -> None:
        self._jvm, self._scheduler = context._jvm, context._jsc.sc()
        self._list = ExecutorList(context)

    def executors(self) -> tuple[Executor, ...]:
        """The executors that run now."""
        return self._list.now()

    def request(self, count: int) -> None:
        """Requests a total number: starts executors if the cluster has room, and stops none."""
        self._scheduler.requestTotalExecutors(count, 0, self._jvm.PythonUtils.toScalaMap({}))

    def release(self, numbers: list[str]) -> None:
        """Stops executors."""
        self._scheduler.killExecutors(self._jvm.PythonUtils.toSeq(numbers))


class ElasticRunner:
    """A runner that adjusts its executors before a plan begins and after every epoch."""

    def __init__(self, runner: _Runner, requests: _Requests, now_s: Callable[[], float] = time.monotonic) -> None:
        self._runner, self._requests, self._now_s = runner, requests, now_s
        self._width = self._count = 0
        self._last_active_s: dict[str, float] = {}

    def prepare(self, job: ShippedJob) -> None:
        """Requests the executors for the plan that begins."""
        self._width = max(stage.width for stage in job.plan().stages)
        self._attempt("request executors", self._request_executors)
        self._runner.prepare(job)

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        return self._runner.run(spec)

    def record_places(self, places: Collection[tuple[int, str]]) -> None:
        """After an epoch: releases executors that were idle for a while."""
        self._runner.record_places(places)
        working = {executor_of(place) for _, place in places if place}
        self._attempt("release executors", lambda: self._release_idle(working))

    def send_unsent(self) -> None:
        self._runner.send_unsent()

    def cancel(self) -> None:
        self._runner.cancel()

    def _request_executors(self) -> None:
        executors = self._requests.executors()
        cores = min((executor.cores for executor in executors), default=1)
        self._count = executors_for(self._width, cores)
        self._requests.request(self._count)

    def _release_idle(self, working: set[str]) -> None:
        """Compares executors by id, because driver and task may use different names for a host."""
        now_s, executors = self._now_s(), self._requests.executors()
        for executor in executors:
            if executor.id in working:
                self._last_active_s[executor.id] = now_s
            self._last_active_s.setdefault(executor.id, now_s)
        surplus = len(executors) - self._count
        idle = [e.id for e in executors if now_s - self._last_active_s[e.id] >= _IDLE_S]
        released = idle[::-1][: max(surplus, 0)]
        if not released or not working:
            return
        self._requests.release(released)
        self._requests.request(self._count)
        for number in released:
            del self._last_active_s[number]
        _LOG.info("released %d idle executors; %d remain", len(released), len(executors) - len(released))

    def _attempt(self, action: str, act: Callable[[], None]) -> None:
        """Runs a request; a failure is logged, and the job continues on the existing executors."""
        try:
            act()
        except Exception as error:
            _LOG.warning("could not %s: %s", action, str(error).strip().partition("\n")[0])


def elastic_runner(runner: _Runner, session: Any) -> _Runner:
    """Wraps the runner for executors on demand, unless Spark's dynamic allocation is enabled."""
    context = session.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return runner
    return ElasticRunner(runner, ExecutorRequests(context))
