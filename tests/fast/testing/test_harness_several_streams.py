"""The operator harness with functions of two streams, broadcast functions and asynchronous functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from waits.refusals import Refused

from millstream.common import Row, Types
from millstream.datastream import AsyncRetryStrategy, OutputTag
from millstream.datastream.functions import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.errors import ProgramError, TypeMismatchError
from millstream.testing import OperatorHarness

UNMATCHED = OutputTag("alone")
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def first(pair: Any) -> Any:
    return pair[0]


# --- two streams ------------------------------------------------------------------------------------------------------


class Signed(CoMapFunction):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: str) -> int:
        return -int(value)


class Copies(CoFlatMapFunction):
    def flat_map1(self, value: int) -> Any:
        return [value, value]

    def flat_map2(self, value: str) -> Any:
        yield from value


class Stamped(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield 1, value, ctx.timestamp(), ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield UNMATCHED, value


def test_each_input_calls_its_method() -> None:
    harness = OperatorHarness(Signed(), Types.LONG(), input_type=Types.LONG(), input_type2=Types.STRING())
    harness.process_element1(3)
    harness.process_element2("4")
    harness.process_element1(5, timestamp=9)
    assert harness.output_with_timestamps() == [(3, None), (-4, None), (5, 9)]
    copies = OperatorHarness(Copies())
    copies.process_element2("ab")
    copies.process_element1(1)
    assert copies.output() == ["a", "b", 1, 1]


def test_event_time_is_the_minimum_of_both_inputs() -> None:
    harness = OperatorHarness(Stamped())
    harness.process_watermark1(10)
    harness.process_element1("a", 11)
    harness.process_watermark2(7)
    harness.process_element1("b", 12)
    harness.process_watermark2(5)  # it never goes back
    harness.watermark(20)
    harness.process_element1("c", 21)
    harness.process_element2("d", 22)
    low = -(2**63)
    assert [value[1:] for value in harness.output()] == [("a", 11, low), ("b", 12, 7), ("c", 21, 20)]
    assert harness.side_output(UNMATCHED) == ["d"]


class Pairs(KeyedCoProcessFunction):
    """The value of the first stream with every value of the second; without a match within 10 ms, a side output."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.seen.update(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        if self.seen.value() is not None:
            yield ctx.get_current_key(), self.seen.value(), value[1]
            self.seen.clear()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if self.seen.value() is not None:
            yield UNMATCHED, (ctx.get_current_key(), timestamp)


def pairs(**settings: Any) -> OperatorHarness:
    return OperatorHarness(Pairs(), key_by=first, key_by2=first, key_type=Types.STRING(), **settings)


def test_keyed_streams_share_state_and_timers() -> None:
    harness = pairs()
    harness.process_element1(("a", 1), 0)
    harness.process_element1(("b", 2), 5)
    harness.process_element2(("a", "x"), 6)
    harness.process_element2(("c", "y"), 6)
    harness.process_watermark1(100)
    assert (harness.output(), harness.side_output(UNMATCHED)) == ([("a", 1, "x")], [])
    harness.process_watermark2(15)
    assert harness.side_output(UNMATCHED) == [("b", 15)]


def test_state_of_two_streams_is_restored_at_another_parallelism() -> None:
    whole = pairs()
    for key in "abcdef":
        whole.process_element1((key, 1), 0)
    halves = [pairs(subtask=subtask, parallelism=2, restore=whole.snapshot()) for subtask in range(2)]
    for key in "abcdef":
        for half in halves:
            try:
                half.process_element2((key, "x"), 1)
            except ProgramError as refused:
                assert "has a key of subtask" in str(refused)
    assert sorted(value for half in halves for value in half.output()) == [(key, 1, "x") for key in "abcdef"]


