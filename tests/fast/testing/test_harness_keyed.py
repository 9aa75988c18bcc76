"""The operator harness with keyed functions: state, timers, both clocks, snapshots, and agreement with a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Row, Types
from millstream.datastream import OutputTag, TimeDomain
from millstream.datastream.functions import (
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.errors import ProgramError
from millstream.testing import EPOCH, Collect, HarnessSnapshot, ManualClock, OperatorHarness, Script, Watermark, run

END = 2**63 - 1
PASSED = OutputTag("passed")


def itself(value: Any) -> Any:
    return value


class Sessions(KeyedProcessFunction):
    """Records (user, at): collects a user's times and emits them after 10 ms of event time without any."""

    def open(self, runtime_context: Any) -> None:
        self.times = runtime_context.get_list_state(ListStateDescriptor("times", Types.LONG()))
        self.ends = runtime_context.get_state(ValueStateDescriptor("ends", Types.LONG()))

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        timers, ends = ctx.timer_service(), self.ends.value()
        self.times.add(value[1])
        if ends is not None:
            timers.delete_event_time_timer(ends)
        self.ends.update(max(ends or 0, value[1] + 10))
        timers.register_event_time_timer(self.ends.value())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), sorted(self.times)
        self.times.clear()
        self.ends.clear()


class Reminder(KeyedProcessFunction):
    """Emits every value, and repeats it three times, each 100 ms of processing time after the last."""

    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.INT()))

    def process_element(self, value: str, ctx: Any) -> Iterator[Any]:
        yield value
        self.left.update(3)
        self._repeat(ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        yield ctx.get_current_key(), timestamp
        self.left.update(self.left.value() - 1)
        if self.left.value():
            self._repeat(ctx)

    def _repeat(self, ctx: Any) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 100)


