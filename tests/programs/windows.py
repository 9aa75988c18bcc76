"""Windowed programs with a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits; number n has the timestamp n * 10 ms. The order between splits is
undefined, so watermarks have sufficient delay, and count windows are keyed by split.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    Evictor,
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
    """Emits the key, the bounds of the window and the sum of its contents."""

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
    """Two sessions per key: there is a gap from 12 to 17."""
    holed = stamped(stream).filter(lambda n: not 12 <= n < 18).key_by(lambda n: n % 2)
    holed.window(EventTimeSessionWindows.with_gap(ms(25))).process(Bounds()).sink_to(out)


SESSIONS = [
    (key, part[0] * 10, part[-1] * 10 + 25, sum(part))
    for key in range(2)
    for part in ([n for n in range(12) if n % 2 == key], [n for n in range(18, 30) if n % 2 == key])
]


class Contents(ProcessWindowFunction):  # type: ignore[type-arg]
    """Emits the key, the bounds of the window and all its contents."""

    def process(self, key: int, context: Any, elements: Iterable[int]) -> Iterable[Any]:
        window = context.window()
        yield key, window.start, window.end, sorted(elements)


def listed(stream: DataStream, out: Collect) -> None:
    """Windows that store their records until they fire."""
    windows = stamped(stream).key_by(lambda n: n % 2, Types.LONG()).window(TumblingEventTimeWindows.of(ms(150)))
    windows.process(Contents()).sink_to(out)


LISTED = [(k, s, s + 150, within(k, 2, s, s + 150)) for k in range(2) for s in (0, 150)]


class WithoutThrees(Evictor):  # type: ignore[type-arg]
    """Removes the multiples of three before the window fires."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        elements[:] = [element for element in elements if element.value % 3]

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        pass


def evicted(stream: DataStream, out: Collect) -> None:
    windows = stamped(stream).key_by(lambda n: n % 2).window(TumblingEventTimeWindows.of(ms(150)))
    windows.evictor(WithoutThrees()).process(Contents()).sink_to(out)


EVICTED = [(k, s, e, [n for n in numbers if n % 3]) for k, s, e, numbers in LISTED]


def counted(stream: DataStream, out: Collect) -> None:
    stream.key_by(lambda n: n % 3).count_window(4).reduce(plus).sink_to(out)


COUNTED = [sum(NUMBERS[split::3][start : start + 4]) for split in range(3) for start in (0, 4)]


