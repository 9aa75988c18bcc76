"""Windows of running programs: the examples of Flink's window documentation, late records, early results, evictors,
merging and per-window state. Random programs are compared with the reference elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from programs.window_scripts import Numbers, Record, added, key_of, ms, results, timed, told

from millstream.common import Duration, Types
from millstream.datastream import OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Result, Script, Watermark, run

TENS = TumblingEventTimeWindows.of(ms(10))


# --- assigners ------------------------------------------------------------------------------------------------------


def test_tumbling_windows_are_adjacent_and_never_share_a_record() -> None:
    items = [("a", 1, 0), ("a", 2, 9), ("b", 3, 9), ("a", 4, 10), ("a", 5, 31)]
    assert sorted(results(items, lambda s: s.window(TENS).process(Numbers()))) == [
        ("a", 0, 10, [1, 2]),
        ("a", 10, 20, [4]),
        ("a", 30, 40, [5]),
        ("b", 0, 10, [3]),
    ]


def test_an_offset_shifts_windows_to_the_days_of_another_time_zone() -> None:
    day, hour = 24 * 3_600_000, 3_600_000
    chinese_days = TumblingEventTimeWindows.of(Duration.of_days(1), Duration.of_hours(-8))
    items = [("a", 1, 15 * hour), ("a", 2, 16 * hour)]  # 23:00 and midnight there
    emitted = results(items, lambda s: s.window(chinese_days).process(Numbers()))
    assert sorted(emitted) == [("a", -8 * hour, day - 8 * hour, [1]), ("a", day - 8 * hour, 2 * day - 8 * hour, [2])]


def test_sliding_windows_overlap_so_a_record_is_in_several() -> None:
    emitted = results([("a", 1, 7)], lambda s: s.window(SlidingEventTimeWindows.of(ms(10), ms(5))).process(Numbers()))
    assert sorted(emitted) == [("a", 0, 10, [1]), ("a", 5, 15, [1])]


def test_cumulative_windows_emit_the_result_so_far_at_every_step() -> None:
    items = [("a", 1, 2), ("a", 2, 12), ("a", 4, 25), ("a", 8, 31)]
    emitted = results(items, lambda s: s.window(CumulativeEventTimeWindows.of(ms(30), ms(10))).process(Numbers()))
    assert sorted(emitted) == [
        ("a", 0, 10, [1]),
        ("a", 0, 20, [1, 2]),
        ("a", 0, 30, [1, 2, 4]),
        ("a", 30, 40, [8]),
        ("a", 30, 50, [8]),
        ("a", 30, 60, [8]),
    ]


def test_a_session_ends_when_no_record_arrived_for_the_gap() -> None:
    items = [("a", 1, 0), ("a", 2, 8), ("b", 3, 9), ("a", 4, 17), ("a", 5, 40)]
    emitted = results(items, lambda s: s.window(EventTimeSessionWindows.with_gap(ms(10))).process(Numbers()))
    assert sorted(emitted) == [("a", 0, 27, [1, 2, 4]), ("a", 40, 50, [5]), ("b", 9, 19, [3])]


def test_a_session_has_the_gap_its_records_ask_for() -> None:
    sessions = EventTimeSessionWindows.with_dynamic_gap(lambda record: record[1])  # type: ignore[arg-type]
    emitted = results([("a", 30, 0), ("a", 5, 20), ("a", 5, 31)], lambda s: s.window(sessions).process(Numbers()))
    assert sorted(emitted) == [("a", 0, 30, [30, 5]), ("a", 31, 36, [5])]


def test_a_global_window_never_fires_by_itself() -> None:
    assert results([("a", 1, 0)], lambda s: s.window(GlobalWindows.create()).apply(Listing())) == []


def test_count_windows_fire_when_they_are_full_and_purge() -> None:
    items = [("a", n, 0) for n in range(7)] + [("b", 9, 0)]
    assert results(items, lambda s: s.count_window(3).reduce(added)) == [("a", 3, 0), ("a", 12, 0)]


def test_sliding_count_windows_fire_every_slide_with_the_last_records() -> None:
    items: list[Any] = [("a", n, 0) for n in range(1, 4)] + [EPOCH] + [("a", n, 0) for n in range(4, 8)]
    emitted = results(items, lambda s: s.count_window(4, 2).apply(Listing()))
    assert emitted == [("a", [1, 2]), ("a", [1, 2, 3, 4]), ("a", [3, 4, 5, 6])]


def test_processing_time_windows_follow_the_clock() -> None:
    clock = ManualClock(0)
    items = [("a", 1, 0), Pause(9), ("a", 2, 0), Pause(2), ("a", 3, 0), Pause(30), ("a", 4, 0)]
    emitted = results(
        items, lambda s: s.window(TumblingProcessingTimeWindows.of(ms(10))).process(Numbers()), clock=clock
    )
    assert emitted == [("a", 0, 10, [1, 2]), ("a", 10, 20, [3])]


def test_the_job_wakes_up_when_a_processing_time_window_ends() -> None:
    windows = TumblingProcessingTimeWindows.of(ms(10))
    result = told([("a", 1, 0), EPOCH, ("a", 2, 0)], lambda s: s.window(windows).reduce(added), clock=ManualClock(7))
    accounts = (state["subtasks"]["0"] for state in result.manifests[0].states.values() if "subtasks" in state)
    assert [account["wake_ms"] for account in accounts] == [10]


def test_processing_time_sessions_follow_the_clock() -> None:
    clock = ManualClock(0)
    items = [("a", 1, 0), Pause(5), ("a", 2, 0), Pause(10), ("a", 3, 0), Pause(50), ("b", 4, 0)]
    sessions = ProcessingTimeSessionWindows.with_gap(ms(10))
    emitted = results(items, lambda s: s.window(sessions).process(Numbers()), clock=clock)
    assert emitted == [("a", 0, 15, [1, 2]), ("a", 15, 25, [3])]


def test_a_result_has_the_last_timestamp_of_its_window() -> None:
    collected = told([("a", 1, 3)], lambda s: s.window(TENS).reduce(added)).of("out")
    assert [record.timestamp for record in collected] == [9]


# --- functions ------------------------------------------------------------------------------------------------------


class Listing(WindowFunction):  # type: ignore[type-arg]
    def apply(self, key: str, window: Any, inputs: Iterable[Record]) -> Iterable[Any]:
        return [(key, [record[1] for record in inputs])]


class Average(AggregateFunction):
    """The documentation's example: the mean from sum and count."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Record, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithStart(ProcessWindowFunction):  # type: ignore[type-arg]
    """The start of the window and its one aggregated value."""

    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        (value,) = elements
        yield context.window().start, key, value


