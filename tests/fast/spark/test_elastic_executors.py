"""A job requests as many executors as its widest stage needs, and releases idle ones, never too many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.spark.elastic_executors import ElasticRunner
from millstream.spark.placement import Executor, place_of


class Cluster:
    """A cluster that grants requests at once, up to `room`."""

    def __init__(self, room: int, cores: int = 1) -> None:
        self.room, self.cores = room, cores
        self.running = [Executor("0", "a", cores)]
        self.requests: list[int] = []
        self.fails = False

    def executors(self) -> tuple[Executor, ...]:
        return tuple(self.running)

    def request(self, count: int) -> None:
        if self.fails:
            raise RuntimeError("the master is away\nfor a moment")
        self.requests.append(count)
        while len(self.running) < min(count, self.room):
            self.running.append(Executor(str(int(self.running[-1].id) + 1), "a", self.cores))

    def release(self, numbers: list[str]) -> None:
        self.running = [executor for executor in self.running if executor.id not in numbers]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Engine:
    """The wrapped runner: it accepts everything."""

    def prepare(self, job: Any) -> None: ...
    def run(self, spec: Any) -> list[tuple[int, bytes]]:
        return []

    def record_places(self, places: Any) -> None: ...
    def send_unsent(self) -> None: ...
    def cancel(self) -> None: ...


def job(width: int) -> Any:
    stages = (SimpleNamespace(width=1), SimpleNamespace(width=width))
    return SimpleNamespace(plan=lambda: SimpleNamespace(stages=stages))


def epoch_on(runner: ElasticRunner, *executors: Executor) -> None:
    runner.record_places([(subtask, place_of(executor)) for subtask, executor in enumerate(executors)])


def test_a_wider_plan_requests_executors_and_a_narrower_one_releases_idle_ones() -> None:
    cluster, clock = Cluster(room=4), Clock()
    runner = ElasticRunner(Engine(), cluster, clock)
    runner.prepare(job(3))
    assert [executor.id for executor in cluster.running] == ["0", "1", "2"]
    epoch_on(runner, *cluster.running)
    runner.prepare(job(1))
    epoch_on(runner, cluster.running[0])
    clock.now_s = 9
    epoch_on(runner, cluster.running[0])
    assert len(cluster.running) == 3, "no executor has been idle for long"
    clock.now_s = 11
    epoch_on(runner, cluster.running[0])
    assert [executor.id for executor in cluster.running] == ["0"]
    assert cluster.requests[-1] == 1


def test_a_busy_executor_is_retained_under_any_host_name_of_its_tasks() -> None:
    cluster, clock = Cluster(room=2), Clock()
    runner = ElasticRunner(Engine(), cluster, clock)
    runner.prepare(job(2))
    runner.prepare(job(1))
    for clock.now_s in (0, 6, 12):
        runner.record_places([(0, "1@a.example")])
    assert [executor.id for executor in cluster.running] == ["1"]


def test_executors_are_counted_by_their_cores() -> None:
    cluster = Cluster(room=9, cores=4)
    ElasticRunner(Engine(), cluster, Clock()).prepare(job(9))
    assert cluster.requests == [3]


def test_busy_executors_are_retained_even_if_there_are_too_many() -> None:
    cluster, clock = Cluster(room=3), Clock()
    runner = ElasticRunner(Engine(), cluster, clock)
    runner.prepare(job(3))
    runner.prepare(job(1))
    for clock.now_s in (0.0, 20.0, 40.0):  # a task runs elsewhere now and then: no executor is idle
        epoch_on(runner, *cluster.running)
    assert len(cluster.running) == 3


def test_no_executor_is_released_if_tasks_do_not_report_their_location() -> None:
    cluster, clock = Cluster(room=3), Clock()
    runner = ElasticRunner(Engine(), cluster, clock)
    runner.prepare(job(3))
    runner.prepare(job(1))
    for clock.now_s in (0.0, 20.0):
        runner.record_places([])
    assert len(cluster.running) == 3


def test_a_failed_request_is_logged_and_the_job_continues(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(room=3)
    cluster.fails = True
    ElasticRunner(Engine(), cluster, Clock()).prepare(job(3))
    assert "could not request executors: the master is away" in caplog.text
