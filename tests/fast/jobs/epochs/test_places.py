"""Tasks report where they ran; the driver counts those that stayed, passes the locations on, and shows the share."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from programs.loops import collatz
from rich.console import Console

from millstream.cli.checkpoints import show_checkpoints
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.console.console_view import ConsoleView, render
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.launch.launch import Launch
from millstream.runtime.exchange.messages import ACKNOWLEDGEMENT
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.spec import EpochSpec
from millstream.storage.store import open_store
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

Place = Callable[[int, int, int], str]
"""Where a task runs, by round, stage and subtask."""


class ScatteredRunner(LocalRunner):
    """Runs everything in this process, but the tasks report other locations."""

    place: Place = staticmethod(lambda round_, stage, subtask: f"{subtask}@host")
    recorded: list[list[tuple[int, str]]]

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        rows = super().run(spec)
        assert {kind for kind, _ in rows} == {ACKNOWLEDGEMENT}
        return [(kind, self._moved(payload, spec.round)) for kind, payload in rows]

    def _moved(self, payload: bytes, round_: int) -> bytes:
        fields = json.loads(payload)
        return json.dumps(fields | {"place": self.place(round_, fields["stage"], fields["subtask"])}).encode()

    def record_places(self, places: Collection[tuple[int, str]]) -> None:
        self.recorded.append(sorted(places))


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> type[ScatteredRunner]:
    ScatteredRunner.recorded = []
    monkeypatch.setattr("millstream.testing.in_memory.LocalRunner", ScatteredRunner)
    return ScatteredRunner


def numbers(env: StreamExecutionEnvironment) -> None:
    source = env.add_source(Script([1, 2, EPOCH, 3, 4, EPOCH, 5, 6], type_info=Types.LONG()))
    source.key_by(lambda n: n).map(lambda n: n, Types.LONG()).sink_to(Collect())


def stays(result: Any) -> list[tuple[int, int] | None]:
    """For each epoch that ran: the number of tasks, and of those that stayed."""
    ran = [statistics for manifest in result.manifests if "run_ms" in (statistics := statistics_of(manifest) or {})]
    return [(statistics["tasks"], statistics["tasks_stayed"]) if "tasks" in statistics else None for statistics in ran]


def test_tasks_that_stayed_are_counted_from_the_second_epoch_on(scattered: type[ScatteredRunner]) -> None:
    moving = {(3, 1, 0): "9@host"}  # in the third round subtask 0 of the second stage was on another executor
    scattered.place = staticmethod(lambda *task: moving.get(task, f"{task[2]}@host"))
    first, *others, last = stays(run(numbers, parallelism=2))
    assert first is None
    assert others == [(3, 3)] * len(others)
    assert last == (3, 2)
    assert len(scattered.recorded) == 3
    assert scattered.recorded[-1].count((0, "9@host")) == 1


def test_rounds_of_a_loop_count_each(scattered: type[ScatteredRunner]) -> None:
    scattered.place = staticmethod(lambda *task: f"{task[2]}@host")
    result = run(lambda env: collatz(env.add_source(Script([7, 9], type_info=Types.LONG())), Collect()), parallelism=2)
    tasks, stayed = stays(result)[0] or (0, 0)
    assert tasks == stayed > 4, "in the first round no task can stay, in the others all can"


def test_with_one_location_nothing_is_counted_or_passed_on(scattered: type[ScatteredRunner]) -> None:
    scattered.place = staticmethod(lambda *task: "")
    assert stays(run(numbers, parallelism=2)) == [None] * 3
    assert scattered.recorded == []


@pytest.mark.parametrize("clustered", [True, False])
def test_the_share_is_shown_on_a_cluster_and_nowhere_else(
    scattered: type[ScatteredRunner], tmp_path: Path, clustered: bool
) -> None:
    scattered.place = staticmethod(lambda *task: f"{task[2]}@host" if clustered else "")
    env = StreamExecutionEnvironment().set_parallelism(2)
    numbers(env)
    launch = Launch(ManualClock(), scattered(), open_store(str(tmp_path / "numbers")))
    job = launch.start(env._graph("numbers"), env._job_settings())
    job.result()
    panel, listing = io.StringIO(), io.StringIO()
    Console(file=panel, width=100).print(render(ConsoleView(job.board.now)))
    assert ("placement: 100 % of tasks stayed" in panel.getvalue()) == clustered
    assert show_checkpoints(str(tmp_path / "numbers"), epoch=2, screen=listing, now_ms=0) == 0
    assert ("3 of 3 tasks stayed where they were" in listing.getvalue()) == clustered
