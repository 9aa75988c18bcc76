"""Connected streams: the order of two inputs, what they share, event time across them, and what is refused.

That they give one answer at every parallelism and epoch size is tested by the programs of `programs/connected.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.fresh_names import fresh_name
from waits.refusals import Refused

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    MapFunction,
)
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.errors import JobFailedError
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Result, Script, Watermark, run

SIDE = OutputTag("side")


class Told(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return 1, value

    def map2(self, value: Any) -> Any:
        return 2, value


class Twice(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return [value, value]

    def flat_map2(self, value: Any) -> Any:
        return None


class Stamped(CoProcessFunction):
    """Each record with its time; those of the second stream go to the side output."""

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield SIDE, (value, ctx.timestamp())


class Log(KeyedCoProcessFunction):
    """All that its key has seen so far, for every record."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.STRING()))

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        return self._add(f"a{value}", ctx)

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        return self._add(f"b{value}", ctx)

    def _add(self, text: str, ctx: Any) -> Iterable[Any]:
        self.seen.add(text)
        yield ctx.get_current_key(), list(self.seen)


def connected(
    function: Any, first: Script, second: Script, key: Any = None, method: str = "process", **options: Any
) -> tuple[list[Any], Result]:
    """What a function gives for two scripts; with `key`, both are keyed by it."""
    out = Collect("out")

    def build(env: StreamExecutionEnvironment) -> None:
        both = env.add_source(first).uid("first").connect(env.add_source(second).uid("second"))
        both = both if key is None else both.key_by(key, key)
        stream: DataStream = getattr(both, method)(function).uid("function")
        stream.sink_to(out).uid("out")

    result = run(build, **options)
    return result[out], result


# --- order ------------------------------------------------------------------------------------------------------------


def test_within_an_epoch_the_first_stream_comes_first_and_each_in_its_order() -> None:
    values, result = connected(Told(), Script([1, 2, EPOCH, 3]), Script(["x", "y", EPOCH, "z"]), method="map")
    assert values == [(1, 1), (1, 2), (2, "x"), (2, "y"), (1, 3), (2, "z")]
    assert result.epochs == 2


def test_which_source_was_made_first_makes_no_difference_to_the_order() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        early, late = env.add_source(Script(["x", "y"])), env.add_source(Script([1, 2]))
        late.connect(early).map(Told()).sink_to(out)

    assert run(build)[out] == [(1, 1), (1, 2), (2, "x"), (2, "y")]


def test_a_repeated_epoch_has_the_same_order() -> None:
    first, second = Script([1, EPOCH, 2, CRASH, 3]), Script(["x", EPOCH, "y", "z"])
    values, result = connected(Told(), first, second, method="map")
    assert values == [(1, 1), (2, "x"), (1, 2), (1, 3), (2, "y"), (2, "z")]
    assert result.restarts == 1


def test_a_flat_map_may_give_many_values_or_none() -> None:
    values, _ = connected(Twice(), Script([1, 2]), Script(["x"]), method="flat_map")
    assert values == [1, 1, 2, 2]


def test_a_stream_can_be_connected_with_itself() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, 2], type_info=Types.LONG()))
        numbers.connect(numbers).map(Told()).sink_to(out)

    assert run(build)[out] == [(1, 1), (1, 2), (2, 1), (2, 2)]


ITEMS = st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=4)


def cut(epochs: list[list[int]]) -> Script:
    """A script whose epochs have these records."""
    return Script([item for epoch in epochs for item in (*epoch, EPOCH)])


def by_reference(first: list[list[int]], second: list[list[int]], keys: int) -> dict[int, list[list[str]]]:
    """The slow, obvious way: epoch by epoch, all of the first input, then all of the second."""
    seen: dict[int, list[str]] = defaultdict(list)
    told: dict[int, list[list[str]]] = defaultdict(list)
    for epoch in range(max(len(first), len(second))):
        for name, epochs in (("a", first), ("b", second)):
            for value in epochs[epoch] if epoch < len(epochs) else ():
                seen[value % keys].append(f"{name}{value}")
                told[value % keys].append(list(seen[value % keys]))
    return dict(told)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(ITEMS, ITEMS, st.integers(1, 4), st.integers(1, 3))
def test_keyed_streams_share_state_in_the_order_of_the_reference(
    first: list[list[int]], second: list[list[int]], keys: int, parallelism: int
) -> None:
    values, _ = connected(Log(), cut(first), cut(second), lambda n: n % keys, parallelism=parallelism)
    told: dict[int, list[list[str]]] = defaultdict(list)
    for key, seen in values:
        told[key].append(seen)
    assert told == by_reference(first, second, keys)


