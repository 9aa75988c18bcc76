"""Window joins and coGroups with a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits; number n has the timestamp n * 10 ms. The second stream is the
multiples of 3, as texts. The order between splits is undefined, so watermarks have sufficient delay and lists are
sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream
from millstream.datastream.functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from millstream.testing import Collect

NUMBERS = list(range(30))
THIRDS = [n for n in NUMBERS if n % 3 == 0]
NAMED = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
TEXTS = Types.ROW_NAMED(["key", "text"], [Types.LONG(), Types.STRING()])


def ms(length: int) -> Duration:
    return Duration.of_millis(length)


def stamped(stream: DataStream) -> DataStream:
    waits = WatermarkStrategy.for_bounded_out_of_orderness(ms(100))
    return stream.assign_timestamps_and_watermarks(waits.with_timestamp_assigner(lambda n, _: n * 10))


def texts(stream: DataStream) -> DataStream:
    return stamped(stream).filter(lambda n: n % 3 == 0).map(str, Types.STRING())


def windows_of(n: int, size: int, slide: int) -> set[int]:
    """The starts of the windows that contain a number."""
    return {start for start in range(-10 * slide, 300, slide) if start <= n * 10 < start + size}


def pairs(keys: int, size: int, slide: int) -> list[tuple[int, int]]:
    """All pairs, once for each window that contains both."""
    return [
        (a, b)
        for a in NUMBERS
        for b in THIRDS
        if a % keys == b % keys
        for _ in windows_of(a, size, slide) & windows_of(b, size, slide)
    ]


class Told(JoinFunction):
    """A pair, and the number of earlier pairs of the key, in keyed state."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def join(self, first: int, second: str) -> tuple[int, int]:
        self.count.update((self.count.value() or 0) + 1)
        return first % 2, self.count.value()


class Apart(FlatJoinFunction):
    def join(self, first: int, second: str) -> Iterable[int]:
        if first != int(second):
            yield first - int(second)
            yield int(second) - first


class LeftOuter(CoGroupFunction):
    def co_group(self, first: list[int], second: list[str]) -> Iterable[Any]:
        for one in first:
            for two in second or [None]:
                yield one, two


def inner(stream: DataStream, out: Collect) -> None:
    joined = stamped(stream).join(texts(stream)).where(lambda n: n % 2, Types.LONG())
    windows = joined.equal_to(lambda t: int(t) % 2, Types.LONG()).window(TumblingEventTimeWindows.of(ms(50)))
    windows.apply(lambda n, text: (n, int(text))).sink_to(out)


def with_state(stream: DataStream, out: Collect) -> None:
    joined = stamped(stream).join(texts(stream)).where(lambda n: n % 2).equal_to(lambda t: int(t) % 2)
    joined.window(TumblingEventTimeWindows.of(ms(50))).apply(Told()).sink_to(out)


COUNTED = [(key, count) for key in range(2) for count in range(1, 1 + sum(a % 2 == key for a, _ in pairs(2, 50, 50)))]


def flat(stream: DataStream, out: Collect) -> None:
    joined = stamped(stream).join(texts(stream)).where(lambda n: n % 2).equal_to(lambda t: int(t) % 2)
    joined.window(SlidingEventTimeWindows.of(ms(60), ms(20))).apply(Apart(), Types.LONG()).sink_to(out)


def with_itself(stream: DataStream, out: Collect) -> None:
    numbers = stamped(stream)
    joined = numbers.join(numbers).where(lambda n: n % 4).equal_to(lambda n: n % 4)
    joined.window(TumblingEventTimeWindows.of(ms(100))).apply(lambda a, b: (a, b)).sink_to(out)


