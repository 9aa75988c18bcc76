"""Placement of subtasks: those that can stay do, no executor gets more than its share, and then placement is stable."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark import locality_waits
from millstream.spark.executors import own_place, place_in
from millstream.spark.locality_waits import LocalityWaits, LossWatch
from millstream.spark.placement import Executor, last_places, place_of, place_subtasks
from millstream.spark.stickiness import Stickiness
from millstream.spark.warm_up import WarmUp

executor_lists = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(
    lambda cores: [Executor(str(number), "host", count) for number, count in enumerate(cores)]
)


def share_of(executor: Executor, executors: list[Executor], width: int) -> int:
    """The maximum number of subtasks per executor, counted one by one: the slow reference."""
    whole = sum(other.cores for other in executors)
    return next(count for count in range(width + 1) if count * whole >= width * executor.cores)


@given(executor_lists, st.integers(1, 20), st.dictionaries(st.integers(0, 19), st.sampled_from("01234567")))
def test_subtasks_that_can_stay_do_no_executor_exceeds_its_share_and_placement_is_stable(
    executors: list[Executor], width: int, before: dict[int, str]
) -> None:
    places = place_subtasks(width, executors, before)
    counts = Counter(place.id for place in places)
    for executor in executors:
        share = share_of(executor, executors, width)
        assert counts[executor.id] <= share
        # However uneven: no executor needs more rounds than if each task took the next free core of all.
        whole = sum(other.cores for other in executors)
        assert -(-counts[executor.id] // executor.cores) <= -(-width // whole)
        had = [subtask for subtask in range(width) if before.get(subtask) == executor.id]
        stayed = [subtask for subtask in had if places[subtask] == executor]
        assert len(stayed) == min(len(had), share)
    settled = {subtask: place.id for subtask, place in enumerate(places)}
    assert place_subtasks(width, executors, settled) == places


def test_an_executor_with_more_cores_gets_more_subtasks() -> None:
    big, small = Executor("0", "a", 2), Executor("1", "b", 1)
    assert Counter(place.id for place in place_subtasks(6, [big, small], {})) == {"0": 4, "1": 2}


def test_narrow_stages_use_the_same_executors_and_are_spread_evenly() -> None:
    executors = [Executor(str(number), "host") for number in range(3)]
    wide = place_subtasks(7, executors, {})
    assert {place.id for place in wide[:3]} == {"0", "1", "2"}


def test_a_location_is_read_from_the_executors_command_line_and_unknown_elsewhere() -> None:
    assert place_in(["java", "-cp", "x", "Backend", "--hostname", "10.1.2.3", "--executor-id", "12"]) == "12@10.1.2.3"
    assert own_place() == ""


class Cluster:
    """Executors that join and leave, and a record of how the plan was built."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)

    def now(self) -> tuple[Executor, ...]:
        return tuple(Executor(number, "host") for number in self.ids)


def places_of(stickiness: Stickiness) -> list[str]:
    return [place.id for place in stickiness._places]


def sticky(cluster: Cluster, width: int) -> Stickiness:
    session: Any = None  # no plan is built here
    stickiness = Stickiness(session, cluster.now)
    stickiness.begin(width)
    return stickiness


def test_subtasks_of_a_lost_executor_move_once_and_stay() -> None:
    cluster = Cluster("0", "1", "2")
    stickiness = sticky(cluster, 3)
    assert places_of(stickiness) == ["0", "1", "2"]
    assert not stickiness.update_places([(0, "0@host"), (1, "1@host"), (2, "2@host")])
    cluster.ids = ["0", "2"]  # Spark ran on 2 a task placed on 1
    assert stickiness.update_places([(0, "0@host"), (1, "2@host"), (2, "2@host")])
    assert places_of(stickiness) == ["0", "2", "2"]
    assert not stickiness.update_places([(0, "0@host"), (1, "2@host"), (2, "2@host")])
    cluster.ids = ["0", "2", "3"]
    assert stickiness.update_places([(0, "0@host"), (1, "2@host"), (2, "2@host")])
    assert places_of(stickiness) == ["0", "2", "3"], "the new executor has its share, and nothing else moved"
    assert not stickiness.update_places([(0, "0@host"), (1, "2@host"), (2, "3@host")])


