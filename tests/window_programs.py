"""Windowed programs with a known answer, run by the tests of the engine beside those of `programs.py`.

The input is the numbers 0 … 29 in three splits; number n happens at n * 10 ms. Between the splits no order is promised,
so watermarks wait for stragglers, and what counts records by arrival keys them by their split.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import DataStream
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.testing import Collect

NUMBERS = list(range(30))
END = 10**9

Told = tuple[int, int, int, int]  # key, start and end of the window, sum


def ms(length: int) -> Duration:
    return Duration.of_millis(length)


def stamped(stream: DataStream) -> DataStream:
    waits = WatermarkStrategy.for_bounded_out_of_orderness(ms(100))
    return stream.assign_timestamps_and_watermarks(waits.with_timestamp_assigner(lambda n, _: n * 10))


def plus(a: int, b: int) -> int:
    return a + b


class Bounds(ProcessWindowFunction):  # type: ignore[type-arg]
    """The key, the bounds of the window and what is in it, summed up."""

    def process(self, key: int, context: Any, elements: Iterable[int]) -> Iterable[Told]:
        window = context.window()
        yield key, window.start, window.end, sum(elements)


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def sums(windows: dict[tuple[int, int, int], list[int]]) -> list[Told]:
    return [(*place, sum(numbers)) for place, numbers in windows.items() if numbers]


def within(key: int, parts: int, start: int, end: int) -> list[int]:
    return [n for n in NUMBERS if n % parts == key and start <= n * 10 < end]


def tumbling(stream: DataStream, out: Collect) -> None:
    windows = stamped(stream).key_by(lambda n: n % 4, Types.LONG()).window(TumblingEventTimeWindows.of(ms(50)))
    windows.reduce(plus, Bounds()).sink_to(out)


TUMBLING = sums({(k, s, s + 50): within(k, 4, s, s + 50) for k in range(4) for s in range(0, 300, 50)})


def sliding(stream: DataStream, out: Collect) -> None:
    windows = stamped(stream).key_by(lambda n: n % 4).window(SlidingEventTimeWindows.of(ms(90), ms(30)))
    windows.aggregate(Sum(), Bounds(), Types.LONG()).sink_to(out)


SLIDING = sums({(k, s, s + 90): within(k, 4, s, s + 90) for k in range(4) for s in range(-60, 300, 30)})


def sessions(stream: DataStream, out: Collect) -> None:
    """Two sessions per key: there is a hole from 12 to 17."""
    holed = stamped(stream).filter(lambda n: not 12 <= n < 18).key_by(lambda n: n % 2)
    holed.window(EventTimeSessionWindows.with_gap(ms(25))).process(Bounds()).sink_to(out)


SESSIONS = [
    (key, part[0] * 10, part[-1] * 10 + 25, sum(part))
    for key in range(2)
    for part in ([n for n in range(12) if n % 2 == key], [n for n in range(18, 30) if n % 2 == key])
]


def counted(stream: DataStream, out: Collect) -> None:
    stream.key_by(lambda n: n % 3).count_window(4).reduce(plus).sink_to(out)


COUNTED = [sum(NUMBERS[split::3][start : start + 4]) for split in range(3) for start in (0, 4)]


class LastOfEach(KeyedProcessFunction):
    """Results that come again and again: the last one of each window is told at the end."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", Types.LONG(), Types.LONG()))

    def process_element(self, value: Told, ctx: Any) -> None:
        self.last.put(value[1], value[3])
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), sorted(self.last.items())


def early(stream: DataStream, out: Collect) -> None:
    """Results so far, every 20 ms; how many come depends on the epochs, the last one of each window does not."""
    windows = stamped(stream).key_by(lambda n: n % 2).window(TumblingEventTimeWindows.of(ms(100)))
    results = windows.trigger(ContinuousEventTimeTrigger.of(ms(20))).reduce(plus, Bounds())
    results.key_by(lambda told: told[0]).process(LastOfEach()).sink_to(out)


EARLY = [(key, [(s, sum(within(key, 2, s, s + 100))) for s in (0, 100, 200)]) for key in range(2)]


def over_all(stream: DataStream, out: Collect) -> None:
    stamped(stream).window_all(TumblingEventTimeWindows.of(ms(100))).reduce(plus).sink_to(out)


WINDOWED = {
    "tumbling windows": (tumbling, TUMBLING),
    "sliding windows": (sliding, SLIDING),
    "session windows": (sessions, SESSIONS),
    "count windows": (counted, COUNTED),
    "early results": (early, EARLY),
    "windows over the whole stream": (over_all, [sum(NUMBERS[s : s + 10]) for s in (0, 10, 20)]),
}