class Smallest(ReduceFunction):
    def open(self, runtime_context: Any) -> None:
        self.calls = runtime_context.get_metrics_group().counter("reduced")

    def reduce(self, value1: Record, value2: Record) -> Record:
        self.calls.inc()
        return min(value1, value2, key=lambda record: record[1])


def test_an_aggregate_function_computes_the_mean_of_a_window() -> None:
    items: list[Any] = [("a", 1, 0), ("a", 4, 1), EPOCH, ("a", 4, 2), ("b", 2, 3)]
    assert sorted(results(items, lambda s: s.window(TENS).aggregate(Average()))) == [2.0, 3.0]


def test_a_process_function_gets_the_result_of_a_reduction() -> None:
    items = [("a", 7, 12), ("a", 3, 14), ("a", 5, 11)]
    assert results(items, lambda s: s.window(TENS).reduce(Smallest(), WithStart())) == [(10, "a", ("a", 3, 14))]


def test_a_process_function_gets_the_result_of_an_aggregation() -> None:
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    items = [("a", 7, 12), ("a", 3, 14)]
    out = Types.TUPLE([Types.LONG(), Types.STRING(), Types.DOUBLE()])
    assert results(items, lambda s: s.window(TENS).aggregate(Average(), WithStart(), pair, out)) == [(10, "a", 5.0)]