def test_an_executor_lost_between_two_epochs_gets_no_subtask_in_the_next_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster("0", "1", "2")
    stickiness = sticky(cluster, 3)
    cluster.ids = ["0", "1", "2", "3"]
    assert not stickiness.has_lost_places(), "a new executor gets its share after an epoch"
    cluster.ids = ["0", "2", "3"]
    assert stickiness.has_lost_places()
    assert places_of(stickiness) == ["0", "2", "3"] and not stickiness.has_lost_places()
    stickiness.begin(3)
    assert caplog.text.count("lost: executor 1@host, which has ended") == 1


def test_an_executor_that_could_not_reach_the_store_is_avoided_for_some_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its machine may be disconnected. Subtasks sent back there would fail again, and the job would never make
    progress.
    """
    cluster = Cluster("0", "1", "2")
    stickiness = sticky(cluster, 3)
    stickiness.update_places([(0, "0@host"), (1, "1@host"), (2, "2@host")])
    stickiness.avoid({"1@host", ""})
    stickiness.begin(3)  # the job is restarted
    assert "1" not in places_of(stickiness)
    assert "executor 1@host did not reach the store" in caplog.text
    places = list(enumerate(f"{place}@host" for place in places_of(stickiness)))
    epochs = next(epoch for epoch in range(100) if stickiness.update_places(places))
    assert "1" in places_of(stickiness) and epochs > 10, "it is requested again"
    stickiness.avoid({"0@host", "1@host", "2@host"})
    stickiness.begin(3)
    assert places_of(stickiness) == [], "if no executor reaches it, the store is unreachable"


def test_losing_all_executors_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("0", "1")
    stickiness = sticky(cluster, 2)
    cluster.ids = ["1"]
    assert stickiness._has_losses() and "continue on other executors" in caplog.text
    cluster.ids = []
    assert stickiness._has_losses() and "None is left: the job waits until" in caplog.text


class ScriptedWarmUp(WarmUp):
    """Makes executors ready on request of the test."""

    def __init__(self) -> None:
        super().__init__(None)
        self.requests: list[str] = []

    def is_ready(self, executor: Executor) -> bool:
        if executor.id not in self._ready and executor.id not in self.requests:
            self.requests.append(executor.id)
        return executor.id in self._ready


def test_an_executor_that_joins_a_running_job_gets_its_share_when_it_is_ready() -> None:
    cluster, warm_up = Cluster("0", "1", "2"), ScriptedWarmUp()
    stickiness = Stickiness(None, cluster.now, warm_up=warm_up)
    stickiness.begin(3)
    for _ in range(6):
        assert not stickiness.update_places([(0, "0@host"), (1, "1@host"), (2, "2@host")])
    assert warm_up.requests == [], "executors present at the start count as ready"
    cluster.ids = ["0", "1", "3"]
    assert stickiness.has_lost_places() and "3" not in places_of(stickiness) and warm_up.requests == ["3"]
    places = [(subtask, f"{place}@host") for subtask, place in enumerate(places_of(stickiness))]
    assert not stickiness.update_places(places)
    warm_up.assume_ready([Executor("3", "host")])
    assert stickiness.update_places(places) and sorted(places_of(stickiness)) == ["0", "1", "3"]
    cluster.ids = ["4", "5"]
    assert stickiness.has_lost_places()
    assert set(places_of(stickiness)) == {"4", "5"}, "if no executor is ready, none is waited for"


def test_a_subtask_moved_from_a_busy_executor_stays_on_the_new_one() -> None:
    cluster = Cluster("0", "1")
    stickiness = sticky(cluster, 3)
    assert places_of(stickiness) == ["0", "1", "0"]
    assert stickiness.update_places([(0, "0@host"), (1, "1@host"), (2, "1@host")])
    assert places_of(stickiness) == ["0", "1", "1"]
    assert not stickiness.update_places([(0, "0@host"), (1, "1@host"), (2, "1@host")])


def test_an_executor_that_accepts_no_tasks_is_avoided_for_a_while() -> None:
    stickiness = sticky(Cluster("0", "1", "2"), 3)
    without_the_last = [(0, "0@host"), (1, "1@host"), (2, "1@host")]  # it is being decommissioned
    assert stickiness.update_places(without_the_last)
    changes = [stickiness.update_places(without_the_last) for _ in range(60)]
    assert changes.count(True) <= 2, "it was retried once and failed again"
    assert places_of(stickiness) == ["0", "1", "1"]


def test_placement_starts_with_the_second_executor() -> None:
    cluster = Cluster("0")
    stickiness = sticky(cluster, 2)
    assert stickiness.row_factory() is None
    assert not stickiness.update_places([(0, "0@host"), (1, "0@host")])
    cluster.ids.append("1")
    assert stickiness.update_places([(0, "0@host"), (1, "0@host")])
    assert places_of(stickiness) == ["0", "1"]


@given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d"]), st.integers(1, 12))
def test_a_job_restarted_on_the_same_machines_places_each_subtask_with_its_files(
    first: list[str], again: list[str], width: int
) -> None:
    def hosts_after_a_start(order: list[str]) -> list[str]:
        registered: list[Executor] = []  # one after another, one per epoch
        stickiness = Stickiness(None, lambda: tuple(registered))
        stickiness.begin(width)
        for number, host in enumerate(order):
            registered.append(Executor(str(number), host))
            last_run = stickiness._places or [registered[0]] * width
            stickiness.update_places([(subtask, place_of(executor)) for subtask, executor in enumerate(last_run)])
        return [executor.host for executor in stickiness._places]

    assert hosts_after_a_start(first) == hosts_after_a_start(again)


def test_a_rescale_preserves_the_placement_of_remaining_subtasks() -> None:
    cluster = Cluster("0", "1", "2")
    stickiness = sticky(cluster, 3)
    stickiness.update_places([(0, "2@host"), (1, "1@host"), (2, "0@host")])
    stickiness.begin(2)
    assert places_of(stickiness) == ["2", "1"]
    stickiness.begin(4)
    assert places_of(stickiness)[:3] == ["2", "1", "0"]


def test_conflicting_stages_do_not_move_a_subtask() -> None:
    assert last_places([(0, "1@h"), (0, "2@h")], {0: "2"}) == {0: "2"}
    assert last_places([(0, ""), (1, "")], {0: "2"}) == {0: "2"}


class SparkSettings(dict[str, str]):
    """Spark's settings as stored in the JVM."""

    def contains(self, key: str) -> bool:
        return key in self

    def set(self, key: str, value: str) -> None:
        self[key] = value


