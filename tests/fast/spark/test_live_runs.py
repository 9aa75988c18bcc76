"""Objects that worker processes hold open for ended runs are closed; those of running ones stay open."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest

from millstream.compiler.passes import compile_graph
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction
from millstream.runtime.task.residents import Residents
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec, JobFacts
from millstream.spark.live_runs import LiveRuns, RunNotice, SeenRuns
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, Script

CLOSED: list[str] = []


class Named(MapFunction):
    """Records when it is closed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        CLOSED.append(self.name)


def job_named(name: str) -> ShippedJob:
    env = StreamExecutionEnvironment()
    env.set_parallelism(1)
    env.add_source(Script([1])).map(Named(name)).sink_to(Collect())
    facts = JobFacts(name, name, f"run of {name}", MemoryStore("live-runs"))
    return ShippedJob(cloudpickle.dumps(compile_graph(env._graph(name))), facts)


class Worker:
    """The state of a worker process from one task to the next."""

    def __init__(self) -> None:
        self.residents, self._runs = Residents(), SeenRuns()

    def task(self, job: ShippedJob, notice: RunNotice) -> None:
        """A task of the job, sent with this notice."""
        self.residents.close_runs(self._runs.pop_ended(job.facts.run, RunNotice.decode(notice.encode())))
        spec = EpochSpec(1, 1, 0, False, {}, {}, {}, {})
        self.residents.subtask(job, spec, Assignment(0, 0, 0, "n"))


@pytest.fixture(autouse=True)
def _nothing_closed() -> None:
    CLOSED.clear()


def test_functions_of_ended_jobs_do_not_accumulate_in_a_worker() -> None:
    worker, runs = Worker(), LiveRuns("driver")
    for job in range(20):
        number = runs.begin()
        worker.task(job_named(f"job {job}"), runs.notice(number))
        runs.end(number)
        assert len(worker.residents) == 1
    assert [f"job {job}" for job in range(19)] == CLOSED, "each was closed, once"


def test_concurrent_jobs_retain_their_functions() -> None:
    worker, runs = Worker(), LiveRuns("driver")
    a, b = job_named("a"), job_named("b")
    first, second = runs.begin(), runs.begin()
    for _ in range(3):
        worker.task(a, runs.notice(first))
        worker.task(b, runs.notice(second))
    assert worker.residents.openings == 2 and not CLOSED
    runs.end(first)
    worker.task(b, runs.notice(second))
    assert CLOSED == ["a"] and len(worker.residents) == 1


def test_a_task_sent_before_another_job_started_does_not_close_that_job() -> None:
    worker, runs = Worker(), LiveRuns("driver")
    first = runs.begin()
    old_notice = runs.notice(first)
    second = runs.begin()
    worker.task(job_named("second"), runs.notice(second))
    worker.task(job_named("first"), old_notice)
    assert not CLOSED and len(worker.residents) == 2


def test_runs_of_another_process_of_the_application_are_not_closed() -> None:
    worker, own_runs, foreign_runs = Worker(), LiveRuns("ours"), LiveRuns("theirs")
    worker.task(job_named("theirs"), foreign_runs.notice(foreign_runs.begin()))
    for job in ("ours", "ours later"):
        number = own_runs.begin()
        worker.task(job_named(job), own_runs.notice(number))
        own_runs.end(number)
    assert CLOSED == ["ours"] and len(worker.residents) == 2