class LastOfEach(KeyedProcessFunction):
    """Stores repeated results; emits the last one of each window at the end."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", Types.LONG(), Types.LONG()))

    def process_element(self, value: Told, ctx: Any) -> None:
        self.last.put(value[1], value[3])
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), sorted(self.last.items())


def early(stream: DataStream, out: Collect) -> None:
    """Early results every 20 ms; their number depends on the epochs, the last one of each window does not."""
    windows = stamped(stream).key_by(lambda n: n % 2).window(TumblingEventTimeWindows.of(ms(100)))
    results = windows.trigger(ContinuousEventTimeTrigger.of(ms(20))).reduce(plus, Bounds())
    results.key_by(lambda told: told[0]).process(LastOfEach()).sink_to(out)


EARLY = [(key, [(s, sum(within(key, 2, s, s + 100))) for s in (0, 100, 200)]) for key in range(2)]


def slid_by_count(stream: DataStream, out: Collect) -> None:
    """Every two records, the last four of them."""
    stream.key_by(lambda n: n % 3).count_window(4, 2).reduce(plus).sink_to(out)


SLID_BY_COUNT = [sum(NUMBERS[split::3][max(stop - 4, 0) : stop]) for split in range(3) for stop in range(2, 11, 2)]


# --- ready aggregates, in columns -----------------------------------------------------------------------------------

EVERY_AGGREGATE = agg.Aggregates(
    n=agg.count(),
    total=agg.sum(0),
    least=agg.min(0),
    most=agg.max(0),
    mean=agg.avg(0),
    first=agg.first(0),
    last=agg.last(0),
    kinds=agg.approx_distinct(0),
    top=agg.top_n(2, 0),
    all=agg.collect(0),
)
COUNT_AND_SUM = agg.Aggregates(n=agg.count(), total=agg.sum(0))


def in_columns(stream: DataStream, assigner: Any, aggregates: agg.Aggregates) -> DataStream:
    return stamped(stream).key_by(lambda n: n % 4, Types.LONG()).window(assigner).aggregate(aggregates)


def every_aggregate(stream: DataStream, out: Collect) -> None:
    in_columns(stream, TumblingEventTimeWindows.of(ms(90)), EVERY_AGGREGATE).sink_to(out)


def sliding_in_columns(stream: DataStream, out: Collect) -> None:
    in_columns(stream, SlidingEventTimeWindows.of(ms(90), ms(30)), COUNT_AND_SUM).sink_to(out)


def cumulative_in_columns(stream: DataStream, out: Collect) -> None:
    in_columns(stream, CumulativeEventTimeWindows.of(ms(120), ms(40)), COUNT_AND_SUM).sink_to(out)


def bounded(key: int, start: int, end: int, **results: Any) -> Row:
    return Row(key=key, window_start=start, window_end=end, **results)


def every_result(numbers: list[int]) -> dict[str, Any]:
    return {
        "n": len(numbers),
        "total": sum(numbers),
        "least": numbers[0],
        "most": numbers[-1],
        "mean": sum(numbers) / len(numbers),
        "first": numbers[0],
        "last": numbers[-1],
        "kinds": len(numbers),
        "top": numbers[:-3:-1],
        "all": numbers,
    }


def counts_and_sums(windows: list[tuple[int, int]]) -> list[Row]:
    held = [(key, bounds, within(key, 4, *bounds)) for key in range(4) for bounds in windows]
    return [bounded(key, *bounds, n=len(own), total=sum(own)) for key, bounds, own in held if own]


EVERY_AGGREGATE_OF_90_MS = [
    bounded(key, start, start + 90, **every_result(within(key, 4, start, start + 90)))
    for key in range(4)
    for start in range(0, 300, 90)
    if within(key, 4, start, start + 90)
]
CUMULATIVE = counts_and_sums([(start, start + size) for start in (0, 120, 240) for size in (40, 80, 120)])


# --- late records ---------------------------------------------------------------------------------------------------

LATE = OutputTag("late")


class Reconciled(KeyedProcessFunction):
    """The last result of each window together with its late records: all records of the window."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", Types.LONG(), Types.LONG()))
        self.late = runtime_context.get_map_state(MapStateDescriptor("late", Types.LONG(), Types.LONG()))

    def process_element(self, value: tuple[str, int, int, int], ctx: Any) -> None:
        kind, _, start, number = value
        if kind == "late":
            self.late.put(start, (self.late.get(start) or 0) + number)
        else:
            self.last.put(start, number)
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        starts = sorted({*self.last.keys(), *self.late.keys()})
        yield ctx.get_current_key(), [(s, (self.last.get(s) or 0) + (self.late.get(s) or 0)) for s in starts]


def disordered(n: int) -> int:
    """A disordered timestamp, so that in short epochs some records fire their window again and some are late."""
    return n * 17 % 30 * 10


def late_windows(stream: DataStream) -> DataStream:
    """A custom aggregate per record; no watermark delay, and a little allowed lateness."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: disordered(n))
    keyed = stream.assign_timestamps_and_watermarks(strategy).key_by(lambda n: n % 2)
    windows = keyed.window(TumblingEventTimeWindows.of(ms(50))).allowed_lateness(60).side_output_late_data(LATE)
    return windows.aggregate(Sum(), Bounds(), Types.LONG())


def late(stream: DataStream, out: Collect) -> None:
    """Which records are late depends on the epochs; each one is either in its window or in the side output."""
    results = late_windows(stream)
    told = results.map(lambda told: ("window", told[0], told[1], told[3]))
    missed = results.get_side_output(LATE).map(lambda n: ("late", n % 2, disordered(n) // 50 * 50, n))
    told.union(missed).key_by(lambda found: found[1]).process(Reconciled()).sink_to(out)


RECONCILED = [
    (key, [(s, sum(n for n in NUMBERS if n % 2 == key and s <= disordered(n) < s + 50)) for s in range(0, 300, 50)])
    for key in range(2)
]


def over_all(stream: DataStream, out: Collect) -> None:
    stamped(stream).window_all(TumblingEventTimeWindows.of(ms(100))).reduce(plus).sink_to(out)


WINDOWED = {
    "tumbling windows": (tumbling, TUMBLING),
    "sliding windows": (sliding, SLIDING),
    "session windows": (sessions, SESSIONS),
    "windows of all records": (listed, LISTED),
    "windows with an evictor": (evicted, EVICTED),
    "count windows": (counted, COUNTED),
    "sliding count windows": (slid_by_count, SLID_BY_COUNT),
    "early results": (early, EARLY),
    "windows over the whole stream": (over_all, [sum(NUMBERS[s : s + 10]) for s in (0, 10, 20)]),
    "every ready aggregate": (every_aggregate, EVERY_AGGREGATE_OF_90_MS),
    "sliding windows in columns": (sliding_in_columns, counts_and_sums([(s, s + 90) for s in range(-60, 300, 30)])),
    "cumulative windows in columns": (cumulative_in_columns, CUMULATIVE),
    "late records of a custom aggregate": (late, RECONCILED),
}
