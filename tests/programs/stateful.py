"""Stateful programs with a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits. The order between splits is undefined, so results emitted during the
input must not depend on it: these programs accumulate state and emit when a timer fires at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Time, Types, WatermarkStrategy
from millstream.datastream import DataStream
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction, MapFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.testing import Collect

NUMBERS = list(range(30))
END = 10**9


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class EveryKindOfState(KeyedProcessFunction):
    """Counts, sums, lists, maps and averages the numbers of a key, and emits all when the input ends."""

    def open(self, runtime_context: Any) -> None:
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.by_rest = runtime_context.get_map_state(MapStateDescriptor("by rest", Types.STRING(), Types.LONG()))
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.LONG()))
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), pair))
        self.anything = runtime_context.get_state(ValueStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: int, ctx: Any) -> Iterable[Any] | None:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(value)
        rest = f"rest {value % 2}"
        self.by_rest.put(rest, (self.by_rest.get(rest) or 0) + value)
        self.largest.add(value)
        self.mean.add(value)
        self.anything.update({**(self.anything.value() or {}), value: str(value)})
        ctx.timer_service().register_event_time_timer(END)
        return None

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield (
            ctx.get_current_key(),
            self.count.value(),
            sorted(self.seen.get()),
            sorted(self.by_rest.items()),
            self.largest.get(),
            self.mean.get(),
            sorted(self.anything.value().items()),
        )


def every_kind_of_state(stream: DataStream, out: Collect) -> None:
    stream.key_by(lambda n: n % 4, Types.LONG()).process(EveryKindOfState()).sink_to(out)


class EveryKindOfExpiringState(EveryKindOfState):
    """The same, with a TTL of a day on every state."""

    def open(self, runtime_context: Any) -> None:
        day = StateTtlConfig.new_builder(Time.days(1)).update_ttl_on_read_and_write().build()
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        count = ValueStateDescriptor("count", Types.LONG())
        seen = ListStateDescriptor("seen", Types.LONG())
        by_rest = MapStateDescriptor("by rest", Types.STRING(), Types.LONG())
        largest = ReducingStateDescriptor("largest", max, Types.LONG())
        mean = AggregatingStateDescriptor("mean", Mean(), pair)
        anything = ValueStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY())
        for descriptor in (count, seen, by_rest, largest, mean, anything):
            descriptor.enable_time_to_live(day)
        self.count, self.seen = runtime_context.get_state(count), runtime_context.get_list_state(seen)
        self.by_rest, self.largest = runtime_context.get_map_state(by_rest), runtime_context.get_reducing_state(largest)
        self.mean, self.anything = runtime_context.get_aggregating_state(mean), runtime_context.get_state(anything)

    def process_element(self, value: int, ctx: Any) -> Iterable[Any] | None:
        self.seen.get()  # reading a list renews its TTL
        return super().process_element(value, ctx)


def every_kind_of_expiring_state(stream: DataStream, out: Collect) -> None:
    stream.key_by(lambda n: n % 4, Types.LONG()).process(EveryKindOfExpiringState()).sink_to(out)


class Same(MapFunction):
    def map(self, value: int) -> int:
        return value


def reinterpreted(stream: DataStream, out: Collect) -> None:
    """Keyed state downstream of keyed state, without an exchange between."""
    kept = stream.key_by(lambda n: n % 4, Types.LONG()).map(Same(), Types.LONG())
    kept.reinterpret_as_keyed_stream(lambda n: n % 4, Types.LONG()).process(EveryKindOfState()).sink_to(out)


def all_told(key: int) -> tuple[Any, ...]:
    mine = [n for n in NUMBERS if n % 4 == key]
    rests = sorted({f"rest {n % 2}" for n in mine})
    sums = [(rest, sum(n for n in mine if f"rest {n % 2}" == rest)) for rest in rests]
    return key, len(mine), mine, sums, max(mine), sum(mine) / len(mine), [(n, str(n)) for n in mine]


class Alarms(KeyedProcessFunction):
    """Sets a timer per number, deletes those of multiples of three, and sets another from each that fires."""

    def process_element(self, value: int, ctx: Any) -> None:
        service = ctx.timer_service()
        service.register_event_time_timer(value * 10)
        service.register_event_time_timer(value * 10)  # twice is once
        if value % 3 == 0:
            service.delete_event_time_timer(value * 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        if timestamp % 10 == 0:
            ctx.timer_service().register_event_time_timer(timestamp + 5)
        yield ctx.get_current_key(), timestamp


def alarms(stream: DataStream, out: Collect) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 10)
    stream.assign_timestamps_and_watermarks(strategy).key_by(lambda n: f"key {n % 3}").process(Alarms()).sink_to(out)


ALARMS = [(f"key {n % 3}", n * 10 + late) for n in NUMBERS if n % 3 for late in (0, 5)]


class ForgetsAtTen(KeyedProcessFunction):
    """A state that is cleared and written again contains nothing of its earlier values."""

    def open(self, runtime_context: Any) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))
        self.names = runtime_context.get_map_state(MapStateDescriptor("names", Types.LONG(), Types.STRING()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.values.add(value)
        self.names.put(value, str(value))
        if len(list(self.values.get())) == 10:
            self.values.clear()
            self.names.clear()
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), len(list(self.values.get())), len(list(self.names.keys())), self.names.is_empty()


def forgets_at_ten(stream: DataStream, out: Collect) -> None:
    stream.key_by(lambda n: n < 24).process(ForgetsAtTen()).sink_to(out)


STATEFUL = {
    "every kind of state": (every_kind_of_state, [all_told(key) for key in range(4)]),
    "every kind of expiring state": (every_kind_of_expiring_state, [all_told(key) for key in range(4)]),
    "a stream that is keyed already": (reinterpreted, [all_told(key) for key in range(4)]),
    "alarms": (alarms, ALARMS),
    # True and 1 are one key, and 1 is the form it has in functions.
    "forgets at ten": (forgets_at_ten, [(1, 4, 4, False), (0, 6, 6, False)]),
}
