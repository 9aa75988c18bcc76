"""Rejected windows: errors at the user's line, raised before the job starts where possible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from programs.window_scripts import Numbers, Record, added, key_of, ms, results

from millstream.common import Duration, Time, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import AggregateFunction, MapFunction, ProcessWindowFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from millstream.errors import JobFailedError, ProgramError
from millstream.testing import Collect, Script, run

TENS = TumblingEventTimeWindows.of(ms(10))
HERE = r"\(test_window_refusals\.py:\d+\)"


def keyed() -> Any:
    env = StreamExecutionEnvironment()
    return env.from_collection([("a", 1, 1)]).key_by(key_of)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TumblingEventTimeWindows.of(ms(0)), "size: found 0, expected a whole number of at least 1"),
        (lambda: TumblingEventTimeWindows.of(Time.milliseconds(-5)), "size: found -5"),
        (lambda: TumblingEventTimeWindows.of(ms(5), ms(5)), "offset is 5 ms, expected less"),
        (lambda: SlidingEventTimeWindows.of(ms(5), ms(0)), "slide: found 0"),
        (lambda: SlidingEventTimeWindows.of(ms(5), ms(10)), "slide of 10 ms is larger than the size of 5 ms"),
        (lambda: SlidingProcessingTimeWindows.of(ms(5), ms(6)), "slide of 6 ms is larger than the size of 5 ms"),
        (lambda: CumulativeEventTimeWindows.of(ms(10), ms(4)), "10 ms is not a multiple of the step of 4 ms"),
        (lambda: CumulativeEventTimeWindows.of(ms(0), ms(4)), "max_size: found 0"),
        (lambda: EventTimeSessionWindows.with_gap(ms(0)), "found 0"),
        (lambda: ProcessingTimeSessionWindows.with_gap(Time.milliseconds(-1)), "found -1"),
        (lambda: CountTrigger.of(0), "CountTrigger: found 0"),
        (lambda: CountEvictor.of(0), "CountEvictor: found 0"),
        (lambda: TimeEvictor.of(Duration.of_millis(0)), "TimeEvictor: found 0"),
        (lambda: DeltaEvictor.of(1.0, 3), "DeltaEvictor: found 3, expected a function of two records"),
        (lambda: DeltaTrigger.of(1.0, None), "DeltaTrigger: found None, expected a function of two records"),
        (lambda: keyed().count_window(0), "count_window, size: found 0"),
        (lambda: keyed().count_window(3, -1), "count_window, slide: found -1"),
        (lambda: keyed().window(10), "window: found 10, expected a window assigner"),
        (lambda: keyed().window(GlobalWindows), "Pass an instance"),
        (lambda: keyed().window(TENS).trigger(5), "trigger: found 5, expected a Trigger"),
        (lambda: keyed().window(TENS).evictor(5), "evictor: found 5, expected an Evictor"),
        (lambda: keyed().window(TENS).allowed_lateness(-1), "allowed_lateness: found -1"),
        (lambda: keyed().window(TENS).side_output_late_data("late"), "found 'late', expected an OutputTag"),
        (lambda: keyed().window(TENS).process(Upper()), "process: found a MapFunction"),
        (lambda: keyed().window(TENS).process(Numbers), "Pass an instance"),
        (lambda: keyed().window(TENS).apply(Numbers()), "apply: found a ProcessWindowFunction"),
        (lambda: keyed().window(TENS).aggregate(added), "aggregate: found .* expected AggregateFunction"),
        (lambda: keyed().window(TENS).reduce(added, Upper()), "reduce, window_function: found a MapFunction"),
        (lambda: keyed().window(TENS).reduce(added, output_type=3, window_function=Numbers()), "found 3"),
    ],
)
def test_an_invalid_window_is_rejected_at_its_line(make: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=f"{message}.*{HERE}"):
        make()


class Upper(MapFunction):
    def map(self, value: str) -> str:
        return value.upper()


class NeverMerges(Trigger[Any, Any]):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    on_event_time = on_processing_time = on_element

    def on_merge(self, window: Any, ctx: Any) -> None:
        raise AssertionError("can_merge was never called")

    def clear(self, window: Any, ctx: Any) -> None:
        return None


@pytest.mark.parametrize("trigger", [NeverMerges(), DeltaTrigger.of(1, lambda a, b: b - a)])
def test_merging_windows_reject_a_trigger_that_cannot_merge(trigger: Any) -> None:
    sessions = keyed().window(EventTimeSessionWindows.with_gap(ms(5)))
    with pytest.raises(ProgramError, match=f"windows of EventTimeSessionWindows merge, and .* cannot.*{HERE}"):
        sessions.trigger(trigger)


def test_event_time_windows_over_records_without_timestamps_are_rejected_before_the_job_starts() -> None:
    def build(env: Any) -> None:
        env.from_collection([("a", 1, 1)]).key_by(key_of).window(TENS).reduce(added).sink_to(Collect())

    with pytest.raises(ProgramError, match=f"no operator before it assigns timestamps.*{HERE}"):
        run(build)


def test_a_strategy_without_a_timestamp_assigner_assigns_no_timestamps() -> None:
    def build(env: Any) -> None:
        stream = env.from_collection([("a", 1, 1)])
        stream = stream.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
        stream.key_by(key_of).window(TENS).reduce(added).sink_to(Collect())

    with pytest.raises(ProgramError, match="no operator before it assigns timestamps"):
        run(build)


def test_records_without_timestamps_in_a_running_job_fail_it_at_the_windows_line() -> None:
    def build(env: Any) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: record[2])
        timed = env.from_source(Script([("a", 1, 1)]), strategy, "timed")
        bare = env.from_source(Script([("a", 2, 1)]), WatermarkStrategy.no_watermarks(), "bare")
        timed.union(bare).key_by(key_of).window(TENS).reduce(added).sink_to(Collect())

    with pytest.raises(JobFailedError, match="records have no timestamps") as failed:
        run(build)
    assert "test_window_refusals.py" in failed.value.report and "('a', 2, 1)" in failed.value.report


def report_of(build: Any, *records: Record) -> str:
    with pytest.raises(JobFailedError) as failed:
        results(list(records or [("a", 1, 1)]), build)
    return failed.value.report


def test_a_session_gap_of_zero_or_less_fails_the_job_with_its_record() -> None:
    sessions = EventTimeSessionWindows.with_dynamic_gap(lambda record: 0)  # type: ignore[arg-type]
    report = report_of(lambda s: s.window(sessions).reduce(added))
    assert "the extractor returned the gap 0 for ('a', 1, 1), expected 1 to" in report
    assert "record    ('a', 1, 1)" in report and "test_window_refusals.py" in report


def test_a_failing_function_is_reported_with_the_record_that_fired_the_window() -> None:
    report = report_of(lambda s: s.window(TENS).trigger(CountTrigger.of(2)).process(Fails()), ("a", 1, 1), ("a", 2, 2))
    assert "ZeroDivisionError" in report and "record    ('a', 2, 2)" in report


def test_a_function_that_fails_at_the_end_of_a_window_is_reported_with_its_key() -> None:
    report = report_of(lambda s: s.window(TENS).process(Fails()))
    assert "ZeroDivisionError" in report and "timer 9 of key 'a'" in report


class Fails(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        raise ZeroDivisionError


def test_reducing_to_none_is_rejected() -> None:
    report = report_of(lambda s: s.window(TENS).reduce(lambda a, b: None), ("a", 1, 1), ("a", 2, 2))
    assert "the reduce function returned None" in report and "('a', 2, 2)" in report


class Forgetful(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Record, accumulator: list[int]) -> Any:
        accumulator.append(value[1])  # without returning the accumulator

    def get_result(self, accumulator: list[int]) -> Any:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def test_an_aggregate_function_that_returns_no_accumulator_is_reported() -> None:
    assert "add() of the aggregate function returned None" in report_of(lambda s: s.window(TENS).aggregate(Forgetful()))


class Remembers(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        context.window_state().get_state(ValueStateDescriptor("seen", Types.LONG()))
        return []


def test_merging_windows_have_no_per_window_state() -> None:
    sessions = EventTimeSessionWindows.with_gap(ms(5))
    assert "Use global_state()" in report_of(lambda s: s.window(sessions).process(Remembers()))


class Changes(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        context.window_state().get_state(ValueStateDescriptor("seen", Types.LONG()))
        context.window_state().get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.LONG()))
        return []


def test_a_state_requested_with_two_descriptors_is_rejected() -> None:
    assert "Give the second one another name" in report_of(lambda s: s.window(TENS).process(Changes()))


def test_an_unpicklable_function_is_rejected_everywhere() -> None:
    lock = __import__("threading").Lock()

    def build(env: Any) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: record[2])
        stream = env.from_source(Script([("a", 1, 1)]), strategy, "records").key_by(key_of)
        trigger = DeltaTrigger.of(1, lambda a, b: lock and 1)
        stream.window(GlobalWindows.create()).trigger(trigger).reduce(added).sink_to(Collect())

    with pytest.raises(ProgramError, match=r"cannot be sent to a task: it holds .*lock"):
        run(build)


class KeepsANumber(ProcessWindowFunction):  # type: ignore[type-arg]
    """Counts the windows of a key in a state of this name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        count = context.global_state().get_state(ValueStateDescriptor(self.name, Types.LONG()))
        count.update((count.value() or 0) + 1)
        yield key, count.value(), sum(1 for _ in elements)


@pytest.mark.parametrize("name", ["window values", "event timers", "window event timers"])
def test_a_state_with_the_name_of_an_internal_window_state_is_rejected(name: str) -> None:
    with pytest.raises(JobFailedError, match="the operator has a table of that name"):
        results([("a", 1, 1)], lambda s: s.window(TENS).reduce(added, KeepsANumber(name)))


def test_a_keyed_state_with_the_name_of_the_window_contents_is_rejected() -> None:
    with pytest.raises(JobFailedError, match="the operator has a table of that name"):
        results([("a", 1, 1)], lambda s: s.window(TENS).process(KeepsANumber("window contents")))