# --- state and timers -------------------------------------------------------------------------------------------------


class Matched(KeyedCoProcessFunction):
    """Pairs an order with its payment, and complains of those without one."""

    def open(self, runtime_context: Any) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.STRING()))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.order.update(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        if self.order.value() is not None:
            yield "paid", self.order.value(), value[1]
            self.order.clear()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        if self.order.value() is not None:
            yield SIDE, ("open", ctx.get_current_key(), self.order.value(), timestamp, ctx.time_domain().name)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_timers_of_one_stream_see_what_the_other_did(parallelism: int) -> None:
    paid, unpaid = Collect(), Collect()
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value, _: value[2])

    def build(env: StreamExecutionEnvironment) -> None:
        orders = Script([("k1", "book", 1), ("k2", "pen", 2), Watermark(5), Watermark(40)])
        payments = Script([Watermark(5), ("k1", 7, 6), CRASH, Watermark(40)])
        ordered = env.from_source(orders, strategy, "orders").key_by(lambda value: value[0])
        payed = env.from_source(payments, strategy, "payments").key_by(lambda value: value[0])
        matched = ordered.connect(payed).process(Matched())
        matched.sink_to(paid)
        matched.get_side_output(SIDE).sink_to(unpaid)

    result = run(build, parallelism=parallelism)
    assert result[paid] == [("paid", "book", 7)]
    assert result[unpaid] == [("open", "k2", "pen", 12, "EVENT_TIME")]