def test_the_locality_wait_is_set_in_a_running_application_and_again_by_its_next_job() -> None:
    settings = SparkSettings()
    LocalityWaits(settings, 1_000)
    LocalityWaits(settings, 250)
    waits = [settings[f"spark.locality.wait.{level}"] for level in ("process", "node", "rack")]
    assert waits == ["250ms", "0ms", "0ms"]


@pytest.mark.parametrize(("lost", "wait"), [("1", "0ms"), ("3", "1000ms")], ids=["with a place", "without"])
def test_during_an_epoch_no_task_waits_for_a_lost_executor_and_afterwards_tasks_wait_again(
    monkeypatch: pytest.MonkeyPatch, lost: str, wait: str
) -> None:
    monkeypatch.setattr(locality_waits, "_POLL_S", 0.01)
    settings, cluster, polls = SparkSettings(), Cluster("0", "1", "2", "3"), threading.Semaphore(0)

    def now() -> tuple[Executor, ...]:
        polls.release()
        return cluster.now()

    stickiness = Stickiness(None, now, LossWatch(LocalityWaits(settings, 1_000)))
    stickiness.begin(3)
    with stickiness.watch_epoch():
        assert settings["spark.locality.wait.process"] == "1000ms"
        cluster.ids.remove(lost)
        while polls.acquire(blocking=False):
            pass
        assert polls.acquire(timeout=60)
        deadline = time.monotonic() + 10
        while settings["spark.locality.wait.process"] != wait and time.monotonic() < deadline:
            time.sleep(0.01)
        assert settings["spark.locality.wait.process"] == wait
    assert settings["spark.locality.wait.process"] == "1000ms"
    stickiness.close()


def test_a_locality_wait_set_by_the_user_is_retained_and_logged(caplog: Any) -> None:
    settings = SparkSettings({"spark.locality.wait.process": "7s"})
    LocalityWaits(settings, 1_000)
    LocalityWaits(settings, 1_000).drop()  # of a second job of the application
    assert settings["spark.locality.wait.process"] == "7s"
    assert "spark.locality.wait.process is 7s in this application and is not changed to 1000ms" in caplog.text


def test_a_spark_without_placement_support_is_reported_once_and_the_job_continues(caplog: Any) -> None:
    stickiness = sticky(Cluster("0", "1"), 2)
    assert stickiness.row_factory() is None  # there is no session to build in
    assert stickiness.row_factory() is None
    assert not stickiness.update_places([(0, "0@host"), (1, "1@host")])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "subtasks may move between executors" in caplog.text
