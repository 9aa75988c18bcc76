"""Window assigners and triggers as pure logic: assignment of records, merging and firing."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Duration
from millstream.datastream.state import ReducingState, ValueState
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import ProgramError

TIMES = st.integers(-10_000, 10_000)


class Merges(MergingWindowAssigner.MergeCallback[TimeWindow]):
    def __init__(self) -> None:
        self.seen: list[tuple[list[TimeWindow], TimeWindow]] = []

    def merge(self, to_be_merged: Any, merge_result: TimeWindow) -> None:
        self.seen.append((list(to_be_merged), merge_result))


class Value(ValueState[int]):
    def __init__(self) -> None:
        self.current: int | None = None

    def value(self) -> int | None:
        return self.current

    def update(self, value: int) -> None:
        self.current = value

    def clear(self) -> None:
        self.current = None


class Reducing(ReducingState[int]):
    def __init__(self, reduce: Callable[[int, int], int]) -> None:
        self.reduce, self.current = reduce, None

    current: int | None

    def get(self) -> int | None:
        return self.current

    def add(self, value: int) -> None:
        self.current = value if self.current is None else self.reduce(self.current, value)

    def clear(self) -> None:
        self.current = None


class Script(Trigger.OnMergeContext):
    """The context of a trigger, recorded: two clocks, timers as sets, state by name."""

    def __init__(self, watermark: int = -(2**63), now: int = 0) -> None:
        self.watermark, self.now = watermark, now
        self.event_timers: set[int] = set()
        self.clock_timers: set[int] = set()
        self.states: dict[str, Any] = {}

    def get_current_processing_time(self) -> int:
        return self.now

    def get_current_watermark(self) -> int:
        return self.watermark

    def get_metric_group(self) -> Any:
        raise NotImplementedError

    def register_processing_time_timer(self, time: int) -> None:
        self.clock_timers.add(time)

    def register_event_time_timer(self, time: int) -> None:
        self.event_timers.add(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self.clock_timers.discard(time)

    def delete_event_time_timer(self, time: int) -> None:
        self.event_timers.discard(time)

    def get_partitioned_state(self, state_descriptor: Any) -> Any:
        reduce = state_descriptor.get_reduce_function().reduce
        return self.states.setdefault(state_descriptor.get_name(), Reducing(reduce))

    def merge_partitioned_state(self, state_descriptor: Any) -> None:
        self.get_partitioned_state(state_descriptor)


class AtClock:
    """The context of an assigner: a clock and a counter per key."""

    def __init__(self, now: int = 0) -> None:
        self.now, self.counter = now, Value()

    def get_current_processing_time(self) -> int:
        return self.now

    def get_runtime_context(self) -> AtClock:
        return self

    def get_state(self, state_descriptor: Any) -> Value:
        return self.counter


# --- assigners ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(timestamp=TIMES, size=st.integers(1, 50), slide=st.integers(1, 50), data=st.data())
def test_sliding_windows_are_all_windows_on_the_grid_that_contain_the_record(
    timestamp: int, size: int, slide: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(-slide + 1, slide - 1))
    assigned = SlidingEventTimeWindows(size, slide, offset).assign_windows("x", timestamp, None)  # type: ignore[arg-type]
    grid = [start for start in range(timestamp - size, timestamp + 1) if (start - offset) % slide == 0]
    expected = {TimeWindow(start, start + size) for start in grid if start <= timestamp < start + size}
    assert set(assigned) == expected
    assert len(assigned) == len(expected)


@settings(deadline=None)
@given(timestamp=TIMES, size=st.integers(1, 50))
def test_tumbling_windows_assign_a_record_to_exactly_one_window(timestamp: int, size: int) -> None:
    windows = TumblingEventTimeWindows(size, 0).assign_windows("x", timestamp, None)  # type: ignore[arg-type]
    (window,) = windows
    assert (
        window.start % size == 0
        and window.start <= timestamp <= window.max_timestamp()
        and window.end - window.start == size
    )


def test_processing_time_windows_ignore_the_timestamp() -> None:
    windows = TumblingProcessingTimeWindows.of(Duration.of_millis(10)).assign_windows("x", 999, AtClock(25))  # type: ignore[arg-type]
    assert windows == [TimeWindow(20, 30)]


@settings(deadline=None)
@given(size=st.integers(1, 9), slide=st.integers(1, 9), records=st.integers(0, 40))
def test_count_windows_contain_the_records_with_their_numbers(size: int, slide: int, records: int) -> None:
    assigner, world = CountSlidingWindowAssigner.of(size, slide), AtClock()
    contents: dict[int, list[int]] = {}
    for record in range(records):
        for window in assigner.assign_windows(record, 0, world):  # type: ignore[arg-type]
            contents.setdefault(window.id, []).append(record)
    expected = {id: [r for r in range(id * slide, id * slide + size) if r < records] for id in range(records + 1)}
    assert contents == {id: held for id, held in expected.items() if held}


def test_tumbling_count_windows_are_filled_in_sequence() -> None:
    assigner, world = CountTumblingWindowAssigner.of(2), AtClock()
    ids = [window.id for r in range(5) for window in assigner.assign_windows(r, 0, world)]  # type: ignore[arg-type]
    assert ids == [0, 0, 1, 1, 2]
    assert isinstance(assigner.get_default_trigger(None), CountTrigger)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.tuples(TIMES, st.integers(1, 100)), max_size=12))
def test_windows_merge_exactly_when_a_chain_of_overlaps_connects_them(spans: list[tuple[int, int]]) -> None:
    windows = [TimeWindow(start, start + length) for start, length in spans]
    merges = Merges()
    TimeWindow.merge_windows(windows, merges)
    groups: list[list[TimeWindow]] = []
    for window in windows:
        touching = [group for group in groups if any(member.intersects(window) for member in group)]
        groups = [group for group in groups if group not in touching] + [sum(touching, [window])]
    expected = [group for group in groups if len(group) > 1]
    assert sorted(sorted(merged) for merged, _ in merges.seen) == sorted(sorted(group) for group in expected)
    for merged, result in merges.seen:
        assert result == TimeWindow(min(w.start for w in merged), max(w.end for w in merged))


def test_adjacent_windows_intersect_symmetrically() -> None:
    first, second, separate = TimeWindow(0, 10), TimeWindow(10, 20), TimeWindow(21, 30)
    assert first.intersects(second) and second.intersects(first)
    assert not second.intersects(separate) and not separate.intersects(second)


def test_dynamic_sessions_derive_their_gap_from_the_record() -> None:
    class Gap(SessionWindowTimeGapExtractor):
        def extract(self, element: Any) -> int:
            return int(element)

    dynamic = EventTimeSessionWindows.with_dynamic_gap(Gap())
    assert dynamic.assign_windows(7, 100, None) == [TimeWindow(100, 107)]  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="the gap 0"):
        dynamic.assign_windows(0, 100, None)  # type: ignore[arg-type]
    fixed = EventTimeSessionWindows.with_gap(Duration.of_millis(5))
    assert fixed.assign_windows("x", 1, None) == [TimeWindow(1, 6)]  # type: ignore[arg-type]


def test_event_time_windows_reject_records_without_a_timestamp() -> None:
    for missing in (None, -(2**63)):
        with pytest.raises(ProgramError, match="assign_timestamps_and_watermarks"):
            TumblingEventTimeWindows(10, 0).assign_windows("x", missing, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows(0, 0),
        lambda: TumblingEventTimeWindows(10, 10),
        lambda: SlidingEventTimeWindows(10, 5, -5),
        lambda: CountTumblingWindowAssigner.of(0),
        lambda: EventTimeSessionWindows(-1),
    ],
)
def test_invalid_sizes_and_offsets_are_rejected(make: Callable[[], Any]) -> None:
    with pytest.raises(ProgramError):
        make()


def test_the_global_window_never_fires_by_itself() -> None:
    assigner = GlobalWindows.create()
    assert assigner.assign_windows("x", 0, None) == [GlobalWindow.get()]  # type: ignore[arg-type]
    assert isinstance(assigner.get_default_trigger(None), NeverTrigger)  # type: ignore[arg-type]


def test_windows_survive_serialization() -> None:
    written: list[tuple[Any, Any]] = [
        (TimeWindowSerializer(), TimeWindow(-5, 7)),
        (CountWindowSerializer(), CountWindow(3)),
        (GlobalWindowSerializer(), GlobalWindow()),
    ]
    for serializer, window in written:
        stream = BytesIO()
        serializer.serialize(window, stream)
        assert serializer.deserialize(BytesIO(stream.getvalue())) == window


# --- triggers -----------------------------------------------------------------------------------------------


def test_event_time_windows_fire_at_their_end_and_again_for_late_records() -> None:
    trigger, world, window = EventTimeTrigger.create(), Script(watermark=0), TimeWindow(0, 10)
    assert trigger.on_element("x", 3, window, world) is TriggerResult.CONTINUE
    assert world.event_timers == {9}
    assert trigger.on_event_time(8, window, world) is TriggerResult.CONTINUE
    assert trigger.on_event_time(9, window, world) is TriggerResult.FIRE
    world.watermark = 9
    assert trigger.on_element("late", 4, window, world) is TriggerResult.FIRE
    trigger.clear(window, world)
    assert world.event_timers == set()


def test_merged_windows_wait_for_their_common_end() -> None:
    trigger, world = EventTimeTrigger.create(), Script(watermark=0)
    trigger.on_merge(TimeWindow(0, 20), world)
    assert world.event_timers == {19}
    world.watermark, world.event_timers = 30, set()
    trigger.on_merge(TimeWindow(0, 20), world)
    assert world.event_timers == set(), "the window has already ended"


def test_processing_time_windows_fire_by_processing_time_only() -> None:
    trigger, world, window = ProcessingTimeTrigger.create(), Script(), TimeWindow(0, 10)
    assert trigger.on_element("x", 3, window, world) is TriggerResult.CONTINUE
    assert (world.clock_timers, world.event_timers) == ({9}, set())
    assert trigger.on_event_time(9, window, world) is TriggerResult.CONTINUE
    assert trigger.on_processing_time(9, window, world) is TriggerResult.FIRE


def test_a_count_trigger_fires_and_restarts() -> None:
    trigger, world, window = CountTrigger.of(2), Script(), CountWindow(0)
    fired = [trigger.on_element(n, 0, window, world).is_fire() for n in range(5)]
    assert fired == [False, True, False, True, False]


def test_a_purging_trigger_drops_the_fired_records() -> None:
    trigger, world, window = PurgingTrigger.of(CountTrigger.of(2)), Script(), CountWindow(0)
    results = [trigger.on_element(n, 0, window, world) for n in range(2)]
    assert results == [TriggerResult.CONTINUE, TriggerResult.FIRE_AND_PURGE]


def test_a_continuous_trigger_fires_on_its_grid_and_at_the_end() -> None:
    trigger = ContinuousEventTimeTrigger.of(Duration.of_millis(4))
    world, window = Script(watermark=0), TimeWindow(0, 10)
    assert trigger.on_element("x", 3, window, world) is TriggerResult.CONTINUE
    fired = []
    for time in range(20):
        if time in world.event_timers and trigger.on_event_time(time, window, world).is_fire():
            fired.append(time)
    assert fired == [4, 8, 9], "every 4 ms, and never after the window's end"
    assert max(world.event_timers) == window.max_timestamp(), "no timer outlives the window"
    trigger.clear(window, world)
    assert world.states["fire-time"].get() is None


def test_a_continuous_processing_time_trigger_ends_with_its_window() -> None:
    trigger = ContinuousProcessingTimeTrigger.of(Duration.of_millis(4))
    world, window = Script(now=3), TimeWindow(0, 10)
    trigger.on_element("x", 3, window, world)
    fired = []
    for time in range(20):
        if time in world.clock_timers:
            world.clock_timers.remove(time)
            if trigger.on_processing_time(time, window, world).is_fire():
                fired.append(time)
    assert fired == [4, 8, 9]
    assert world.clock_timers == set(), "at the end no timer is set for a time that has come"