def test_keys_of_both_streams_may_be_fields() -> None:
    named = Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.LONG()])
    second_type = Types.ROW_NAMED(["text", "id"], [Types.STRING(), Types.STRING()])

    class Sees(KeyedCoProcessFunction):
        def process_element1(self, value: Any, ctx: Any) -> Any:
            yield ctx.get_current_key()

        process_element2 = process_element1

    harness = OperatorHarness(Sees(), key_by="id", key_by2="id", input_type=named, input_type2=second_type)
    harness.process_element1(Row("a", 1))
    harness.process_element2(Row("hello", "b"))
    assert harness.output() == ["a", "b"]


# --- broadcast --------------------------------------------------------------------------------------------------------


class Limits(BroadcastProcessFunction):  # type: ignore[type-arg]
    """Values above the limit of their name, others to a side output."""

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(*value)
        yield "limit", value

    def process_element(self, value: Any, ctx: Any) -> Any:
        limit = ctx.get_broadcast_state(RULES).get(value[0])
        yield value if limit is not None and value[1] > limit else (UNMATCHED, value)


class Reminds(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Counts records of a key; a rule ends a count, and a timer emits it with the rule of the name."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(*value)
        ctx.apply_to_keyed_state(COUNT, lambda key, state: state.update(0) if key == value[0] else None)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        key = ctx.get_current_key()
        yield key, self.count.value(), ctx.get_broadcast_state(RULES).get(key)


COUNT = ValueStateDescriptor("count", Types.LONG())


def limits(**settings: Any) -> OperatorHarness:
    return OperatorHarness(Limits(), broadcast_states=[RULES], **settings)


def test_a_broadcast_function_has_its_state() -> None:
    harness = limits()
    harness.process_element(("a", 5))
    harness.process_broadcast_element(("a", 3))
    harness.push(("a", 5))
    harness.process_broadcast_element(("a", 7))
    harness.push(("a", 5))
    assert harness.output() == [("limit", ("a", 3)), ("a", 5), ("limit", ("a", 7))]
    assert harness.side_output(UNMATCHED) == [("a", 5), ("a", 5)]


@pytest.mark.parametrize("subtask", [0, 1])
def test_broadcast_state_is_snapshotted_and_restored_in_any_subtask(subtask: int) -> None:
    harness = limits(subtask=subtask, parallelism=2)
    harness.process_broadcast_element(("a", 3))
    harness.push(("a", 5))
    restored = limits(restore=harness.snapshot())
    restored.push(("a", 4))
    both = limits(restore=[limits(parallelism=2, subtask=1 - subtask).snapshot(), harness.snapshot()])
    both.push(("a", 4))
    assert restored.output() == both.output() == [("a", 4)]


def test_a_keyed_broadcast_function_has_state_timers_and_all_keys() -> None:
    harness = OperatorHarness(Reminds(), key_by=first, key_type=Types.STRING(), broadcast_states=[RULES])
    for name in ["a", "b", "a"]:
        harness.push((name, 1))
    harness.process_broadcast_element(("b", 9))
    harness.process_watermark(10)
    assert harness.output() == []
    snapshot = harness.snapshot()
    harness.process_broadcast_watermark(10)
    restored = OperatorHarness(
        Reminds(), key_by=first, key_type=Types.STRING(), broadcast_states=[RULES], restore=snapshot
    )
    restored.watermark(10)
    assert sorted(harness.output()) == sorted(restored.output()) == [("a", 2, None), ("b", 0, 9)]


def test_writing_broadcast_state_from_the_element_side_is_rejected_as_in_a_job() -> None:
    class Writes(Limits):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(RULES).put("a", 1)

    harness = OperatorHarness(Writes(), broadcast_states=[RULES])
    with pytest.raises(ProgramError, match="Write it in process_broadcast_element"):
        harness.push(("a", 1))


# --- asynchronous -----------------------------------------------------------------------------------------------------


class Later(AsyncFunction[int, int]):
    """Completes after some milliseconds, and counts the maximum number of concurrent calls."""

    async def open(self, runtime_context: Any) -> None:  # type: ignore[override]
        self.under_way = self.most = self.closed = 0

    async def async_invoke(self, value: int) -> list[int]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(value / 1000)
        self.under_way -= 1
        return [value, -value]

    def timeout(self, value: int) -> list[int]:
        return [0]

    def close(self) -> None:
        self.closed += 1


def test_an_asynchronous_function_is_called_and_awaited() -> None:
    function = Later()
    with OperatorHarness(function, Types.LONG()) as harness:
        harness.push(2, timestamp=5)
        assert harness.output_with_timestamps() == [(2, 5), (-2, 5)]
    assert function.closed == 1


def test_many_calls_run_concurrently_with_ordered_or_unordered_results() -> None:
    for ordered, expected in ((True, [9, -9, 1, -1]), (False, [1, -1, 9, -9])):
        function = Later()
        with OperatorHarness(function, ordered=ordered) as harness:
            harness.push_all([9, 1])
            assert (harness.output(), function.most) == (expected, 2)


def test_a_call_that_times_out_emits_the_result_of_timeout() -> None:
    with OperatorHarness(Later(), timeout_ms=1_000) as harness:
        harness.push_all([1, 10_000])
        assert harness.output() == [1, -1, 0]


class Fails(AsyncFunction[int, int]):
    def __init__(self, times: int) -> None:
        self.left = times

    async def async_invoke(self, value: int) -> list[int]:
        self.left -= 1
        if self.left >= 0:
            raise ConnectionError("busy")
        return [value]


def test_a_failing_call_is_retried_as_configured_and_then_raised() -> None:
    retry = AsyncRetryStrategy.fixed_delay(2, 1, None, lambda error: True)
    with OperatorHarness(Fails(2), retry=retry) as harness:
        harness.push(7)
        assert harness.output() == [7]
    with OperatorHarness(Fails(3), retry=retry) as harness, pytest.raises(ConnectionError, match="busy"):
        harness.push(7)


def test_asynchronous_results_are_checked_against_the_type() -> None:
    class Texts(AsyncFunction[int, Any]):
        async def async_invoke(self, value: int) -> list[Any]:
            return ["text"]

    with OperatorHarness(Texts(), Types.LONG()) as harness, pytest.raises(TypeMismatchError):
        harness.push(1)


# --- rejected calls ---------------------------------------------------------------------------------------------------


def test_unsupported_functions_are_rejected() -> None:
    with Refused("Pairs is a KeyedCoProcessFunction", "key_by= and key_by2="):
        OperatorHarness(Pairs())
    with Refused("Pass both key_by= and key_by2="):
        OperatorHarness(Pairs(), key_by=first)
    with Refused("key_by2=", "no second input with a key"):
        OperatorHarness(Limits(), key_by2=first, broadcast_states=[RULES])
    with Refused("needs its states", "broadcast_states=[descriptor"):
        OperatorHarness(Limits())
    with Refused("is no broadcast function"):
        OperatorHarness(Signed(), broadcast_states=[RULES])
    with Refused("Limits is a BroadcastProcessFunction", "KeyedBroadcastProcessFunction"):
        OperatorHarness(Limits(), key_by=first, broadcast_states=[RULES])
    with Refused("Reminds is a KeyedBroadcastProcessFunction", "pass key_by="):
        OperatorHarness(Reminds(), broadcast_states=[RULES])
    with Refused("at least 1"):
        OperatorHarness(Later(), capacity=0)


@pytest.mark.parametrize(
    ("harness", "call", "words"),
    [
        (lambda: OperatorHarness(Signed()), lambda h: h.push(1), "Use process_element1"),
        (lambda: OperatorHarness(Signed()), lambda h: h.process_watermark(1), "process_watermark1"),
        (lambda: OperatorHarness(Signed()), lambda h: h.process_broadcast_element(1), "no broadcast function"),
        (lambda: OperatorHarness(len, kind="map"), lambda h: h.process_element2(1), "Use push"),
        (lambda: limits(), lambda h: h.process_element1(1), "Use push"),
        (lambda: limits(), lambda h: h.process_watermark2(1), "Use push"),
    ],
)
def test_an_input_missing_from_the_function_is_rejected(
    harness: Callable[[], OperatorHarness], call: Callable[[OperatorHarness], None], words: str
) -> None:
    with pytest.raises(ProgramError, match=words):
        call(harness())