class Alarm(KeyedCoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(value)

    def process_element2(self, value: int, ctx: Any) -> None:
        ctx.timer_service().delete_processing_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield timestamp, ctx.time_domain().name


def test_one_stream_can_delete_the_timers_of_the_other() -> None:
    clock = ManualClock(now_ms=1_000)
    first = Script([1_500, 1_600, EPOCH, Pause(2_000), 9_999], clock=clock)
    values, _ = connected(Alarm(), first, Script([1_600]), lambda n: "key", clock=clock)
    assert values == [(1_500, "PROCESSING_TIME")]


def test_state_is_shared_after_a_restart_at_another_parallelism() -> None:
    store = fresh_name("connected")
    first, second = Script([1, 2, EPOCH, 3, 4, EPOCH, 5, 6]), Script([1, 2, EPOCH, EPOCH, 3, 4, 5, 6])
    connected(Log(), first, second, lambda n: n % 2, parallelism=2, store=store, epochs=1)
    connected(Log(), first, second, lambda n: n % 2, parallelism=3, store=store, epochs=3)  # 2 is the stop
    values, result = connected(Log(), first, second, lambda n: n % 2, parallelism=1, store=store)
    assert result.manifests[0].epoch == 5, "the last run did not go on where the second stopped"
    assert max((seen for key, seen in values if key == 0), key=len) == ["a2", "b2", "a4", "a6", "b4", "b6"]
    assert max((seen for key, seen in values if key == 1), key=len) == ["a1", "b1", "a3", "a5", "b3", "b5"]


class Counted(CoMapFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map1(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return value, self.count.value()

    map2 = map1


def test_a_map_over_keyed_streams_holds_state_of_the_key() -> None:
    values, _ = connected(Counted(), Script([1, 2, EPOCH, 1]), Script([1, EPOCH, 2]), lambda n: n, method="map")
    assert values == [(1, 1), (2, 1), (1, 2), (1, 3), (2, 2)]


def test_fields_of_typed_streams_are_keys_of_one_type() -> None:
    out = Collect()
    pair = Types.ROW_NAMED(["id", "text"], [Types.LONG(), Types.STRING()])

    def build(env: StreamExecutionEnvironment) -> None:
        left = env.from_collection([Row(1, "a"), Row(2, "b")], pair).key_by("id")
        right = env.from_collection([(1.5, 1), (2.5, 2)], Types.TUPLE([Types.DOUBLE(), Types.LONG()])).key_by(1)
        left.connect(right).map(Counted()).map(lambda told: told[1], Types.LONG()).sink_to(out)

    assert sorted(run(build, parallelism=2)[out]) == [1, 1, 2, 2]


# --- event time -------------------------------------------------------------------------------------------------------


def test_records_keep_their_times_and_event_time_is_that_of_the_slower_stream() -> None:
    main, side = Collect(), Collect()
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value, _: value * 10)

    def build(env: StreamExecutionEnvironment) -> None:
        first = env.from_source(Script([1, Watermark(50), 2, EPOCH, 3]), strategy, "first")
        second = env.from_source(Script([1, Watermark(30), 2, EPOCH, EPOCH]), strategy, "second")
        processed = first.connect(second).process(Stamped())
        processed.sink_to(main)
        processed.get_side_output(SIDE).sink_to(side)

    result = run(build)
    assert [told[:2] for told in result[main]] == [(1, 10), (2, 20), (3, 30)]
    assert result[main][1][2] == 30
    assert result[side] == [(1, 10), (2, 20)]


def test_an_idle_stream_does_not_hold_event_time_back() -> None:
    out = Collect()
    clock = ManualClock(now_ms=0)

    def build(env: StreamExecutionEnvironment) -> None:
        patient = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 10)
        busy = Script([1, EPOCH, Pause(5_000), 2, EPOCH, 3, EPOCH, 4], clock=clock)
        quiet = Script([1, EPOCH, EPOCH, EPOCH, 9], clock=clock)
        first = env.add_source(busy).assign_timestamps_and_watermarks(patient)
        second = env.add_source(quiet).assign_timestamps_and_watermarks(patient.with_idleness(Duration.of_seconds(1)))
        first.connect(second).process(Stamped()).sink_to(out)

    marks = [mark for _, _, mark in run(build, clock=clock)[out]]
    assert marks == sorted(marks) and marks[-1] >= 19, marks


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def numbers() -> DataStream:
    return StreamExecutionEnvironment().from_collection([1, 2], Types.LONG())


def test_keys_of_different_types_are_refused(numbers: DataStream) -> None:
    texts = numbers.map(str, Types.STRING())
    keyed = numbers.key_by(lambda n: n, Types.LONG())
    with Refused("LONG", "STRING", "key_type="):
        keyed.connect(texts.key_by(lambda text: text, Types.STRING())).process(Log())
    with Refused("LONG", "undeclared"):
        keyed.connect(texts.key_by(lambda text: text)).map(Told())


def test_a_key_on_one_side_only_is_refused(numbers: DataStream) -> None:
    keyed = numbers.key_by(lambda n: n)
    with Refused("the first stream is keyed and the second is not", "key_by(selector1, selector2)"):
        keyed.connect(numbers).map(Told())
    with Refused("the second stream is keyed and the first is not"):
        numbers.connect(keyed).process(Stamped())
    keyed.connect(numbers).key_by(lambda n: n, lambda n: n).map(Told())


def test_a_keyed_function_needs_keys(numbers: DataStream) -> None:
    with Refused("Log is a KeyedCoProcessFunction", "key_by(selector1, selector2)"):
        numbers.connect(numbers).process(Log())


def test_a_function_for_something_else_is_refused(numbers: DataStream) -> None:
    class Plain(MapFunction):
        def map(self, value: Any) -> Any:
            return value

    both = numbers.connect(numbers)
    with Refused("found a MapFunction (Plain), expected CoMapFunction", "map()"):
        both.map(Plain())  # type: ignore[arg-type]
    with Refused("found the class Told", "Told()"):
        both.map(Told)  # type: ignore[arg-type]
    with Refused("expected CoFlatMapFunction"):
        both.flat_map(lambda n: [n])  # type: ignore[arg-type]
    with Refused("found a CoMapFunction (Told), expected CoProcessFunction"):
        both.process(Told())  # type: ignore[arg-type]


def test_only_streams_of_one_environment_can_be_connected(numbers: DataStream) -> None:
    with Refused("found 5 (int)"):
        numbers.connect(5)  # type: ignore[call-overload]
    other = StreamExecutionEnvironment().from_collection([1])
    with Refused("different environments"):
        numbers.connect(other)


class Fails(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        raise ValueError(f"no {value}")


def test_a_failure_names_the_record_and_the_operator() -> None:
    with pytest.raises(JobFailedError, match="no x") as raised:
        connected(Fails(), Script([1]), Script(["x"]), method="map")
    assert "Co-Map" in str(raised.value)
    assert "'x'" in raised.value.report


def test_the_plan_tells_the_inputs_apart(numbers: DataStream) -> None:
    env = numbers.get_execution_environment()
    numbers.connect(numbers.map(str)).key_by(lambda n: n, str).process(Log()).sink_to(Collect())
    plan = env.explain()
    assert "hash from 'Map'" in plan and "as input 2" in plan
    assert "keeps per key: the states of its function" in plan
