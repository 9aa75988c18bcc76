"""Programs of two streams with a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits. The order between splits is undefined, so order-dependent results are
accumulated in state and emitted when a timer fires at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Types
from millstream.datastream import DataStream, OutputTag
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.testing import Collect

NUMBERS = list(range(30))
END = 10**9
EVEN = OutputTag("even", Types.STRING())
LARGEST = MapStateDescriptor("largest", Types.STRING(), Types.LONG())


def texts(stream: DataStream) -> DataStream:
    return stream.map(str, Types.STRING())


class Signed(CoMapFunction):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: str) -> int:
        return -int(value)


def co_map(stream: DataStream, out: Collect) -> None:
    stream.connect(texts(stream)).map(Signed(), Types.LONG()).sink_to(out)


def across_exchanges(stream: DataStream, out: Collect) -> None:
    """One input has crossed an exchange, the other comes from further upstream; and both paths meet twice."""
    far = texts(stream).rebalance().map(lambda text: text, Types.STRING())
    once = stream.connect(far).map(Signed(), Types.LONG())
    once.connect(texts(once).rebalance()).map(Signed()).sink_to(out)


class Copies(CoFlatMapFunction):
    def flat_map1(self, value: int) -> Iterable[int]:
        return [value] * (value % 3)

    def flat_map2(self, value: str) -> Iterable[str]:
        yield from value


def co_flat_map(stream: DataStream, out: Collect) -> None:
    stream.connect(texts(stream)).flat_map(Copies()).sink_to(out)


class Sided(CoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Iterable[Any]:
        if value % 2:
            yield value

    def process_element2(self, value: str, ctx: Any) -> Iterable[Any]:
        if int(value) % 2 == 0:
            yield EVEN, value


def co_process(stream: DataStream, out: Collect) -> None:
    sided = stream.connect(texts(stream)).process(Sided(), Types.LONG())
    sided.get_side_output(EVEN).map(int, Types.LONG()).union(sided).sink_to(out)


class FirstOfKey(CoFlatMapFunction):
    """Every key once, from whichever stream."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def flat_map1(self, value: int) -> Iterable[int]:
        return self._first(value % 7)

    def flat_map2(self, value: str) -> Iterable[int]:
        return self._first(int(value) % 7)

    def _first(self, key: int) -> Iterable[int]:
        if not self.seen.value():
            self.seen.update(True)
            yield key


def keyed_co_flat_map(stream: DataStream, out: Collect) -> None:
    connected = stream.connect(texts(stream)).key_by(lambda n: n % 7, lambda text: int(text) % 7, Types.LONG())
    connected.flat_map(FirstOfKey()).sink_to(out)


class Joined(KeyedCoProcessFunction):
    """All numbers and texts of a key, emitted when the input ends."""

    def open(self, runtime_context: Any) -> None:
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self.texts = runtime_context.get_list_state(ListStateDescriptor("texts", Types.STRING()))

    def process_element1(self, value: int, ctx: Any) -> None:
        self.numbers.add(value)
        ctx.timer_service().register_event_time_timer(END)

    def process_element2(self, value: str, ctx: Any) -> None:
        self.texts.add(value)
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), sorted(self.numbers), sorted(self.texts)


def keyed_co_process(stream: DataStream, out: Collect) -> None:
    few = texts(stream.filter(lambda n: n < 10)).key_by(lambda text: int(text) % 4)
    stream.key_by(lambda n: n % 4).connect(few).process(Joined()).sink_to(out)


JOINED = [
    (key, [n for n in NUMBERS if n % 4 == key], sorted(str(n) for n in range(10) if n % 4 == key)) for key in range(4)
]


def remember(state: Any, value: int) -> None:
    """The largest number of each remainder, in any order."""
    rest = f"rest {value % 3}"
    state.put(rest, max(value, state.get(rest) or 0))


class Plausible(BroadcastProcessFunction):  # type: ignore[type-arg]
    """The state so far depends on the epochs; that it contains the epoch's own numbers does not."""

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        yield value, (ctx.get_broadcast_state(LARGEST).get(f"rest {value % 3}") or 0) >= value

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        remember(ctx.get_broadcast_state(LARGEST), value)


def broadcast(stream: DataStream, out: Collect) -> None:
    stream.connect(stream.broadcast(LARGEST)).process(Plausible()).sink_to(out)


class ToldAtTheEnd(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """The broadcast state of every key's subtask when the input ends, and the key's record count."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(END)

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        remember(ctx.get_broadcast_state(LARGEST), value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        known = sorted(ctx.get_broadcast_state(LARGEST).items())
        yield ctx.get_current_key(), self.count.value(), known


def keyed_broadcast(stream: DataStream, out: Collect) -> None:
    rules = stream.filter(lambda n: n < 20).broadcast(LARGEST)
    stream.key_by(lambda n: n % 5).connect(rules).process(ToldAtTheEnd()).sink_to(out)


CONNECTED = {
    "connected map": (co_map, NUMBERS + [-n for n in NUMBERS]),
    "connected across exchanges": (across_exchanges, [m for n in NUMBERS for m in (n, -n, -n, n)]),
    "connected flat_map": (
        co_flat_map,
        [n for n in NUMBERS for _ in range(n % 3)] + [digit for n in NUMBERS for digit in str(n)],
    ),
    "connected process with a side output": (co_process, NUMBERS),
    "connected keyed flat_map": (keyed_co_flat_map, list(range(7))),
    "connected keyed process": (keyed_co_process, JOINED),
    "broadcast state": (broadcast, [(n, True) for n in NUMBERS]),
    "keyed broadcast state": (
        keyed_broadcast,
        [(key, 6, [("rest 0", 18), ("rest 1", 19), ("rest 2", 17)]) for key in range(5)],
    ),
}