def test_a_window_function_gets_the_result_of_a_reduction() -> None:
    items = [("a", 7, 12), ("a", 3, 14)]
    assert results(items, lambda s: s.window(TENS).reduce(added, Listing())) == [("a", [10])]


def test_a_rich_reduce_function_is_opened() -> None:
    result = told([("a", 7, 1), ("a", 3, 2), ("a", 3, 3)], lambda s: s.window(TENS).reduce(Smallest()))
    assert [entry for name, entry in result.metrics.items() if name.endswith("reduced")] == [{"counter": 2}]


class AllNumbers(AllWindowFunction):  # type: ignore[type-arg]
    def apply(self, window: Any, inputs: Iterable[Record]) -> Iterable[Any]:
        return [(window.start, sorted(record[1] for record in inputs))]


class Largest(ProcessAllWindowFunction):  # type: ignore[type-arg]
    """The largest of all records, and the number of earlier windows."""

    def process(self, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        seen = context.global_state().get_state(ValueStateDescriptor("seen", Types.LONG()))
        before = seen.value() or 0
        seen.update(before + 1)
        yield context.window().start, max(element[1] for element in elements), before


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_window_over_the_whole_stream_has_the_records_of_all_keys(parallelism: int) -> None:
    items = [("a", 1, 0), ("b", 2, 3), ("c", 3, 14)]
    emitted = results(items, lambda s: s.window_all(TENS).apply(AllNumbers()), keyed=False, parallelism=parallelism)
    assert sorted(emitted) == [(0, [1, 2]), (10, [3])]


def test_a_process_function_over_the_whole_stream_has_state_too() -> None:
    items = [("a", 1, 0), ("b", 2, 3), Watermark(11), ("c", 3, 14)]
    emitted = results(items, lambda s: s.window_all(TENS).process(Largest()), keyed=False, parallelism=2)
    assert emitted == [(0, 2, 0), (10, 3, 1)]


def test_count_windows_over_the_whole_stream() -> None:
    items = [("a", n, 0) for n in range(5)]
    emitted = results(items, lambda s: s.count_window_all(2).reduce(added), keyed=False, parallelism=2)
    assert emitted == [("a", 1, 0), ("a", 5, 0)]


def test_a_window_of_window_results_has_the_same_bounds() -> None:
    """Sums per key and window, then the largest sum of each window: the same windows again."""
    items = [("a", 1, 0), ("a", 2, 3), ("b", 5, 4), ("a", 7, 12), Watermark(5), ("b", 4, 9), ("b", 1, 15)]

    def build(stream: Any) -> Any:
        return stream.window(TENS).reduce(added).window_all(TENS).process(Largest())

    assert [emitted[:2] for emitted in results(items, build, parallelism=2)] == [(0, 9), (10, 7)]


def test_an_emitted_result_does_not_change_when_its_window_continues() -> None:
    class Grows(AggregateFunction):
        def create_accumulator(self) -> list[int]:
            return []

        def add(self, value: Record, accumulator: list[int]) -> list[int]:
            accumulator.append(value[1])
            return accumulator

        def get_result(self, accumulator: list[int]) -> list[int]:
            return accumulator

        def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
            return acc_a + acc_b

    items = [("a", 1, 0), ("a", 2, 1), ("a", 3, 2)]
    emitted = results(items, lambda s: s.window(TENS).trigger(CountTrigger.of(1)).aggregate(Grows()))
    assert emitted == [[1], [1, 2], [1, 2, 3]]


def test_a_reduce_function_that_changes_its_argument_does_not_affect_other_windows() -> None:
    def grown(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        a["n"] += b["n"]
        return a

    def build(stream: Any) -> Any:
        dicts = stream.map(lambda r: {"key": r[0], "n": r[1]}).key_by(lambda d: d["key"])
        return dicts.window(SlidingEventTimeWindows.of(ms(10), ms(5))).reduce(grown)

    items = [("a", 1, 6), ("a", 2, 8), ("a", 4, 12)]
    assert sorted(emitted["n"] for emitted in results(items, build, keyed=False)) == [3, 4, 7]


def test_a_window_function_sends_to_side_outputs() -> None:
    odd = OutputTag("odd", Types.LONG())

    class Parted(ProcessWindowFunction):  # type: ignore[type-arg]
        def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
            for element in elements:
                yield (odd, element[1]) if element[1] % 2 else element[1]

    aside = Collect("aside")

    def build(stream: Any) -> Any:
        result = stream.window(TENS).process(Parted())
        result.get_side_output(odd).sink_to(aside)
        return result

    emitted = told([("a", n, 0) for n in range(5)], build)
    assert (emitted["out"], emitted["aside"]) == ([0, 2, 4], [1, 3])


# --- late records ---------------------------------------------------------------------------------------------------

LATE = OutputTag("late")
STRAGGLERS: list[Any] = [("a", 1, 3), Watermark(12), ("a", 2, 5), EPOCH, ("a", 4, 13), Watermark(25), ("a", 8, 6)]


def test_a_record_behind_the_watermark_is_dropped_and_counted() -> None:
    result = told(STRAGGLERS, lambda s: s.window(TENS).reduce(added))
    assert result["out"] == [("a", 1, 3), ("a", 4, 13)]
    assert [m for name, m in result.metrics.items() if name.endswith("numLateRecordsDropped")] == [{"counter": 2}]


def test_a_late_record_is_emitted_to_the_declared_side_output() -> None:
    late = Collect("late")

    def build(stream: Any) -> Any:
        result = stream.window(TENS).side_output_late_data(LATE).reduce(added)
        result.get_side_output(LATE).sink_to(late)
        return result

    emitted = told(STRAGGLERS, build)
    assert emitted["late"] == [("a", 2, 5), ("a", 8, 6)]
    assert [record.timestamp for record in emitted.of("late")] == [5, 6]
    assert [m for name, m in emitted.metrics.items() if name.endswith("numLateRecordsDropped")] == [{"counter": 0}]


def test_a_window_fires_again_for_every_late_record_within_allowed_lateness() -> None:
    emitted = told(STRAGGLERS, lambda s: s.window(TENS).allowed_lateness(10).process(Numbers()))
    assert emitted["out"] == [("a", 0, 10, [1]), ("a", 0, 10, [1, 2]), ("a", 10, 20, [4])]
    assert [record.epoch for record in emitted.of("out")] == [1, 2, 3]


def test_late_records_of_one_epoch_fire_their_window_one_by_one() -> None:
    items = [("a", 1, 3), Watermark(12), ("a", 2, 5), ("a", 4, 6), ("a", 8, 14)]
    emitted = results(items, lambda s: s.window(TENS).allowed_lateness(10).process(Numbers()))
    assert emitted == [("a", 0, 10, [1]), ("a", 0, 10, [1, 2]), ("a", 0, 10, [1, 2, 4]), ("a", 10, 20, [8])]


def test_lateness_is_decided_by_the_watermark_at_the_start_of_the_epoch() -> None:
    items = [("a", 1, 50), ("a", 2, 5), Watermark(40), ("a", 3, 5), ("a", 4, 45)]
    emitted = results(items, lambda s: s.window(TENS).process(Numbers()))
    assert sorted(emitted) == [("a", 0, 10, [2]), ("a", 40, 50, [4]), ("a", 50, 60, [1])]


@pytest.mark.parametrize("folds", [True, False])
@pytest.mark.parametrize(("lateness_ms", "dropped"), [(0, 1), (5, 0)])
def test_a_record_between_windows_with_gaps_is_late_only_by_its_time(
    lateness_ms: int, dropped: int, folds: bool
) -> None:
    items = [("a", 1, 7), Watermark(30), ("a", 2, 28), ("a", 3, 37)]

    def build(stream: Any) -> Any:
        windows = stream.window(SlidingEventTimeWindows(5, 10, 0)).allowed_lateness(lateness_ms)  # 0 … 5, 10 … 15, …
        return windows.reduce(added) if folds else windows.process(Numbers())

    result = told(items, build)
    assert result["out"] == []
    counted = [m for name, m in result.metrics.items() if name.endswith("numLateRecordsDropped")]
    assert counted == [{"counter": dropped}]


def test_a_late_record_joins_two_sessions_that_have_fired() -> None:
    items = [("a", 1, 0), ("a", 2, 8), Watermark(14), ("a", 4, 4)]
    sessions = EventTimeSessionWindows.with_gap(ms(5))
    emitted = results(items, lambda s: s.window(sessions).allowed_lateness(100).process(Numbers()))
    assert emitted == [("a", 0, 5, [1]), ("a", 8, 13, [2]), ("a", 0, 13, [1, 2, 4])]


def test_accumulators_of_sessions_that_merge_are_merged() -> None:
    items = [("a", 1, 0), ("a", 5, 8), Watermark(14), ("a", 12, 4)]
    sessions = EventTimeSessionWindows.with_gap(ms(5))
    emitted = results(items, lambda s: s.window(sessions).allowed_lateness(100).aggregate(Average()))
    assert emitted == [1.0, 5.0, 6.0]


def test_a_late_record_without_an_open_session_is_dropped() -> None:
    items = [("a", 1, 0), Watermark(30), ("a", 2, 3)]
    sessions = EventTimeSessionWindows.with_gap(ms(5))
    result = told(items, lambda s: s.window(sessions).reduce(added))
    assert result["out"] == [("a", 1, 0)]
    assert [m for name, m in result.metrics.items() if name.endswith("numLateRecordsDropped")] == [{"counter": 1}]


# --- triggers -------------------------------------------------------------------------------------------------------


def test_a_window_emits_early_results_then_the_final_one_and_then_updates_for_late_records() -> None:
    items = [
        ("a", 1, 1),
        Watermark(20),
        ("a", 2, 25),
        Watermark(41),
        Watermark(70),
        ("a", 4, 55),
        Watermark(99),
        ("a", 8, 30),
    ]
    windows = TumblingEventTimeWindows.of(ms(100))
    trigger = ContinuousEventTimeTrigger.of(ms(20))
    emitted = told(items, lambda s: s.window(windows).trigger(trigger).allowed_lateness(50).reduce(added)).of("out")
    assert [(record.epoch, record.value[1]) for record in emitted] == [
        (1, 1),  # 20
        (2, 3),  # 40
        (3, 3),  # 60
        (4, 7),  # 80
        (4, 7),  # 99, the final one
        (5, 15),  # an update by a late record
    ]


def test_early_results_by_processing_time() -> None:
    clock = ManualClock(0)
    items = [("a", 1, 1), Pause(6), ("a", 2, 2), Pause(6), ("a", 4, 3), EPOCH]
    trigger = ContinuousProcessingTimeTrigger.of(ms(5))
    emitted = told(items, lambda s: s.window(TENS).trigger(trigger).process(Numbers()), clock=clock).of("out")
    assert [(record.epoch, record.value[3]) for record in emitted] == [(2, [1]), (3, [1, 2]), (3, [1, 2, 4])]


def test_a_purging_trigger_deletes_emitted_contents() -> None:
    items = [("a", n, n) for n in range(5)]
    emitted = results(items, lambda s: s.window(TENS).trigger(PurgingTrigger.of(CountTrigger.of(2))).process(Numbers()))
    assert emitted == [("a", 0, 10, [0, 1]), ("a", 0, 10, [2, 3])]


def test_a_delta_trigger_fires_when_a_record_is_far_from_the_last_one() -> None:
    """The documentation's example: the top speed of a car every 50 metres (here: the sum)."""
    metres = [("car", 10, 0), ("car", 40, 0), ("car", 61, 0), ("car", 100, 0), ("car", 112, 0)]
    trigger = DeltaTrigger.of(50, lambda old, new: new[1] - old[1])
    emitted = results(metres, lambda s: s.window(GlobalWindows.create()).trigger(trigger).apply(Listing()))
    assert emitted == [("car", [10, 40, 61]), ("car", [10, 40, 61, 100, 112])]


class EveryOther(Trigger[Record, TimeWindow]):
    """Fires for every other record of a window; its counter is mergeable state."""

    def __init__(self) -> None:
        self.count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Record, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        return TriggerResult.FIRE if count.get() % 2 == 0 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.count)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.get_partitioned_state(self.count).clear()
        ctx.get_metric_group().counter(f"cleared {window.start} {window.end}").inc()


def test_state_of_a_trigger_is_merged_with_its_windows_and_cleared_with_them() -> None:
    items: list[Any] = [("a", 1, 0), ("a", 2, 20), EPOCH, ("a", 4, 10), ("a", 8, 11)]
    sessions = EventTimeSessionWindows.with_gap(ms(10))
    result = told(items, lambda s: s.window(sessions).trigger(EveryOther()).process(Numbers()))
    assert result["out"] == [("a", 0, 30, [1, 2, 4, 8])]
    cleared = {name.partition("cleared ")[2]: m["counter"] for name, m in result.metrics.items() if "cleared" in name}
    assert cleared == {"0 10": 1, "20 30": 1, "0 30": 1}


class ByParity(WindowAssigner[Record, GlobalWindow]):
    """A custom assigner: one window for all records, whose trigger fires for every third one."""

    def assign_windows(self, element: Record, timestamp: int, context: Any) -> Collection[GlobalWindow]:
        seen = context.get_runtime_context().get_state(ValueStateDescriptor("seen", Types.LONG()))
        seen.update((seen.value() or 0) + 1)
        return [GlobalWindow.get()] if seen.value() % 3 == 0 else []

    def get_default_trigger(self, env: Any) -> Any:
        return CountTrigger.of(1)

    def get_window_serializer(self) -> Any:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False


def test_a_custom_window_assigner_may_use_keyed_state() -> None:
    items: list[Any] = [("a", n, 0) for n in range(1, 5)] + [EPOCH] + [("a", n, 0) for n in range(5, 8)]
    assert results(items, lambda s: s.window(ByParity()).apply(Listing())) == [("a", [3]), ("a", [3, 6])]


# --- evictors -------------------------------------------------------------------------------------------------------


def test_an_evictor_removes_records_before_the_function() -> None:
    items = [("a", n, n) for n in range(5)]
    assert results(items, lambda s: s.window(TENS).evictor(CountEvictor.of(2)).process(Numbers())) == [
        ("a", 0, 10, [3, 4])
    ]


def test_a_time_evictor_retains_the_latest_records() -> None:
    items = [("a", 1, 0), ("a", 2, 9), ("a", 3, 6)]
    emitted = results(items, lambda s: s.window(TENS).evictor(TimeEvictor.of(ms(5))).process(Numbers()))
    assert emitted == [("a", 0, 10, [2, 3])]


def test_records_evicted_after_the_function_are_not_in_the_next_firing() -> None:
    items: list[Any] = [("a", 1, 1), ("a", 2, 2), EPOCH, ("a", 3, 3), ("a", 4, 4)]
    trigger, evictor = CountTrigger.of(2), CountEvictor.of(1, do_evict_after=True)
    emitted = results(items, lambda s: s.window(TENS).trigger(trigger).evictor(evictor).process(Numbers()))
    assert emitted == [("a", 0, 10, [1, 2]), ("a", 0, 10, [2, 3, 4])]


def test_reduce_and_aggregate_work_with_an_evictor() -> None:
    items = [("a", n, n) for n in range(5)]
    assert results(items, lambda s: s.window(TENS).evictor(CountEvictor.of(2)).reduce(added)) == [("a", 7, 3)]
    assert results(items, lambda s: s.window(TENS).evictor(CountEvictor.of(2)).aggregate(Average())) == [3.5]


def test_an_evictor_gets_records_and_not_accumulators() -> None:
    """Windows with an evictor store records; so do sliding count windows."""
    items, pair = [("a", n, n) for n in range(5)], Types.TUPLE([Types.LONG(), Types.LONG()])
    evicted = results(items, lambda s: s.window(TENS).evictor(CountEvictor.of(2)).aggregate(Average(), None, pair))
    assert evicted == [3.5]
    assert results(items, lambda s: s.count_window(3, 2).aggregate(Average(), None, pair)) == [0.5, 2.0]


class NoOdds(Evictor[Record, TimeWindow]):
    def evict_before(self, elements: list[Any], size: int, window: TimeWindow, ctx: Any) -> None:
        ctx.get_metric_group().counter("evicted").inc(sum(element.value[1] % 2 for element in elements))
        elements[:] = [element for element in elements if element.value[1] % 2 == 0]

    def evict_after(self, elements: list[Any], size: int, window: TimeWindow, ctx: Any) -> None:
        return None


def test_a_custom_evictor() -> None:
    result = told([("a", n, n) for n in range(5)], lambda s: s.window(TENS).evictor(NoOdds()).process(Numbers()))
    assert result["out"] == [("a", 0, 10, [0, 2, 4])]
    assert [m for name, m in result.metrics.items() if name.endswith("evicted")] == [{"counter": 2}]


# --- state of functions ---------------------------------------------------------------------------------------------


class Firings(ProcessWindowFunction):  # type: ignore[type-arg]
    """How often this window fired, how often any window of the key did, and which states are cleared at the end."""

    of_window = ValueStateDescriptor("count", Types.LONG())  # a trigger may have a state of the same name
    of_key = ValueStateDescriptor("count", Types.LONG())

    def open(self, runtime_context: Any) -> None:
        self.cleared = runtime_context.get_metrics_group().counter("cleared")

    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        own, every = context.window_state().get_state(self.of_window), context.global_state().get_state(self.of_key)
        own.update((own.value() or 0) + 1)
        every.update((every.value() or 0) + 1)
        yield context.window().start, own.value(), every.value(), context.current_watermark()

    def clear(self, context: Any) -> None:
        state = context.window_state().get_state(self.of_window)
        assert state.value() is not None
        state.clear()
        self.cleared.inc()


def test_window_state_belongs_to_one_window_and_global_state_to_the_key() -> None:
    items = [("a", 1, 1), ("a", 2, 2), ("a", 3, 12), ("a", 4, 13), Watermark(50), ("b", 0, 60)]
    result = told(items, lambda s: s.window(TENS).trigger(EveryRecord()).process(Firings()))
    start = -(2**63)
    assert result["out"] == [(0, 1, 1, start), (0, 2, 2, start), (10, 1, 3, start), (10, 2, 4, start), (60, 1, 1, 50)]
    assert [m for name, m in result.metrics.items() if name.endswith("cleared")] == [{"counter": 3}]


class EveryRecord(CountTrigger):  # type: ignore[type-arg]
    def __init__(self) -> None:
        super().__init__(1)


def tables_of(result: Result) -> set[str]:
    """The states with segments at the end of the job."""
    accounts = [
        account for state in result.manifests[-1].states.values() for account in state.get("subtasks", {}).values()
    ]
    return {name for account in accounts for name in account.get("tables", {})}


def test_a_window_opened_and_closed_in_one_epoch_writes_nothing() -> None:
    items = [("a", n, n) for n in range(30)]
    result = told(items, lambda s: s.window(TENS).process(Numbers()))
    assert len(result["out"]) == 3
    assert tables_of(result) == set()


# --- crashes, rescaling, BATCH --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_open_windows_survive_a_crash(parallelism: int) -> None:
    items: list[Any] = [("a", 1, 1), ("b", 2, 2), EPOCH, ("a", 4, 3), CRASH, ("b", 8, 4), EPOCH, ("a", 16, 5)]
    result = told(items, lambda s: s.window(TENS).process(Numbers()), parallelism=parallelism)
    assert sorted(result["out"]) == [("a", 0, 10, [1, 4, 16]), ("b", 0, 10, [2, 8])]
    assert result.restarts == 1


def test_open_windows_are_restored_at_another_parallelism() -> None:
    keys = "abcdefgh"
    items = [(key, n, n) for n in range(6) for key in keys]
    sessions = EventTimeSessionWindows.with_gap(ms(3))

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(Script(items), timed(), "records").uid("records").key_by(key_of)
        stream.window(TENS).process(Numbers()).uid("tens").sink_to(Collect("tens")).uid("tens-out")
        stream.window(sessions).reduce(added).uid("sessions").sink_to(Collect("sessions")).uid("sessions-out")

    first = run(build, store="rescaled-windows", epoch_records=10, epochs=2, parallelism=1)
    assert first["tens"] == [] and first["sessions"] == []
    rest = run(build, store="rescaled-windows", parallelism=3)
    assert sorted(rest["tens"]) == [(key, 0, 10, [0, 1, 2, 3, 4, 5]) for key in keys]
    assert sorted(rest["sessions"]) == [(key, 15, 0) for key in keys]


def in_batch() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env


def test_in_batch_no_record_is_late_and_no_early_result_is_emitted() -> None:
    items = [("a", 1, 1), ("a", 2, 40), Watermark(50), ("a", 4, 2), Watermark(60), ("a", 8, 41)]
    trigger = PurgingTrigger.of(ContinuousEventTimeTrigger.of(ms(3)))
    for windows in (TENS, CumulativeEventTimeWindows.of(ms(50), ms(50))):
        emitted = told(items, lambda s, w=windows: s.window(w).process(Numbers()), env=in_batch())
        assert sorted(n for _, _, _, numbers in emitted["out"] for n in numbers) == [1, 2, 4, 8]
        assert {record.epoch for record in emitted.of("out")} == {emitted.epochs}
    early = results(items, lambda s: s.window(TENS).trigger(CountTrigger.of(1)).process(Numbers()), env=in_batch())
    assert sorted(early) == [("a", 0, 10, [1, 4]), ("a", 40, 50, [2, 8])]
    assert len(results(items, lambda s: s.window(TENS).trigger(trigger).process(Numbers()), env=in_batch())) == 2


def test_in_batch_count_windows_fire_whenever_they_are_full() -> None:
    items: list[Any] = [("a", n, 0) for n in range(3)] + [EPOCH] + [("a", n, 0) for n in range(3, 5)]
    assert results(items, lambda s: s.count_window(2).reduce(added), env=in_batch()) == [("a", 1, 0), ("a", 5, 0)]


def test_in_batch_windows_of_processing_time_close_when_the_input_ends() -> None:
    items = [("a", 1, 0), ("a", 2, 0)]
    windows = TumblingProcessingTimeWindows.of(ms(1_000))
    emitted = results(items, lambda s: s.window(windows).reduce(added), env=in_batch(), clock=ManualClock(0))
    assert emitted == [("a", 3, 0)]


def test_in_batch_a_session_that_grew_after_it_fired_emits_its_last_result() -> None:
    items = [("a", 1, 0), ("a", 2, 1), ("a", 4, 2)]
    sessions = EventTimeSessionWindows.with_gap(ms(10))
    emitted = results(items, lambda s: s.window(sessions).trigger(EveryOther()).process(Numbers()), env=in_batch())
    assert emitted == [("a", 0, 11, [1, 2])]


def test_a_trigger_of_the_assigner_may_be_named_explicitly() -> None:
    items = [("a", 1, 1), ("a", 2, 12)]
    emitted = results(items, lambda s: s.window(TENS).trigger(EventTimeTrigger.create()).reduce(added))
    assert sorted(emitted) == [("a", 1, 1), ("a", 2, 12)]
