"""Programs that count records per key, by every kind of keyed operator; a dictionary computes the expected output.

A record is (key, 1). The input is cut into epochs, may crash, and may be rescaled: none of this may make a difference,
and neither may the order of equal keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from inputs.nested_keys import identity

from millstream.common import Time, Types, WatermarkStrategy
from millstream.common.typeinfo import TypeInformation
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import (
    CoGroupFunction,
    KeyedBatchFunction,
    KeyedBatchResult,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
)
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.testing import CRASH, EPOCH, Collect, Script, run

STORES = count()
END = 10**9
PICKLED = Types.PICKLED_BYTE_ARRAY()
DAY = Time.days(1)

Outputs = list[tuple[Any, Any]]
"""(key, count) as a program gave them out."""


@dataclass(frozen=True)
class Keyed:
    """The stream to be counted and its key selector: a function, or a field of typed records."""

    stream: DataStream
    key_type: TypeInformation | None

    def by_key(self) -> Any:
        if self.key_type is None:
            return self.stream.key_by(lambda record: record[0])
        return self.stream.key_by(lambda record: record[0], self.key_type)

    def by_field(self) -> Any:
        return self.by_key() if self.key_type is None else self.stream.key_by("key")


class Counts(KeyedProcessFunction):
    """Counts the records of a key in four ways, and emits all four when the input ends."""

    def __init__(self, key_type: TypeInformation | None) -> None:
        self._map_key_type = PICKLED if key_type is None else key_type

    def open(self, runtime_context: Any) -> None:
        count = ValueStateDescriptor("count", Types.LONG())
        count.set_queryable("count")
        self.count = runtime_context.get_state(count)
        self.ones = runtime_context.get_list_state(ListStateDescriptor("ones", Types.LONG()))
        self.by_key = runtime_context.get_map_state(MapStateDescriptor("by key", self._map_key_type, Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.ones.add(1)
        key = ctx.get_current_key()  # as a map key the same, whichever of the equal ones the record has
        self.by_key.put(key, (self.by_key.get(key) or 0) + 1)
        timers = ctx.timer_service()
        timers.delete_event_time_timer(END - 1)
        timers.register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        counts = (self.count.value(), len(self.ones.get()), *self.by_key.values())
        assert len(counts) == 3 and len(set(counts)) == 1, counts
        yield ctx.get_current_key(), counts[0]


def process(keyed: Keyed, out: Collect) -> None:
    keyed.by_key().process(Counts(keyed.key_type)).uid("counts").sink_to(out)


def process_by_field(keyed: Keyed, out: Collect) -> None:
    keyed.by_field().process(Counts(keyed.key_type)).uid("counts").sink_to(out)


def rolling(keyed: Keyed, out: Collect) -> None:
    keyed.by_field().sum(1).sink_to(out)


def reduced(keyed: Keyed, out: Collect) -> None:
    keyed.by_key().reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(out)


class Count(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, len(list(elements))


def tumbling(keyed: Keyed) -> Any:
    return keyed.by_field().window(TumblingEventTimeWindows.of(DAY))


def window_general(keyed: Keyed, out: Collect) -> None:
    tumbling(keyed).trigger(CountTrigger.of(1)).process(Count()).sink_to(out)


def window_merging(keyed: Keyed, out: Collect) -> None:
    keyed.by_key().window(EventTimeSessionWindows.with_gap(DAY)).process(Count()).sink_to(out)


def window_folded(keyed: Keyed, out: Collect) -> None:
    class Sum(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            (total,) = elements
            yield key, total[1]

    tumbling(keyed).reduce(lambda a, b: (a[0], a[1] + b[1]), Sum()).sink_to(out)


def window_columnar(keyed: Keyed, out: Collect) -> None:
    counts = agg.Aggregates(n=agg.count(), with_key=True)
    windows = keyed.by_field().window(TumblingEventTimeWindows.of(DAY))
    windows.aggregate(counts).map(lambda row: (row["key"], row["n"])).sink_to(out)


def window_panes(keyed: Keyed, out: Collect) -> None:
    counts = agg.Aggregates(n=agg.count(), with_key=True)
    windows = keyed.by_field().window(SlidingEventTimeWindows.of(Time.days(2), DAY))
    windows.aggregate(counts).map(lambda row: (row["key"], row["n"])).sink_to(out)


def interval_join(keyed: Keyed, out: Collect) -> None:
    """Every record with every one of its key: the count squared."""
    keyed.by_key().interval_join(keyed.by_key()).between(-1000, 1000).apply(lambda a, b: (a[0], 1)).sink_to(out)


def window_join(keyed: Keyed, out: Collect) -> None:
    joined = (
        keyed.stream.join(keyed.stream).where(lambda r: r[0], keyed.key_type).equal_to(lambda r: r[0], keyed.key_type)
    )
    joined.window(TumblingEventTimeWindows.of(DAY)).apply(lambda a, b: (a[0], 1)).sink_to(out)


def co_group(keyed: Keyed, out: Collect) -> None:
    grouping = keyed.stream.co_group(keyed.stream).where(lambda r: r[0], keyed.key_type)
    grouped = grouping.equal_to(lambda r: r[0], keyed.key_type).window(TumblingEventTimeWindows.of(DAY))
    grouped.apply(_Grouped()).sink_to(out)


class _Grouped(CoGroupFunction):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        lefts, rights = list(first), list(second)
        assert len(lefts) == len(rights)
        yield lefts[0][0], len(lefts)


class BothCounts(KeyedCoProcessFunction):
    """Counts the records of a key of two identical streams: each is counted twice."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(END)

    def process_element2(self, value: Any, ctx: Any) -> None:
        self.process_element1(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), self.count.value() / 2


