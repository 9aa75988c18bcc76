"""A job whose every pickle is a bomb: unpickling it creates a marker file, then returns the value it represents.

Tasks unpickle their own state and continue with plain values, so the job runs. When it has ended the marker is removed:
from then on a marker proves that a reader ran code from the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from programs.queryable import queryable

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, Script, run

__all__ = ["STATES", "WINDOWS", "Bomb", "Name", "armed", "laid_out"]

STATES = ("value", "list", "map", "map keys", "row", "rows", "reduced", "typed")
"""The queryable states. All but the last hold bombs."""
WINDOWS = "sessions"
_STORES = count()
_LONG, _TEXT, _ANY = Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()
_PAIR = Types.TUPLE([_TEXT, _LONG])
_ROW = Types.ROW_NAMED(["n", "inside"], [_LONG, _ANY])
_RULES = MapStateDescriptor("rules", _ANY, _ANY)


class Bomb:
    """A value whose pickle creates a marker when loaded, and evaluates to a number."""

    def __init__(self, marker: Path, number: int) -> None:
        self.marker, self.number = marker, number

    def __reduce__(self) -> Any:
        return eval, (f"(open({str(self.marker)!r}, 'a').close(), {self.number})[1]",)

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bomb) and other.number == self.number


@dataclass(frozen=True)
class Name:
    """A key of a class of the program."""

    text: str


class _Keeps(KeyedProcessFunction):
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def open(self, runtime_context: Any) -> None:
        of = runtime_context
        self.value = of.get_state(queryable(ValueStateDescriptor("value", _ANY)))
        self.list = of.get_list_state(queryable(ListStateDescriptor("list", _ANY)))
        self.map = of.get_map_state(queryable(MapStateDescriptor("map", _ANY, _ANY)))
        self.map_keys = of.get_map_state(queryable(MapStateDescriptor("map keys", _ANY, _LONG)))
        self.row = of.get_state(queryable(ValueStateDescriptor("row", _ROW)))
        self.rows = of.get_list_state(queryable(ListStateDescriptor("rows", Types.LIST(_ROW))))
        self.reduced = of.get_reducing_state(queryable(ReducingStateDescriptor("reduced", lambda a, b: b, _ANY)))
        self.typed = of.get_state(queryable(ValueStateDescriptor("typed", _LONG)))

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        number = value[1]
        bomb = Bomb(self.marker, number)
        self.value.update(bomb)
        self.list.add(bomb)
        self.map.put(bomb, bomb)
        self.map_keys.put(bomb, number)
        self.row.update((number, bomb))
        self.rows.add([(number, bomb)])
        self.reduced.add(bomb)
        self.typed.update(number)


class _Lists(MapFunction, CheckpointedFunction):
    def __init__(self, marker: Path) -> None:
        self.marker, self.numbers = marker, [0]

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.buffer = store.get_list_state(ListStateDescriptor("buffer", _ANY))
        self.union = store.get_union_list_state(ListStateDescriptor("union", _ROW))

    def snapshot_state(self, context: Any) -> None:
        self.buffer.update([Bomb(self.marker, number) for number in self.numbers])
        self.union.update([(number, Bomb(self.marker, number)) for number in self.numbers])

    def map(self, value: Any) -> Any:
        self.numbers.append(value[1])
        return value


class _Rules(BroadcastProcessFunction):  # type: ignore[type-arg]
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(_RULES).put(value[1], Bomb(self.marker, value[1]))


def armed(marker: Path) -> Any:
    """The program. Its last record is in the final epoch, so epoch 2 has everything that is to be read."""
    records = [("a", 1), ("b", 2), EPOCH, ("a", 3), EPOCH, ("c", 4)]

    def build(env: StreamExecutionEnvironment) -> None:
        pairs = env.add_source(Script(records, type_info=_PAIR)).uid("records")
        keyed = pairs.key_by(lambda pair: pair[0], _TEXT)
        keyed.process(_Keeps(marker)).uid("keeper").sink_to(Collect()).uid("out")
        named = pairs.key_by(lambda pair: Name(pair[0]) if pair[1] < 3 else pair[0])
        named.map(lambda pair: pair[1], _LONG).uid("named").sink_to(Collect()).uid("named out")
        named.reduce(lambda a, b: b).uid("by name").sink_to(Collect()).uid("by name out")
        pairs.map(_Lists(marker), _PAIR).uid("lists").sink_to(Collect()).uid("lists out")
        rules = pairs.map(lambda pair: pair, _PAIR).uid("rules").broadcast(_RULES)
        pairs.connect(rules).process(_Rules(marker), _PAIR).uid("ruled").sink_to(Collect()).uid("ruled out")
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[1])
        loose = pairs.map(lambda pair: (pair[0], pair[1], Bomb(marker, pair[1]))).set_parallelism(1).uid("bombs")
        bombs = loose.assign_timestamps_and_watermarks(strategy).set_parallelism(1).uid("timed")
        sessions = bombs.key_by(lambda pair: pair[0], _TEXT)
        windows = sessions.window(EventTimeSessionWindows.with_gap(Duration.of_millis(100))).queryable(WINDOWS)
        windows.reduce(lambda a, b: b).uid("windows").sink_to(Collect()).uid("windows out")
        loop = loose.iterate(rounds_max=1).uid("loop")
        again = loop.filter(lambda value: value[1] > 0).uid("again")
        loop.close_with(again.map(lambda value: (value[0], value[1] - 1, Bomb(marker, 1))).uid("back"))
        loop.sink_to(Collect()).uid("loop out")

    return build


def laid_out(folder: Path, marker: Path, epochs: int | None = None) -> Path:
    """Run the program, and copy its store into a folder."""
    name = f"bombs-{next(_STORES)}"
    run(armed(marker), store=name, job_name="bombs", epochs=epochs)
    assert marker.exists(), "the job itself opens what it stored"
    marker.unlink()
    store = MemoryStore(name)
    for file in store.list(""):
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.get(file))
    return folder
