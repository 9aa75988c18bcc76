"""Every function that yields may yield to side outputs: to several, typed or not, from each of its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millstream.common import Row, Time, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.functions import (
    AllWindowFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import EPOCH, Collect, Script, Watermark, run

NUMBERS = list(range(12))
PAIR = Types.ROW_NAMED(["from_", "n"], [Types.STRING(), Types.LONG()])
NAMED = OutputTag("named", PAIR)
TEXT = OutputTag("text", Types.STRING())
ANY = OutputTag("any")
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
END = 1_000


def yields_of(method: str, n: int) -> list[Any]:
    """The values that each method yields for a number: to the main output and to three side outputs, in mixed order."""
    return [(NAMED, Row(from_=method, n=n)), n, (TEXT, f"{method} {n}"), (ANY, {method: n})]


class Plain(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return yields_of("element", value)


class Keyed(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(END)
        yield from yields_of("element", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return yields_of("timer", ctx.get_current_key())


class Two(CoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Any:
        return yields_of("one", value)

    def process_element2(self, value: int, ctx: Any) -> Any:
        yield from yields_of("two", value)


class KeyedTwo(KeyedCoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(END)
        return yields_of("one", value)

    def process_element2(self, value: int, ctx: Any) -> Any:
        return yields_of("two", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield from yields_of("timer", ctx.get_current_key())


class Informed(BroadcastProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: int, ctx: Any) -> Any:
        yield from yields_of("element", value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        return yields_of("rule", value)


class KeyedInformed(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(END)
        return yields_of("element", value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        yield from yields_of("rule", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return yields_of("timer", ctx.get_current_key())


class OfWindow(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield from yields_of("window", sum(elements))


class OfSimpleWindow(WindowFunction):  # type: ignore[type-arg]
    def apply(self, key: int, window: Any, inputs: Any) -> Any:
        return yields_of("window", sum(inputs))


class OfAllWindow(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Any:
        return yields_of("window", sum(elements))


class OfSimpleAllWindow(AllWindowFunction):  # type: ignore[type-arg]
    def apply(self, window: Any, inputs: Any) -> Any:
        yield from yields_of("window", sum(inputs))


def key_by_remainder(stream: DataStream) -> Any:
    return stream.key_by(lambda n: n % 3, Types.LONG())


def windows_of_four() -> TumblingEventTimeWindows:
    return TumblingEventTimeWindows.of(Time.milliseconds(4))


ALL = [(method, n) for method in ("element",) for n in NUMBERS]
TIMERS = [("timer", key) for key in range(3)]
ONE, TWO = [("one", n) for n in NUMBERS], [("two", -n) for n in NUMBERS]
OF_KEYS = [("window", sum(n for n in range(s, s + 4) if n % 3 == key)) for s in (0, 4, 8) for key in range(3)]
OF_ALL = [("window", sum(range(start, start + 4))) for start in (0, 4, 8)]


def rules(copies: int) -> list[tuple[str, int]]:
    return [("rule", -n) for n in NUMBERS] * copies


Build = Callable[[DataStream, DataStream], DataStream]
# For each: the program of the numbers and of the same numbers below zero; the yielded values, by the parallelism.
CASES: dict[str, tuple[Build, Callable[[int], list[tuple[str, int]]]]] = {
    "process": (lambda a, b: a.process(Plain(), Types.LONG()), lambda p: ALL),
    "keyed process": (lambda a, b: key_by_remainder(a).process(Keyed(), Types.LONG()), lambda p: ALL + TIMERS),
    "co-process": (lambda a, b: a.connect(b).process(Two(), Types.LONG()), lambda p: ONE + TWO),
    "keyed co-process": (
        lambda a, b: key_by_remainder(a).connect(key_by_remainder(b)).process(KeyedTwo(), Types.LONG()),
        lambda p: ONE + TWO + TIMERS,
    ),
    "broadcast": (
        lambda a, b: a.connect(b.broadcast(RULES)).process(Informed(), Types.LONG()),
        lambda p: ALL + rules(p),
    ),
    "keyed broadcast": (
        lambda a, b: key_by_remainder(a).connect(b.broadcast(RULES)).process(KeyedInformed(), Types.LONG()),
        lambda p: ALL + TIMERS + rules(p),
    ),
    "window": (
        lambda a, b: key_by_remainder(a).window(windows_of_four()).process(OfWindow(), Types.LONG()),
        lambda p: OF_KEYS,
    ),
    "simple window": (
        lambda a, b: key_by_remainder(a).window(windows_of_four()).apply(OfSimpleWindow(), Types.LONG()),
        lambda p: OF_KEYS,
    ),
    "folded window": (
        lambda a, b: key_by_remainder(a).window(windows_of_four()).reduce(lambda m, n: m + n, OfWindow(), Types.LONG()),
        lambda p: OF_KEYS,
    ),
    "window of all": (
        lambda a, b: a.window_all(windows_of_four()).process(OfAllWindow(), Types.LONG()),
        lambda p: OF_ALL,
    ),
    "simple window of all": (
        lambda a, b: a.window_all(windows_of_four()).apply(OfSimpleAllWindow(), Types.LONG()),
        lambda p: OF_ALL,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_method_yields_to_several_side_outputs(name: str, parallelism: int) -> None:
    build, expected = CASES[name]
    main, named, text, any_ = Collect("main"), Collect("named"), Collect("text"), Collect("any")

    def in_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.types == [pa.string(), pa.int64()]
        return batch

    def program(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: abs(value))
        script = [*NUMBERS[:5], EPOCH, *NUMBERS[5:]]
        below = [item if item is EPOCH else -item for item in script]
        a = env.from_source(Script(script, type_info=Types.LONG()), strategy, "a")
        b = env.from_source(Script(below, type_info=Types.LONG()), strategy, "b")
        results = build(a, b)
        results.sink_to(main)
        results.get_side_output(NAMED).map_batches(in_columns, PAIR).sink_to(named)
        results.get_side_output(TEXT).sink_to(text)
        results.get_side_output(ANY).sink_to(any_)

    result = run(program, parallelism=parallelism)
    pairs = sorted(expected(parallelism))
    assert sorted(result[main]) == sorted(n for _, n in pairs)
    assert sorted((row[0], row[1]) for row in result[named]) == pairs
    assert sorted(result[text]) == sorted(f"{method} {n}" for method, n in pairs)
    assert sorted(pair for one in result[any_] for pair in one.items()) == pairs


def test_records_of_side_outputs_have_the_time_of_their_record_timer_or_window() -> None:
    out = {name: (Collect(name), tag) for name, tag in (("process", TEXT), ("timer", ANY), ("window", TEXT))}

    def program(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        numbers = env.from_source(Script([3], type_info=Types.LONG()), strategy, "numbers")
        streams = {
            "process": numbers.process(Plain()),
            "timer": key_by_remainder(numbers).process(Keyed()),
            "window": key_by_remainder(numbers).window(windows_of_four()).process(OfWindow()),
        }
        for name, (sink, tag) in out.items():
            streams[name].get_side_output(tag).sink_to(sink)

    result = run(program)
    assert [(r.value, r.timestamp) for r in result.of("process")] == [("element 3", 3)]
    assert [(r.value, r.timestamp) for r in result.of("timer")] == [({"element": 3}, 3), ({"timer": 0}, END)]
    assert [(r.value, r.timestamp) for r in result.of("window")] == [("window 3", 3)]


def test_late_records_and_side_outputs_of_windows_are_both_emitted() -> None:
    late = OutputTag("late", Types.LONG())

    def program(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        script = Script([1, 2, 9, EPOCH, Watermark(9), 3, 10], type_info=Types.LONG())
        numbers = env.from_source(script, strategy, "numbers")
        results = (
            key_by_remainder(numbers)
            .window(windows_of_four())
            .side_output_late_data(late)
            .process(OfWindow(), Types.LONG())
        )
        results.sink_to(Collect("main"))
        results.get_side_output(late).sink_to(Collect("late"))
        results.get_side_output(TEXT).sink_to(Collect("text"))

    result = run(program)
    assert (sorted(result["main"]), result["late"]) == ([1, 2, 9, 10], [3])
    assert sorted(result["text"]) == ["window 1", "window 10", "window 2", "window 9"]