def connected(keyed: Keyed, out: Collect) -> None:
    keyed.by_key().connect(keyed.by_key()).process(BothCounts()).sink_to(out)


class CountedBatches(KeyedBatchFunction):
    def states(self) -> dict[str, TypeInformation]:
        return {"count": Types.LONG()}

    def process_batch(self, batch: Any) -> KeyedBatchResult:
        counts = batch.states["count"].fill_null(0).to_numpy() + np.bincount(batch.key_of, minlength=len(batch.keys))
        return KeyedBatchResult(pa.record_batch({"key": batch.keys, "n": counts}), {"count": counts})


def batches(keyed: Keyed, out: Collect) -> None:
    assert keyed.key_type is not None
    result = Types.ROW_NAMED(["key", "n"], [keyed.key_type, Types.LONG()])
    keyed.by_field().process_batches(CountedBatches(), result).sink_to(out)


def last_of_each(outputs: Outputs) -> Counter[Any]:
    largest: Counter[Any] = Counter()
    for key, n in outputs:
        largest[identity(key)] = max(largest[identity(key)], n)
    return largest


def pairs(outputs: Outputs) -> Counter[Any]:
    counted = Counter(identity(key) for key, _ in outputs)
    return Counter({key: round(n**0.5) if round(n**0.5) ** 2 == n else -n for key, n in counted.items()})


def sums(outputs: Outputs) -> Counter[Any]:
    counted: Counter[Any] = Counter()
    for key, n in outputs:
        counted[identity(key)] += n
    return counted


PROGRAMS: dict[str, tuple[Callable[[Keyed, Collect], None], Callable[[Outputs], Counter[Any]]]] = {
    "process": (process, sums),
    "process by field": (process_by_field, sums),
    "rolling": (rolling, last_of_each),
    "reduced": (reduced, last_of_each),
    "window, general": (window_general, last_of_each),
    "window, merging": (window_merging, sums),
    "window, folded": (window_folded, sums),
    "window, columnar": (window_columnar, sums),
    "window, panes": (window_panes, last_of_each),
    "interval join": (interval_join, pairs),
    "window join": (window_join, pairs),
    "co-group": (co_group, sums),
    "connected": (connected, sums),
    "batches": (batches, last_of_each),
}
TYPED_ONLY = {"window, columnar", "window, panes", "batches"}


def counted(
    name: str,
    items: list[Any],
    key_type: TypeInformation | None,
    parallelism: int,
    *,
    other_parallelism: int | None = None,
    store: str | None = None,
) -> tuple[Outputs, Counter[Any]]:
    """The output of a program for these keys (EPOCH and CRASH among them), and its counts. With another parallelism,
    the job is stopped after an epoch and rescaled.
    """
    program, counts = PROGRAMS[name]
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        record_type = None if key_type is None else Types.ROW_NAMED(["key", "n"], [key_type, Types.LONG()])
        records = [item if item in (EPOCH, CRASH) else (item[0], 1) for item in items]
        stream = env.add_source(Script(records) if record_type is None else Script(records, type_info=record_type))
        stamps = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: 1)
        program(Keyed(stream.assign_timestamps_and_watermarks(stamps), key_type), out)

    name = store or f"key-programs-{next(STORES)}"
    outputs: Outputs = []
    if other_parallelism is not None:
        first = run(build, parallelism=parallelism, store=name, epochs=1)
        outputs, parallelism = [tuple(pair) for pair in first[out]], other_parallelism
    outputs = [*outputs, *(tuple(pair) for pair in run(build, parallelism=parallelism, store=name)[out])]
    return outputs, counts(outputs)


def expected(items: list[Any]) -> Counter[Any]:
    """The same by a dictionary."""
    return Counter(identity(item[0]) for item in items if isinstance(item, tuple))
