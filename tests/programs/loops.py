"""Programs with loops and a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Duration, Time, Types, WatermarkStrategy
from millstream.datastream import DataStream
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import Collect

NUMBERS = list(range(30))
END = 10**9
WALK = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])  # starting number, current number, steps so far


def next_of(n: int) -> int:
    return n // 2 if n % 2 == 0 else 3 * n + 1


def collatz_steps(n: int) -> int:
    steps = 0
    while n > 1:
        n, steps = next_of(n), steps + 1
    return steps


def collatz(stream: DataStream, out: Collect) -> None:
    """Every number until it is 1, with the count of steps, without a key."""
    loop = stream.map(lambda n: (n, n % 10, 0), WALK).iterate(rounds_max=7)
    step = loop.filter(lambda w: w[1] > 1).rebalance().map(lambda w: (w[0], next_of(w[1]), w[2] + 1), WALK)
    loop.close_with(step)
    loop.filter(lambda w: w[1] <= 1).map(lambda w: (w[0], w[2])).sink_to(out)


class Component(KeyedProcessFunction):
    """The smallest number each vertex has received in its component. Messages are (vertex, neighbour or -1, label)."""

    def open(self, runtime_context: Any) -> None:
        self.label = runtime_context.get_state(ValueStateDescriptor("label", Types.LONG()))
        self.neighbours = runtime_context.get_map_state(MapStateDescriptor("near", Types.LONG(), Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        vertex, neighbour, label = value
        known = self.label.value()
        if neighbour >= 0 and not self.neighbours.contains(neighbour):
            self.neighbours.put(neighbour, True)
            yield neighbour, -1, vertex if known is None else known
        if known is None or label < known:
            self.label.update(label)
            for near in self.neighbours:
                yield near, -1, label
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield -1, ctx.get_current_key(), self.label.value()


MESSAGE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


def edges_of(n: int) -> list[tuple[int, int, int]]:
    """n is connected with n + 6, if it exists: six components of five. Each edge is sent to both its ends."""
    own = (n, -1, n)
    return [own, (n, n + 6, n), (n + 6, n, n + 6)] if n + 6 in NUMBERS else [own]


def components(stream: DataStream, out: Collect) -> None:
    """Connected components: labels spread through keyed state until nothing changes; timers emit the fixpoint."""
    loop = stream.flat_map(edges_of, MESSAGE).iterate()
    told = loop.key_by(lambda m: m[0], Types.LONG()).process(Component(), MESSAGE)
    loop.close_with(told.filter(lambda m: m[0] >= 0))
    told.filter(lambda m: m[0] < 0).map(lambda m: (m[1], m[2])).sink_to(out)


class Trail(KeyedProcessFunction):
    """Stores every step of a walk in a list and as a map entry, one per round, and emits them when the input ends."""

    def open(self, runtime_context: Any) -> None:
        self.places = runtime_context.get_list_state(ListStateDescriptor("places", Types.LONG()))
        self.steps = runtime_context.get_map_state(MapStateDescriptor("steps", Types.LONG(), Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        begin, place, steps = value
        self.places.add(place)
        self.steps.put(steps, place)
        ctx.timer_service().register_event_time_timer(END)
        if place > 1:
            yield begin, next_of(place), steps + 1

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        places = list(self.places.get())
        assert [self.steps.get(step) for step in range(len(places))] == places
        yield from ((ctx.get_current_key(), -1, place) for place in places)


def trails(stream: DataStream, out: Collect) -> None:
    """State within a loop: each round adds to the lists of the previous rounds."""
    loop = stream.map(lambda n: (n, n % 10, 0), WALK).iterate(rounds_max=5)
    walked = loop.key_by(lambda w: w[0], Types.LONG()).process(Trail(), WALK)
    loop.close_with(walked.filter(lambda w: w[1] >= 0))
    walked.filter(lambda w: w[1] < 0).map(lambda w: (w[0], w[2])).sink_to(out)


def trail_of(n: int) -> list[int]:
    return [n] if n <= 1 else [n, *trail_of(next_of(n))]


def nested(stream: DataStream, out: Collect) -> None:
    """Down to zero in steps of three in an inner loop, then the remainder passes the outer one once more."""
    outer = stream.iterate()
    inner = outer.iterate()
    inner.close_with(inner.filter(lambda n: n >= 3).map(lambda n: n - 3, Types.LONG()))
    rest = inner.filter(lambda n: n < 3)
    outer.close_with(rest.filter(lambda n: n > 0).map(lambda n: n - 1, Types.LONG()))
    rest.filter(lambda n: n == 0).sink_to(out)


def windowed(stream: DataStream, out: Collect) -> None:
    """Event-time windows downstream of a loop: a record is not late because it circulated."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(40)).with_timestamp_assigner(
        lambda n, _: n * 10
    )
    walks = stream.assign_timestamps_and_watermarks(strategy).map(lambda n: (n, n % 10, 0), WALK)
    loop = walks.iterate(rounds_max=4)
    loop.close_with(loop.filter(lambda w: w[1] > 1).map(lambda w: (w[0], next_of(w[1]), w[2] + 1), WALK))
    done = loop.filter(lambda w: w[1] <= 1).map(lambda w: (w[0] % 2, w[2]), Types.TUPLE([Types.LONG(), Types.LONG()]))
    windows = done.key_by(lambda w: w[0], Types.LONG()).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    windows.reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(out)


_WINDOWS = [[n for n in NUMBERS if n // 10 == w and n % 2 == odd] for w in range(3) for odd in range(2)]

LOOPED: dict[str, tuple[Any, list[Any]]] = {
    "loop: Collatz": (collatz, [(n, collatz_steps(n % 10)) for n in NUMBERS]),
    "loop: connected components": (components, [(n, n % 6) for n in NUMBERS]),
    "loop: lists of its rounds": (trails, [(n, place) for n in NUMBERS for place in trail_of(n % 10)]),
    "loop in a loop": (nested, [0] * len(NUMBERS)),
    "loop: windows behind it": (windowed, [(ns[0] % 2, sum(collatz_steps(n % 10) for n in ns)) for ns in _WINDOWS]),
}