class Counting:
    """Counts per key, for functions of any kind."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def counted(self) -> int:
        self.count.update((self.count.value() or 0) + 1)
        count: int = self.count.value()
        return count


class Counts(Counting, MapFunction):
    """Every value with its count; "fail" raises after the count has changed."""

    def map(self, value: Any) -> Any:
        count = self.counted()
        if value == "fail":
            raise ValueError("failed on request")
        return value, count


def sessions(**options: Any) -> OperatorHarness:
    return OperatorHarness(Sessions(), key_by=lambda pair: pair[0], **options)


def counting(**options: Any) -> OperatorHarness:
    return OperatorHarness(Counts(), key_by=itself, **options)


# --- state and timers -----------------------------------------------------------------------------------------


def test_a_function_has_the_state_of_the_current_key() -> None:
    harness = counting()
    harness.push_all(["a", "b", "a", "a", "b"])
    assert harness.output() == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)]


def test_event_timers_fire_with_the_watermark_in_time_order() -> None:
    harness = sessions()
    for pair in [("late", 7), ("early", 1), ("late", 3)]:
        harness.push(pair, timestamp=pair[1])
    harness.watermark(10)
    assert harness.output() == []
    harness.watermark(17)
    assert harness.output_with_timestamps() == [(("early", [1]), 11), (("late", [3, 7]), 17)]
    harness.push(("late", 30), timestamp=30)
    harness.watermark(END)
    assert harness.output()[2:] == [("late", [30])]


def test_processing_timers_fire_when_the_clock_reaches_them_and_the_function_is_woken() -> None:
    clock = ManualClock(now_ms=1_000)
    harness = OperatorHarness(Reminder(), key_by=itself, clock=clock)
    harness.push("a")
    clock.advance(99)
    harness.wake()
    assert harness.output() == ["a"]
    clock.advance(1)
    assert harness.output() == ["a"], "nothing is called between two calls of the harness"
    harness.wake()
    assert harness.output() == ["a", ("a", 1_100)]
    clock.advance(150)
    harness.push("b")
    assert harness.output()[2:] == [("a", 1_200), "b"], "due timers fire before the record"
    clock.advance(1_000)
    harness.watermark(5)
    assert sorted(harness.output()[4:]) == [("a", 1_350), ("b", 1_350)]


def test_keys_may_be_fields_of_a_typed_stream() -> None:
    user = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])

    class PerUser(Counts):
        def map(self, value: Any) -> Any:
            return super().map(value.user)

    by_name = OperatorHarness(PerUser(), key_by="user", input_type=user)
    by_name.push_all([Row("a", 1), Row("a", 2), Row("b", 3)])
    assert by_name.output() == [("a", 1), ("a", 2), ("b", 1)]
    with pytest.raises(ProgramError, match="no such field"):
        OperatorHarness(PerUser(), key_by="missing", input_type=user)


def test_functions_of_every_kind_have_state() -> None:
    class Repeats(Counting, FlatMapFunction):
        def flat_map(self, value: Any) -> Any:
            return [value] * self.counted()

    class First(Counting, FilterFunction):
        def filter(self, value: Any) -> bool:
            return self.counted() == 1

    class Numbers(Counting, ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.timer_service().register_event_time_timer(1)  # which are never consumed
            yield self.counted()

    expectations: list[tuple[Any, list[Any]]] = [(Repeats(), ["a"] * 3), (First(), ["a"]), (Numbers(), [1, 2])]
    for function, expected in expectations:
        harness = OperatorHarness(function, key_by=itself)
        harness.push_all(["a", "a"])
        harness.watermark(5)
        assert harness.output() == expected


def test_side_outputs_of_elements_and_of_timers_are_separated() -> None:
    class Passes(KeyedProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
            ctx.timer_service().register_event_time_timer(value)
            yield PASSED, f"saw {value}"

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield timestamp
            yield PASSED, f"fired {timestamp}"

    harness = OperatorHarness(Passes(), key_by=itself)
    harness.push_all([3, 5])
    harness.watermark(4)
    assert (harness.output(), harness.side_output(PASSED)) == ([3], ["saw 3", "saw 5", "fired 3"])


def test_an_exception_of_a_timer_is_raised_where_time_advances() -> None:
    class Raises(KeyedProcessFunction):
        def process_element(self, value: int, ctx: Any) -> None:
            ctx.timer_service().register_event_time_timer(value)

        def on_timer(self, timestamp: int, ctx: Any) -> None:
            raise LookupError("not there")

    harness = OperatorHarness(Raises(), key_by=itself)
    harness.push(3)
    harness.watermark(2)
    with pytest.raises(LookupError, match="not there"):
        harness.watermark(3)


def test_a_failing_record_leaves_the_state_unchanged() -> None:
    harness = OperatorHarness(Counts(), key_by=lambda value: "one key")
    harness.push("a")
    with pytest.raises(ValueError, match="failed on request"):
        harness.push("fail")
    harness.push("b")
    assert harness.output() == [("a", 1), ("b", 2)]


# --- snapshots ------------------------------------------------------------------------------------------------


def test_state_timers_and_event_time_are_restored() -> None:
    before = sessions()
    before.push(("a", 1))
    before.push(("b", 8))
    before.watermark(5)
    snapshot = before.snapshot()
    after = sessions(restore=snapshot)
    after.push(("a", 7))
    after.watermark(3)
    assert after.output() == []
    after.watermark(END)
    assert after.output() == [("a", [1, 7]), ("b", [8])]
    # The first harness continues independently, and the snapshot can be reused.
    before.watermark(END)
    assert before.output() == [("a", [1]), ("b", [8])]
    again = sessions(restore=snapshot)
    again.watermark(END)
    assert again.output() == before.output()


def test_event_time_continues_after_a_restore() -> None:
    class Now(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield ctx.timer_service().current_watermark()

    before = OperatorHarness(Now(), key_by=itself)
    before.watermark(40)
    after = OperatorHarness(Now(), key_by=itself, restore=before.snapshot())
    after.push("a")
    assert after.output() == [40]


def subtasks(parallelism: int, snapshots: HarnessSnapshot | list[HarnessSnapshot]) -> list[OperatorHarness]:
    return [counting(subtask=at, parallelism=parallelism, restore=snapshots) for at in range(parallelism)]


def push_where_it_belongs(harnesses: list[OperatorHarness], value: Any) -> None:
    refused = 0
    for harness in harnesses:
        try:
            harness.push(value)
        except ProgramError as error:
            assert "Push it to a harness with subtask=" in str(error)
            refused += 1
    assert refused == len(harnesses) - 1


def test_state_is_restored_at_another_parallelism_and_back() -> None:
    words = [f"word {n}" for n in range(12)]
    one = counting()
    one.push_all(words)
    three = subtasks(3, one.snapshot())
    for word in words:
        push_where_it_belongs(three, word)
    assert sorted(pair for harness in three for pair in harness.output()) == sorted((word, 2) for word in words)
    assert all(harness.output() for harness in three)
    two = subtasks(2, [harness.snapshot() for harness in three])
    for word in words:
        push_where_it_belongs(two, word)
    assert sorted(pair for harness in two for pair in harness.output()) == sorted((word, 3) for word in words)


class Remembering(ProcessFunction, CheckpointedFunction):
    """Emits every value with the earlier values of its subtask, in operator state."""

    def __init__(self, union: bool = False) -> None:
        self.union = union

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        descriptor = ListStateDescriptor("seen", Types.LONG())
        self.state = (store.get_union_list_state if self.union else store.get_list_state)(descriptor)
        self.seen, self.restored = list(self.state), context.is_restored()

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.seen)

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield value, list(self.seen), self.restored
        self.seen.append(value)


@pytest.mark.parametrize(("union", "dealt"), [(False, [[1, 2], [3, 4]]), (True, [[1, 2, 3, 4], [1, 2, 3, 4]])])
def test_operator_state_is_restored_and_redistributed(union: bool, dealt: list[list[int]]) -> None:
    before = OperatorHarness(Remembering(union))
    before.push_all([1, 2, 3, 4])
    assert before.output()[-1] == (4, [1, 2, 3], False)
    snapshot = before.snapshot()
    for subtask, seen in enumerate(dealt):
        after = OperatorHarness(Remembering(union), subtask=subtask, parallelism=2, restore=snapshot)
        after.push(9)
        assert after.output() == [(9, seen, True)]


def test_incompatible_snapshots_are_rejected() -> None:
    one, other = counting(), counting()
    one.push("a")
    other.push("b")
    with pytest.raises(ProgramError, match="two of the same subtask"):
        counting(restore=[one.snapshot(), other.snapshot()])
    with pytest.raises(ProgramError, match="max_parallelism=128, this harness 64"):
        counting(restore=one.snapshot(), max_parallelism=64)
    [half, _] = subtasks(2, [])
    with pytest.raises(ProgramError, match="different parallelisms"):
        counting(restore=[one.snapshot(), half.snapshot()])
    with pytest.raises(ProgramError, match="expected what snapshot"):
        counting(restore=["yesterday's"])


# --- rejected calls -------------------------------------------------------------------------------------------


def test_a_key_is_required_for_keyed_functions_and_rejected_for_others() -> None:
    with pytest.raises(ProgramError, match="needs a key; pass key_by="):
        OperatorHarness(Sessions())
    with pytest.raises(ProgramError, match="no use for a key"):
        OperatorHarness(len, kind="map", key_by=itself)


def test_an_unstable_key_is_rejected_as_in_a_job() -> None:
    harness = OperatorHarness(Counts(), key_by=lambda value: {value})
    with pytest.raises(ProgramError, match="set"):
        harness.push("a")


# --- agreement with a job -------------------------------------------------------------------------------------


class Everything(KeyedProcessFunction):
    """Counts, writes a map, sets and deletes timers, and emits the observed times."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        service = ctx.timer_service()
        self.count.update((self.count.value() or 0) + 1)
        self.seen.put(value, (self.seen.get(value) or 0) + 1)
        service.register_event_time_timer(value * 3)
        if value % 5 == 0:
            service.delete_event_time_timer(value * 3 - 9)
        yield value, self.count.value(), sorted(self.seen.items()), service.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp, ctx.get_current_key(), self.count.value()
        if (self.count.value() or 0) > 3:
            self.count.clear()
            self.seen.clear()


