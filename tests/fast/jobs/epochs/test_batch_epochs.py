"""BATCH reads its input in epochs of bounded size, with the results of a job that reads it in one epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from millstream.common import Duration, Time, Types, WatermarkStrategy
from millstream.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.testing import Collect, Result, Script, run

# Far out of order: an epoch that advanced the watermark would make the records of the next ones late.
DISORDER = [n * 37 % 100 for n in range(100)]
Build = Callable[[DataStream], DataStream]


class TimerAfterAll(KeyedProcessFunction):
    """Counts the records before each timer, and emits the watermark of its calls."""

    def open(self, runtime_context: Any) -> None:
        self.seen = 0

    def process_element(self, value: int, ctx: Any) -> None:
        assert ctx.timer_service().current_watermark() == -(2**63)
        self.seen += 1
        ctx.timer_service().register_event_time_timer(value * 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield timestamp, self.seen


class AlarmByTheClock(KeyedProcessFunction):
    """Sets processing-time timers, in the distant past and for the next day; each sets another one for later."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.seen.add(value)
        ctx.timer_service().register_processing_time_timer(value % 2 * 2**60)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_processing_time_timer(timestamp + 2**59)
        yield timestamp, sum(self.seen)


def stamped(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda n, _: n * 10))


def batch(build: Build, out: Collect, epoch_records: int | None) -> Result:
    def program(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        build(stamped(env.add_source(Script(DISORDER, type_info=Types.LONG())))).sink_to(out)

    return run(program, epoch_records=epoch_records)


PROGRAMS: dict[str, Build] = {
    "reduce": lambda s: s.key_by(lambda n: n % 3, Types.LONG()).reduce(lambda a, b: a + b),
    "tumbling": lambda s: (
        s.key_by(lambda n: n % 3, Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        .reduce(lambda a, b: a + b)
    ),
    "sessions": lambda s: (
        s.key_by(lambda n: n // 20, Types.LONG())
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(15)))
        .reduce(lambda a, b: a + b)
    ),
    "timers": lambda s: s.key_by(lambda n: 0, Types.LONG()).process(TimerAfterAll()),
    "timers by the clock": lambda s: s.key_by(lambda n: n % 3, Types.LONG()).process(AlarmByTheClock()),
    "map": lambda s: s.map(lambda n: n + 1, Types.LONG()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_batch_in_many_epochs_agrees_with_batch_in_one_epoch(name: str) -> None:
    whole, parts = Collect(), Collect()
    assert batch(PROGRAMS[name], whole, None).epochs == 1
    assert batch(PROGRAMS[name], parts, 7).epochs > 10
    assert sorted(parts.values) == sorted(whole.values) and whole.values


def test_epochs_of_a_batch_job_are_bounded_and_only_the_last_one_emits_aggregates() -> None:
    out = Collect()
    result = batch(PROGRAMS["reduce"], out, 7)
    epochs_with_output = [
        statistics for manifest in result.manifests if (statistics := statistics_of(manifest)) and "in" in statistics
    ]
    assert (
        max(statistics["in"] for statistics in epochs_with_output) <= 7
        and sum(statistics["in"] for statistics in epochs_with_output) == 100
    )
    assert [statistics["out"] for statistics in epochs_with_output if statistics["out"]] == [3]
