"""Streams with fewer records per epoch than subtasks: their windows fire, or the job reports why they do not."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import EPOCH, Collect, Script, run

ASCENDING = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
WIDTH_MS = 10
TUMBLING = TumblingEventTimeWindows.of(Time.milliseconds(WIDTH_MS))


def scripted(epochs: int) -> Script:
    """One record in each epoch; that of epoch n is at 10 n ms."""
    return Script([item for epoch in range(1, epochs + 1) for item in (epoch * WIDTH_MS, EPOCH)])


def records_per_window(stream: Any, parallelism: int) -> Any:
    """The record count of each window, which is one."""
    timed = stream.assign_timestamps_and_watermarks(ASCENDING).uid("timed").set_parallelism(parallelism)
    return timed.key_by(lambda value: 0).window(TUMBLING).reduce(max).uid("last").set_parallelism(parallelism)


def window_delays(out: Collect) -> list[int]:
    """How many epochs after its record each window fired."""
    return [record.epoch - record.value // WIDTH_MS for record in out.records]


@pytest.mark.parametrize(
    "parallelism, dealing",
    [
        (2, "implicit"),
        (3, "rebalance"),
        (3, "rescale"),
        pytest.param(3, "implicit", marks=pytest.mark.slow),
        pytest.param(8, "implicit", marks=pytest.mark.slow),
    ],
)
def test_windows_of_a_stream_of_one_record_an_epoch_fire_within_bounded_epochs(parallelism: int, dealing: str) -> None:
    epochs = 4 * parallelism
    out = Collect("out")

    def build(env: Any) -> None:
        stream = env.add_source(scripted(epochs)).uid("in").set_parallelism(1)
        dealt = stream if dealing == "implicit" else getattr(stream, dealing)()
        records_per_window(dealt, parallelism).sink_to(out)

    run(build, parallelism=parallelism)
    assert len(out.records) == epochs
    assert max(window_delays(out)) <= 2 * parallelism


def never_reaches_all(env: Any, parallelism: int, strategy: WatermarkStrategy, name: str) -> Any:
    """A stream whose records all go to the first subtask."""
    stream = env.add_source(scripted(17 * parallelism)).uid("in").set_parallelism(1)
    timed = stream.global_().assign_timestamps_and_watermarks(strategy).name(name).uid(name)
    windows = timed.set_parallelism(parallelism).key_by(lambda value: 0).window(TUMBLING)
    return windows.reduce(max).uid("last")


def test_a_subtask_without_any_record_is_reported_once_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    out = Collect("out")
    run(lambda env: never_reaches_all(env, 3, ASCENDING, "silent clicks").sink_to(out), parallelism=3)
    [warning] = [record.getMessage() for record in caplog.records if "silent clicks" in record.getMessage()]
    assert warning.startswith("'silent clicks' has no watermark in subtasks 1, 2 of 3: it has received no record.")
    assert ".with_idleness(Duration.of_minutes(1))" in warning and "test_slow_streams.py" in warning
    assert len({record.epoch for record in out.records}) == 1  # all windows fire at the end of the input


def test_subtasks_idle_by_strategy_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    out = Collect("out")
    strategy = ASCENDING.with_idleness(Duration.of_millis(1))
    run(lambda env: never_reaches_all(env, 3, strategy, "idle clicks").sink_to(out), parallelism=3)
    assert not [record for record in caplog.records if "idle clicks" in record.getMessage()]


@pytest.mark.parametrize("parallelism", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_a_subtask_with_a_late_first_record_is_not_warned_about(
    parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    def build(env: Any) -> None:
        stream = env.add_source(scripted(4 * parallelism)).uid("in").set_parallelism(1)
        records_per_window(stream, parallelism).sink_to(Collect())

    run(build, parallelism=parallelism)
    assert not [record for record in caplog.records if "has no watermark" in record.getMessage()]


@pytest.mark.parametrize("parallelism, step", [(2, 5), pytest.param(3, 5, marks=pytest.mark.slow)])
def test_epochs_without_records_are_not_warned_about(
    parallelism: int, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    def build(env: Any) -> None:
        stream = env.add_source(scripted(8 * parallelism * step)).uid("in").set_parallelism(1)
        some = stream.filter(lambda value: value // WIDTH_MS % step == 0)
        records_per_window(some.set_parallelism(1), parallelism).sink_to(Collect())

    run(build, parallelism=parallelism)
    assert not [record for record in caplog.records if "has no watermark" in record.getMessage()]