ITEMS = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 60).map(Watermark)), max_size=15)


@pytest.mark.slow
@given(ITEMS)
@settings(max_examples=8, deadline=None)
def test_the_harness_emits_what_a_job_emits(items: list[Any]) -> None:
    out, harness = Collect(), OperatorHarness(Everything(), key_by=lambda n: n % 3)
    script: list[Any] = []
    for item in items:
        script += [item] if isinstance(item, Watermark) else [item, EPOCH]
        if isinstance(item, Watermark):
            harness.watermark(item.timestamp_ms)
        else:
            harness.push(item)
    harness.watermark(END)
    job = run(lambda env: env.add_source(Script(script)).key_by(lambda n: n % 3).process(Everything()).sink_to(out))
    assert harness.output() == job[out]


class OpensAtTheSecondTry(MapFunction):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.calls.append("open")
        if len(self.calls) == 1:
            raise OSError("nobody answers")

    def close(self) -> None:
        self.calls.append("close")

    def map(self, value: Any) -> Any:
        return value


def test_a_function_whose_open_failed_is_not_closed_and_is_opened_before_use() -> None:
    function = OpensAtTheSecondTry()
    harness = OperatorHarness(function)
    with pytest.raises(OSError, match="nobody answers"):
        harness.open()
    harness.close()
    assert function.calls == ["open"]
    harness.push(1)
    assert harness.output() == [1] and function.calls == ["open", "open"]