WITH_ITSELF = [(a, b) for a in NUMBERS for b in NUMBERS if a % 4 == b % 4 and a // 10 == b // 10]


def left_outer(stream: DataStream, out: Collect) -> None:
    grouped = stamped(stream).co_group(texts(stream)).where(lambda n: n % 4).equal_to(lambda t: int(t) % 4)
    grouped.window(TumblingEventTimeWindows.of(ms(50))).apply(LeftOuter()).sink_to(out)


def met_in(n: int) -> list[int]:
    return [b for b in THIRDS if b % 4 == n % 4 and b // 5 == n // 5]


LEFT_OUTER: list[tuple[int, str | None]] = [
    (n, text) for n in NUMBERS for text in ([str(b) for b in met_in(n)] or [None])
]


def sorted_sides(first: list[Any], second: list[Any]) -> list[Any]:
    return [(sorted(first), sorted(second))]


def sessions(stream: DataStream, out: Collect) -> None:
    """The numbers have a gap from 12 to 17, whose texts form sessions of their own."""
    holed = stamped(stream).filter(lambda n: not 12 <= n < 18)
    grouped = holed.co_group(texts(stream)).where(lambda n: 0).equal_to(lambda text: 0)
    grouped.window(EventTimeSessionWindows.with_gap(ms(25))).apply(sorted_sides).sink_to(out)


# A gap of 25 ms: 11 and 12 are together; 12, 15 and 18 are 30 ms apart.
SESSIONS: list[Any] = [
    (list(range(12)), sorted(str(n) for n in THIRDS if n <= 12)),
    ([], ["15"]),
    (list(range(18, 30)), sorted(str(n) for n in THIRDS if n >= 18)),
]


class AtTheEnd(Trigger):  # type: ignore[type-arg]
    """Fires once, when event time ends."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(10**9)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None: ...

    def clear(self, window: Any, ctx: Any) -> None: ...


def everything(stream: DataStream, out: Collect) -> None:
    grouped = stamped(stream).co_group(texts(stream)).where(lambda n: n % 2).equal_to(lambda t: int(t) % 2)
    grouped.window(GlobalWindows.create()).trigger(AtTheEnd()).apply(sorted_sides).sink_to(out)


EVERYTHING = [
    ([n for n in NUMBERS if n % 2 == key], sorted(str(n) for n in THIRDS if n % 2 == key)) for key in range(2)
]


# --- chosen fields, in columns --------------------------------------------------------------------------------------


def rows(stream: DataStream) -> tuple[DataStream, DataStream]:
    numbers = stamped(stream).map(lambda n: Row(n % 3, n), NAMED)
    thirds = stamped(stream).filter(lambda n: n % 3 == 0).map(lambda n: Row(n // 3 % 3, str(n)), TEXTS)
    return numbers, thirds


def projected(stream: DataStream, assigner: Any) -> DataStream:
    numbers, thirds = rows(stream)
    joined = numbers.join(thirds).where("key").equal_to("key").window(assigner)
    return joined.project(["n"], ["key", "text"])


def chosen(size: int, slide: int) -> list[Row]:
    return [
        Row(n=a, key=a % 3, text=str(b))
        for a in NUMBERS
        for b in THIRDS
        if a % 3 == b // 3 % 3
        for _ in windows_of(a, size, slide) & windows_of(b, size, slide)
    ]


def tumbling_in_columns(stream: DataStream, out: Collect) -> None:
    projected(stream, TumblingEventTimeWindows.of(ms(90))).sink_to(out)


def sliding_in_columns(stream: DataStream, out: Collect) -> None:
    projected(stream, SlidingEventTimeWindows.of(ms(90), ms(30))).sink_to(out)


def of_sessions(stream: DataStream, out: Collect) -> None:
    """Selected fields of windows that cannot run in columns: one session per key."""
    projected(stream, EventTimeSessionWindows.with_gap(ms(500))).sink_to(out)


OF_SESSIONS = [Row(n=a, key=a % 3, text=str(b)) for a in NUMBERS for b in THIRDS if a % 3 == b // 3 % 3]

WINDOW_JOINS: dict[str, tuple[Any, list[Any]]] = {
    "window join": (inner, pairs(2, 50, 50)),
    "window join with state": (with_state, COUNTED),
    "flat window join, sliding": (flat, [d for a, b in pairs(2, 60, 20) if a != b for d in (a - b, b - a)]),
    "window join with itself": (with_itself, WITH_ITSELF),
    "left outer join by coGroup": (left_outer, LEFT_OUTER),
    "coGroup of sessions": (sessions, SESSIONS),
    "coGroup of everything": (everything, EVERYTHING),
    "window join in columns": (tumbling_in_columns, chosen(90, 90)),
    "sliding window join in columns": (sliding_in_columns, chosen(90, 30)),
    "chosen fields of sessions": (of_sessions, OF_SESSIONS),
}
