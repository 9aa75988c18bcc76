"""Programs with a known answer, run by the engine's tests: in memory, and on Spark.

The input is always the numbers 0 … 29 in three splits. A program is a function of (stream, out); its golden answer is a
multiset, because with several subtasks only the order per sender is defined. If the answer depends on the parallelism
(broadcast), it is a function of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common import Row, Time, Types, WatermarkStrategy
from millstream.datastream import AsyncDataStream, AsyncFunction, DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction, ProcessFunction
from millstream.testing import Collect, Script
from programs.connected import CONNECTED
from programs.interval_joins import INTERVAL_JOINS
from programs.loops import LOOPED
from programs.stateful import STATEFUL
from programs.tables import TABLED
from programs.window_joins import WINDOW_JOINS
from programs.windows import WINDOWED

NUMBERS = list(range(30))
PAIR = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
ODD = OutputTag("odd", Types.LONG())

Build = Callable[[DataStream, Collect], Any]


@dataclass(frozen=True)
class Program:
    """`golden(parallelism)` is the answer."""

    build: Build
    golden: Callable[[int], list[Any]]

    def add(self, env: StreamExecutionEnvironment, out: Collect, source: Script | None = None) -> None:
        self.build(env.add_source(source or numbers()), out)


def numbers() -> Script:
    return Script(NUMBERS[0::3], NUMBERS[1::3], NUMBERS[2::3], type_info=Types.LONG())


def multiset(values: list[Any]) -> Counter[str]:
    return Counter(map(repr, values))


def same(values: list[Any]) -> Callable[[int], list[Any]]:
    return lambda parallelism: values


# --- operators ----------------------------------------------------------------------------------------------


class AddOpened(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.offset = 100

    def map(self, value: int) -> int:
        return value + self.offset


class SplitOdd(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        if value % 2:
            yield ODD, value
        else:
            yield value
            yield -value


class SquareLater(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value % 3 / 1000)
        return [value * value]


class Stamped(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return [(value, ctx.timestamp())]


def square(value: int) -> int:
    return value * value


def two_of_each(value: int) -> Any:
    yield value
    yield value + 1000


def side_outputs(stream: DataStream, out: Collect) -> None:
    processed = stream.process(SplitOdd(), Types.LONG())
    processed.get_side_output(ODD).map(lambda n: n * 10, Types.LONG()).union(processed).sink_to(out)


def project(stream: DataStream, out: Collect) -> None:
    stream.map(lambda n: Row(n, f"n{n}"), PAIR).project(1).sink_to(out)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    kept = batch.filter(pc.less(batch.column(0), 10))
    return pa.record_batch([pc.multiply(kept.column(0), 2)], names=batch.schema.names)


def stamped(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 7)
    return stream.assign_timestamps_and_watermarks(strategy)


def timestamps(stream: DataStream, out: Collect) -> None:
    stamped(stream).rebalance().process(Stamped()).sink_to(out)


def inherited_timestamps(stream: DataStream, out: Collect) -> None:
    """Each record becomes none, one or two: the results retain the timestamp of their record."""
    copies = stamped(stream).flat_map(lambda n: [n] * (n % 3), Types.LONG()).filter(lambda n: n != 4)
    copies.process(Stamped()).sink_to(out)


def async_calls(stream: DataStream, out: Collect) -> None:
    AsyncDataStream.unordered_wait(stream.rebalance(), SquareLater(), Time.seconds(60), 5, Types.LONG()).sink_to(out)


# --- shapes -------------------------------------------------------------------------------------------------


def diamond(stream: DataStream, out: Collect) -> None:
    low = stream.filter(lambda n: n < 10).rebalance().map(lambda n: n + 100, Types.LONG())
    high = stream.filter(lambda n: n >= 10).map(lambda n: -n, Types.LONG())
    low.union(high).rebalance().map(str).sink_to(out)


def relayed(stream: DataStream, out: Collect) -> None:
    """One branch skips two exchanges: its blocks are relayed by the stage between."""
    near = stream.map(lambda n: n, Types.LONG())
    far = stream.rebalance().map(lambda n: n + 100, Types.LONG()).key_by(lambda n: n % 7).map(lambda n: n, Types.LONG())
    near.union(far).sink_to(out)


def two_sinks_of_one_stream(stream: DataStream, out: Collect) -> None:
    mapped = stream.rebalance().map(square, Types.LONG())
    mapped.sink_to(Collect())
    mapped.filter(lambda n: n % 2 == 0).sink_to(out)


def narrow_then_wide(stream: DataStream, out: Collect) -> None:
    stream.map(square, Types.LONG()).set_parallelism(1).map(lambda n: n + 1, Types.LONG()).sink_to(out)


def untyped_and_typed(stream: DataStream, out: Collect) -> None:
    stream.map(lambda n: {"n": n}).rebalance().map(lambda d: d["n"], Types.LONG()).rebalance().sink_to(out)


SQUARES = [n * n for n in NUMBERS]

PROGRAMS: dict[str, Program] = {
    "map": Program(lambda s, out: s.map(square).sink_to(out), same(SQUARES)),
    "typed map": Program(lambda s, out: s.map(square, Types.LONG()).sink_to(out), same(SQUARES)),
    "function class": Program(lambda s, out: s.map(AddOpened()).sink_to(out), same([n + 100 for n in NUMBERS])),
    "filter": Program(lambda s, out: s.filter(lambda n: n % 3).sink_to(out), same([n for n in NUMBERS if n % 3])),
    "flat_map": Program(
        lambda s, out: s.flat_map(two_of_each, Types.LONG()).sink_to(out), same(NUMBERS + [n + 1000 for n in NUMBERS])
    ),
    "flat_map to nothing": Program(lambda s, out: s.flat_map(lambda n: None).sink_to(out), same([])),
    "side outputs": Program(
        side_outputs, same([n * 10 for n in NUMBERS if n % 2] + [m for n in NUMBERS if n % 2 == 0 for m in (n, -n)])
    ),
    "project": Program(project, same([Row(text=f"n{n}") for n in NUMBERS])),
    "map_batches": Program(
        lambda s, out: s.map_batches(doubled, Types.LONG()).sink_to(out), same([n * 2 for n in NUMBERS if n < 10])
    ),
    "timestamps cross an exchange": Program(timestamps, same([(n, n * 7) for n in NUMBERS])),
    "derived records keep their timestamps": Program(
        inherited_timestamps, same([(n, n * 7) for n in NUMBERS if n != 4 for _ in range(n % 3)])
    ),
    "async calls": Program(async_calls, same(SQUARES)),
    "rebalance": Program(lambda s, out: s.rebalance().map(square).sink_to(out), same(SQUARES)),
    "rescale": Program(lambda s, out: s.rescale().map(square).sink_to(out), same(SQUARES)),
    "shuffle": Program(lambda s, out: s.shuffle().map(square).sink_to(out), same(SQUARES)),
    "global": Program(lambda s, out: s.global_().map(square).sink_to(out), same(SQUARES)),
    "forward": Program(lambda s, out: s.forward().map(square).sink_to(out), same(SQUARES)),
    "broadcast": Program(lambda s, out: s.broadcast().map(square).sink_to(out), lambda p: SQUARES * p),
    "key_by": Program(lambda s, out: s.key_by(lambda n: n % 5).map(square).sink_to(out), same(SQUARES)),
    "key_by a typed key": Program(
        lambda s, out: s.key_by(lambda n: f"k{n % 5}", Types.STRING()).map(square).sink_to(out), same(SQUARES)
    ),
    "partition_custom": Program(
        lambda s, out: s.partition_custom(lambda key, n: key % n, lambda v: v).map(square).sink_to(out), same(SQUARES)
    ),
    "union": Program(lambda s, out: s.union(s.map(square, Types.LONG())).sink_to(out), same(NUMBERS + SQUARES)),
    "diamond": Program(
        diamond, same([str(n + 100) for n in NUMBERS if n < 10] + [str(-n) for n in NUMBERS if n >= 10])
    ),
    "relayed": Program(relayed, same(NUMBERS + [n + 100 for n in NUMBERS])),
    "two sinks of one stream": Program(two_sinks_of_one_stream, same([n for n in SQUARES if n % 2 == 0])),
    "narrow then wide": Program(narrow_then_wide, same([n + 1 for n in SQUARES])),
    "untyped and typed": Program(untyped_and_typed, same(NUMBERS)),
}
PROGRAMS.update(
    {name: Program(build, same(golden)) for name, (build, golden) in (STATEFUL | WINDOWED | CONNECTED).items()}
)
PROGRAMS.update(
    {name: Program(build, same(golden)) for name, (build, golden) in (WINDOW_JOINS | INTERVAL_JOINS).items()}
)
PROGRAMS.update({name: Program(build, same(golden)) for name, (build, golden) in TABLED.items()})

# Programs with loops: the last records circulate for some further epochs, and the last epoch reads nothing.
LOOPS: dict[str, Program] = {name: Program(build, same(golden)) for name, (build, golden) in LOOPED.items()}
