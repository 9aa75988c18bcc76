"""The program whose snapshots are stored next to this file: one operator for every kind of state.

It must not be changed. It restores snapshots written years ago, and has to produce the same answer; features of newer
versions belong into another program, with snapshots of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import (
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from millstream.testing import EPOCH, Collect, Script

__all__ = ["EPOCHS", "SAVED", "build"]

EPOCHS, SAVED, PER_EPOCH = 4, 2, 8
NUMBERS = [item for at in range(EPOCHS) for item in (*range(at * PER_EPOCH, (at + 1) * PER_EPOCH), EPOCH)]
END = 10**9
PURCHASE = Types.ROW_NAMED(["item", "cents"], [Types.STRING(), Types.LONG()])
KEYED = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
LARGEST = MapStateDescriptor("largest", Types.STRING(), Types.LONG())


class EveryKind(KeyedProcessFunction):
    """Keyed state of every kind and type, told by a timer at the end."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_state(ValueStateDescriptor("last purchase", PURCHASE))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.INT()))
        self.rests = runtime_context.get_map_state(MapStateDescriptor("rests", Types.STRING(), Types.DOUBLE()))
        self.most = runtime_context.get_reducing_state(ReducingStateDescriptor("most", max, Types.LONG()))
        self.notes = runtime_context.get_state(ValueStateDescriptor("notes", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        self.last.update(Row(f"item {value}", value * 100))
        self.seen.add(value)
        rest = f"rest {value % 2}"
        self.rests.put(rest, (self.rests.get(rest) or 0.0) + value / 4)
        self.most.add(value)
        self.notes.update({**(self.notes.value() or {}), value: [str(value)]})
        timers = ctx.timer_service()
        timers.register_event_time_timer(END)
        timers.register_event_time_timer(value * 10 + 55)
        yield "count", ctx.get_current_key(), self.count.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        if timestamp < END:
            yield "timer", ctx.get_current_key(), timestamp
            return
        last = tuple(self.last.value())
        rests, notes = sorted(self.rests.items()), sorted(self.notes.value().items())
        yield "end", ctx.get_current_key(), last, list(self.seen), rests, self.most.get(), notes


class Threes(ProcessFunction, CheckpointedFunction):
    """Sends numbers on three by three; those that wait for it are a list of the operator."""

    def initialize_state(self, context: Any) -> None:
        self.kept = context.get_operator_state_store().get_list_state(ListStateDescriptor("waiting", Types.LONG()))
        self.waiting = list(self.kept)

    def snapshot_state(self, context: Any) -> None:
        self.kept.update(self.waiting)

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.waiting.append(value)
        if len(self.waiting) == 3:
            yield "three", *self.waiting
            self.waiting.clear()


class Known(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Broadcast state, told by a timer at the end."""

    def process_element(self, value: int, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(END)

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        state = ctx.get_broadcast_state(LARGEST)
        rest = f"rest {value % 3}"
        state.put(rest, max(value, state.get(rest) or 0))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield "known", ctx.get_current_key(), sorted(ctx.get_broadcast_state(LARGEST).items())


def build(env: StreamExecutionEnvironment, out: Collect) -> None:
    """Add the whole program."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n * 10)
    numbers = env.from_source(Script(NUMBERS, type_info=Types.LONG()), strategy, "numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: n % 3, Types.LONG())
    results = [
        keyed.process(EveryKind()).uid("every-kind"),
        numbers.process(Threes()).set_parallelism(1).uid("threes"),
        keyed.connect(numbers.filter(lambda n: n < 30).uid("rules").broadcast(LARGEST)).process(Known()).uid("known"),
        *_windows(numbers),
    ]
    rows = numbers.map(lambda n: Row(n % 2, n), KEYED).uid("rows")
    joined = rows.key_by("key").interval_join(rows.key_by("key")).between(-40, 0)
    results.append(joined.project(["n"], ["n"], names=["n", "other"]).uid("joined"))
    texts = [result.map(_text, Types.STRING()).uid(f"text-{at}") for at, result in enumerate(results)]
    texts[0].union(*texts[1:]).sink_to(out).uid("out")


def _text(value: Any) -> str:
    return repr(tuple(value) if isinstance(value, Row) else value)


def _windows(numbers: DataStream) -> list[DataStream]:
    fixed = TumblingEventTimeWindows.of(Duration.of_millis(100))
    by_key = numbers.key_by(lambda n: n % 2, Types.LONG())
    aggregates = agg.Aggregates(n=agg.count(), total=agg.sum(0), mean=agg.avg(0), top=agg.top_n(2, 0))
    sparse = numbers.filter(lambda n: n % 10 < 6).uid("sparse").key_by(lambda n: "all", Types.STRING())
    return [
        by_key.window(fixed).reduce(lambda a, b: a + b).uid("sums"),
        by_key.window(fixed).aggregate(aggregates).uid("aggregates"),
        sparse.window(EventTimeSessionWindows.with_gap(Duration.of_millis(25)))
        .reduce(lambda a, b: a + b)
        .uid("visits"),
    ]
