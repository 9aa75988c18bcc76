"""Processing time never moves backwards, whatever the machine's clock does, from one epoch to the next and from one
driver to the next.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.common import Types
from millstream.connectors.contracts import CommitPlan
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import ProcessFunction
from millstream.jobs.epochs.input_plan import PlannedSource
from millstream.jobs.epochs.input_planner import InputPlanner
from millstream.jobs.epochs.manifests import processing_time_ms
from millstream.jobs.epochs.processing_time import ProcessingTime
from millstream.jobs.launch.launch import Launch
from millstream.records.watermarks import IDLE_WATERMARK
from millstream.runtime.task.local import LocalRunner
from millstream.state.stored.times import EventTimeState
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
_DAY_MS = 86_400_000
FIRST = Manifest(job="j", job_id="j1", epoch=1, parent=0, created_ms=0, run="a")


class Clock:
    """A clock that shows a sequence of times, the last one forever."""

    def __init__(self, *shown_ms: int) -> None:
        self._shown_ms = list(shown_ms)

    def now_ms(self) -> int:
        return self._shown_ms.pop(0) if len(self._shown_ms) > 1 else self._shown_ms[0]


class Now(ProcessFunction):
    """The processing time of each record."""

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value, ctx.timer_service().current_processing_time()


def run(
    store: MemoryStore, clock: Any, act: Callable[[Any], None] = lambda job: None, out: Collect | None = None
) -> list[tuple[int, int]]:
    env, out = StreamExecutionEnvironment.get_execution_environment(), out or Collect()
    numbers = env.add_source(Script([1, EPOCH, 2, EPOCH, 3, EPOCH], type_info=Types.LONG())).uid("numbers")
    numbers.process(Now()).uid("now").sink_to(out).uid("out")
    job = Launch(clock, LocalRunner(), store).prepare(env._graph("job"), env._job_settings())
    act(job)
    job.start().result()
    return out.values


def stop_after(epoch: int) -> Callable[[Any], None]:
    def act(job: Any) -> None:
        stopped: list[bool] = []

        def check_progress(progress: Any) -> None:
            if progress.epoch == epoch and not stopped:
                stopped.append(True)
                job.stop()

        job.board.listen(check_progress)

    return act


def test_a_job_continued_under_a_slow_clock_keeps_its_processing_time() -> None:
    store = MemoryStore(f"processing-time-{next(_STORES)}")
    assert run(store, ManualClock(100_000), stop_after(2)) == [(1, 100_000), (2, 100_000)]
    assert processing_time_ms(ManifestLog(store).newest()) == 100_000  # including the closing manifest
    assert run(store, ManualClock(70_000)) == [(3, 100_000)]


def test_a_clock_set_back_while_the_job_runs_has_no_effect() -> None:
    store = MemoryStore(f"processing-time-{next(_STORES)}")
    times = [ms for _, ms in run(store, Clock(*range(100_000, 100_030), *range(99_000, 99_100)))]
    assert times == sorted(times)


def test_processing_time_is_held_for_a_day_at_most(caplog: pytest.LogCaptureFixture) -> None:
    manifest = replace(FIRST, counters={"processing_time_ms": 5 * _DAY_MS})
    with caplog.at_level(logging.WARNING, "millstream.time"):
        assert ProcessingTime(ManualClock(4 * _DAY_MS)).now_ms(manifest) == 5 * _DAY_MS
        assert "is held until the clock has caught up" in caplog.text
        caplog.clear()
        assert ProcessingTime(ManualClock(4 * _DAY_MS - 1)).now_ms(manifest) == 4 * _DAY_MS - 1
        assert "more than a day" in caplog.text


def test_a_slow_clock_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    manifest = replace(FIRST, counters={"processing_time_ms": 10_000})
    time = ProcessingTime(Clock(9_500, 8_000, 7_000, 10_001))
    with caplog.at_level(logging.WARNING, "millstream.time"):
        assert [time.now_ms(manifest) for _ in range(4)] == [10_000, 10_000, 10_000, 10_001]
    assert len(caplog.records) == 1


def test_a_manifest_of_an_older_version_names_the_time_of_its_own_epoch() -> None:
    older = replace(FIRST, counters={"operators": {}, "epoch": {"number": 1, "now_ms": 7_000}})
    assert ProcessingTime(ManualClock(6_000)).now_ms(older) == 7_000
    assert ProcessingTime(ManualClock(6_000)).now_ms(FIRST) == 6_000


# --- a slow clock ------------------------------------------------------------------------------------------------


class WaitingSink(Collect):
    """Wants an epoch at 100,000 ms of processing time, and publishes all pending records then."""

    def plan_commit(self, staged: Sequence[Any], pending: Any, now_ms: int, final: bool) -> CommitPlan:
        waiting = (*(pending or ()), *staged)
        return CommitPlan(waiting) if final or now_ms >= 100_000 else CommitPlan((), list(waiting))

    def due_ms(self, pending: Any) -> int | None:
        return 100_000


def test_a_due_sink_publishes_under_a_slow_clock() -> None:
    """Otherwise it would be due again at once: empty epochs would follow each other until the clock has caught up."""
    store = MemoryStore(f"processing-time-{next(_STORES)}")
    run(store, ManualClock(100_000), stop_after(1))
    out = WaitingSink()
    run(store, ManualClock(70_000), out=out)
    epochs = [record.epoch for record in out.records if record.value[0] > 1]
    assert len(epochs) == 2 and epochs[0] < epochs[1]


class SetClock:
    """A settable clock."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms


def test_a_source_maintains_its_rate_under_a_slow_or_set_back_clock() -> None:
    manifest, clock = replace(FIRST, counters={"processing_time_ms": 100_000}), SetClock(70_000)
    source, plan = DataGeneratorSource(int, rate_per_second=10, splits=1), SimpleNamespace(nodes=list)
    planner = InputPlanner(cast(Any, plan), (PlannedSource("in", source, 1),), MemoryStore("rate"), clock)
    stops = []
    for clock.at_ms in (70_000, 71_000, 40_000, 41_000):
        planned = planner.plan(manifest, 1_000_000, 1 << 30, drains=False)
        assert planned.now_ms == 100_000
        stops.append(sum(range_.stop for range_ in planned.reads["in"]))
    assert stops == [0, 10, 10, 20]


def test_downtime_under_a_slow_clock_does_not_count_as_idleness() -> None:
    manifest, active = replace(FIRST, counters={"processing_time_ms": 100_000}), EventTimeState(40, 95_000)
    now_ms, run_started_ms = ProcessingTime(ManualClock(70_000)).run_times(manifest)
    assert active.awake(run_started_ms, now_ms).effective_watermark(1_000, now_ms) == 40


def test_an_input_becomes_idle_after_a_clock_was_more_than_a_day_ahead() -> None:
    manifest, active = replace(FIRST, counters={"processing_time_ms": 5 * _DAY_MS}), EventTimeState(40, 5 * _DAY_MS)
    clock = SetClock(5 * _DAY_MS)
    time, readings = ProcessingTime(clock), []
    for clock.at_ms in (5 * _DAY_MS, _DAY_MS, _DAY_MS + 999, _DAY_MS + 1_000):
        now_ms, run_started_ms = time.run_times(manifest)
        readings.append(active.awake(run_started_ms, now_ms).effective_watermark(1_000, now_ms))
    assert readings == [40, 40, 40, IDLE_WATERMARK]
