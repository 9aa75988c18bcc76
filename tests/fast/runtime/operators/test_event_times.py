"""Event-time windows accept records with valid timestamps, and reject others, before the job starts where possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Time, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import WindowFunction
from millstream.datastream.window import (
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import JobFailedError, ProgramError
from millstream.runtime.operators.event_times import EVENT_TIME_MAX
from millstream.testing import Collect, run

TENS = TumblingEventTimeWindows.of(Time.seconds(10))
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])


class Listed(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [list(inputs)]


def timed(env: StreamExecutionEnvironment, *stamps: int) -> Any:
    return env.from_collection([("k", stamp) for stamp in stamps]).assign_timestamps_and_watermarks(BY_TIME)


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "folded": lambda stream: stream.key_by(lambda r: r[0]).window(TENS).reduce(max),
    "sessions": lambda s: (
        s.key_by(lambda r: r[0]).window(EventTimeSessionWindows.with_gap(Time.seconds(5))).reduce(max)
    ),
    "listed": lambda stream: stream.key_by(lambda r: r[0]).window(TENS).apply(Listed()),
    "all": lambda stream: stream.window_all(TENS).reduce(max),
    "sum": lambda stream: stream.key_by(lambda r: r[0]).window(TENS).reduce(lambda a, b: a),
}


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("stamp", [2**63 - 1, EVENT_TIME_MAX + 1, -EVENT_TIME_MAX - 1])
def test_an_invalid_timestamp_fails_the_job_with_its_record(windows: str, stamp: int) -> None:
    with pytest.raises(JobFailedError, match="which is out of range") as caught:
        run(lambda env: WINDOWS[windows](timed(env, 5, stamp)).sink_to(Collect()))
    assert f"record    ('k', {stamp})" in caught.value.report


@pytest.mark.parametrize("windows", WINDOWS)
def test_the_first_and_the_last_time_are_in_windows(windows: str) -> None:
    for stamp in (EVENT_TIME_MAX, -EVENT_TIME_MAX):
        out = Collect()
        run(lambda env, stamp=stamp, out=out: WINDOWS[windows](timed(env, stamp)).sink_to(out))
        assert len(out.values) == 1


ENDLESS: dict[str, Callable[[Any], Any]] = {
    "count_window": lambda keyed: keyed.count_window(1),
    "global windows": lambda keyed: keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(1)),
    "counted windows": lambda keyed: keyed.window(CountTumblingWindowAssigner.of(1)),
}


@pytest.mark.parametrize("endless", ENDLESS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_results_of_windows_without_an_end_are_refused_before_the_job_runs(endless: str, windows: str) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        results = ENDLESS[endless](timed(env, 5).key_by(lambda r: r[0])).reduce(max).map(lambda r: r)
        WINDOWS[windows](results).sink_to(Collect())

    with pytest.raises(ProgramError, match="have no timestamp, because its windows never end") as caught:
        run(build)
    assert "test_event_times.py:" in str(caught.value)


def test_results_of_windows_without_an_end_can_be_assigned_timestamps() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        results = timed(env, 5).key_by(lambda r: r[0]).count_window(1).reduce(max)
        WINDOWS["folded"](results.assign_timestamps_and_watermarks(BY_TIME)).sink_to(out)

    run(build)
    assert out.values == [("k", 5)]
