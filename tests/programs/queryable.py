"""Programs whose states and windows are queried while they run, and models of the answers.

A state is the replay of the records up to the epoch. A record belongs to the windows that contain its time; a window is
open until the watermark passes its end plus the allowed lateness.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millstream import query
from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    CountEvictor,
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.testing import CRASH, EPOCH, Collect, Script, run
from programs.stateful import Mean

STORES = count()
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
PLACE = Types.ROW_NAMED(["name", "visits"], [Types.STRING(), Types.LONG()])
PICKLED = Types.PICKLED_BYTE_ARRAY()
RECORD = Types.ROW_NAMED(["key", "at", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])
NAME = "per-window"

EPOCHS = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdé"), st.integers(-1, 9)), min_size=1, max_size=6), min_size=1, max_size=4
)
TIMED_EPOCHS = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(1, 5)), min_size=1, max_size=5),
    min_size=1,
    max_size=3,
)


def _asked(build: Callable[[StreamExecutionEnvironment], None], parallelism: int) -> query.JobView:
    store = f"query-programs-{next(STORES)}"
    run(build, store=store, parallelism=parallelism)
    return query.open(f"memory://{store}", unpickle=pickle.loads)


# --- values of keys ---------------------------------------------------------------------------------------------


def queryable(descriptor: Any) -> Any:
    descriptor.set_queryable(descriptor.get_name())
    return descriptor


class Keeps(KeyedProcessFunction):
    """Stores the records of a key in queryable states of every kind."""

    def open(self, runtime_context: Any) -> None:
        of = runtime_context
        self.total = of.get_state(queryable(ValueStateDescriptor("total", Types.LONG())))
        self.place = of.get_state(queryable(ValueStateDescriptor("place", PLACE)))
        self.anything = of.get_state(queryable(ValueStateDescriptor("anything", PICKLED)))
        self.seen = of.get_list_state(queryable(ListStateDescriptor("seen", Types.LONG())))
        self.names = of.get_map_state(queryable(MapStateDescriptor("names", Types.LONG(), Types.STRING())))
        self.loose = of.get_map_state(queryable(MapStateDescriptor("loose", PICKLED, PICKLED)))
        self.largest = of.get_reducing_state(queryable(ReducingStateDescriptor("largest", max, Types.LONG())))
        mean = AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        self.mean = of.get_aggregating_state(queryable(mean))
        self.hidden = of.get_state(ValueStateDescriptor("hidden", Types.LONG()))

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        key, number = value
        if number < 0:
            for state in (self.total, self.seen, self.names):
                state.clear()
            return
        self.total.update((self.total.value() or 0) + number)
        self.place.update(Row(name=key, visits=number))
        self.anything.update({"last": number})
        self.seen.add(number)
        self.names.put(number, str(number))
        self.loose.put((key, number), {"n": number})
        self.largest.add(number)
        self.mean.add(number)
        self.hidden.update(number)


def keeping(*items: Any, key_type: Any = None) -> Callable[[StreamExecutionEnvironment], None]:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Script(items, type_info=PAIR))
        stream.key_by(lambda value: value[0], key_type).process(Keeps()).uid("keeper").name("keep all").sink_to(
            Collect()
        )

    return build


def replayed(records: Sequence[tuple[str, int]]) -> dict[str, dict[str, Any]]:
    """The contents of each state after these records, by key."""
    states: dict[str, dict[str, Any]] = {
        name: {} for name in ("total", "place", "anything", "seen", "names", "loose", "largest", "mean")
    }
    for key, number in records:
        if number < 0:
            for name in ("total", "seen", "names"):
                states[name].pop(key, None)
            continue
        states["total"][key] = states["total"].get(key, 0) + number
        states["place"][key] = Row(name=key, visits=number)
        states["anything"][key] = {"last": number}
        states["seen"].setdefault(key, []).append(number)
        states["names"].setdefault(key, {})[number] = str(number)
        states["loose"].setdefault(key, {})[key, number] = {"n": number}
        states["largest"][key] = max(number, states["largest"].get(key, number))
        sum_, n = states["mean"].get(key, (0, 0))
        states["mean"][key] = (sum_ + number, n + 1)
    return states


def check_answers(epochs: list[list[tuple[str, int]]], crash: bool, parallelism: int, key_type: Any) -> None:
    """Every answer at every epoch equals a replay, for each kind of query."""
    items: list[Any] = [item for records in epochs for item in (*records, EPOCH)]
    if crash:
        items.insert(len(items) // 2, CRASH)
    job = _asked(keeping(*items, key_type=key_type), parallelism)
    keys = [*"abcdé", "nobody"]
    for number in range(1, len(epochs) + 1):
        states = replayed([record for records in epochs[:number] for record in records])
        with job.at(epoch=number) as view:
            assert view.epoch == number
            for name, values in states.items():
                wanted = [values.get(key) for key in keys]
                assert view.get_many(name, keys) == wanted, name
                assert [view.get(name, key) for key in keys] == wanted, name
                found = view.get_columns(name, pa.array(keys))
                assert found.column("found").to_pylist() == [value is not None for value in wanted]


# --- windows ----------------------------------------------------------------------------------------------------


def ms(length: int) -> Duration:
    return Duration.of_millis(length)


class Sum(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0]

    def add(self, value: Row, accumulator: list[int]) -> list[int]:
        return [accumulator[0] + value["n"]]

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[0]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0]]


class Everything(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[Row]) -> Iterable[Any]:
        yield len(list(elements))


def plus(one: Row, other: Row) -> Row:
    return Row(key=one["key"], at=max(one["at"], other["at"]), n=one["n"] + other["n"])


TOTALS = agg.Aggregates(n=agg.sum("n"), records=agg.count(), largest=agg.max("n"), mean=agg.avg("n"))
PLAIN = agg.Aggregates(n=agg.sum("n"), records=agg.count(), least=agg.min("n"))


# How each operation represents the sum of `n`, in any operator.
OPERATIONS: dict[str, tuple[Any, Any]] = {
    "columns": (lambda windows: windows.aggregate(TOTALS), lambda result: result["n"]),
    "columns that are their results": (lambda windows: windows.aggregate(PLAIN), lambda result: result["n"]),
    "reduce": (lambda windows: windows.reduce(plus), lambda result: result["n"]),
    "aggregate": (lambda windows: windows.aggregate(Sum()), lambda result: result[0]),
    "records": (lambda windows: windows.process(Everything()), lambda result: sum(row["n"] for row in result)),
    "ready, a record at a time": (
        lambda windows: windows.aggregate(TOTALS, Everything()),
        lambda result: result["n"],
    ),
    "evicted": (
        lambda windows: windows.evictor(CountEvictor.of(100)).reduce(plus),
        lambda result: sum(row["n"] for row in result),
    ),
}
WINDOWS: dict[str, tuple[Any, Any]] = {
    "tumbling": (TumblingEventTimeWindows.of(ms(20)), lambda t: [(t // 20 * 20, t // 20 * 20 + 20)]),
    "sliding": (
        SlidingEventTimeWindows.of(ms(30), ms(10)),
        lambda t: [(start, start + 30) for start in range(t // 10 * 10 - 20, t // 10 * 10 + 10, 10)],
    ),
    "cumulative": (
        CumulativeEventTimeWindows.of(ms(30), ms(10)),
        lambda t: [(t // 30 * 30, end) for end in range(t // 10 * 10 + 10, t // 30 * 30 + 31, 10)],
    ),
}


def stamped(env: StreamExecutionEnvironment, items: Iterable[Any]) -> DataStream:
    # The last records are in the final epoch, in which all windows close.
    stream = env.add_source(Script([*items, EPOCH, record("z", 0)], type_info=RECORD))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row["at"])
    # Several subtasks would have several watermarks, some of them without a record.
    return stream.assign_timestamps_and_watermarks(strategy).set_parallelism(1)


def record(key: str, at: int, n: int = 1) -> Row:
    return Row(key=key, at=at, n=n)


def sums(view: query.EpochView, key: str, shown: Any) -> list[tuple[Any, Any, Any]]:
    return [(window.start, window.end, shown(window.result)) for window in view.windows(NAME, key)]


def check_windows(
    operation: str, epochs: list[list[tuple[str, int, int]]], windows: str, lateness: int, parallelism: int
) -> None:
    """The open windows of every key at every epoch match the records so far."""
    (assigner, windows_of), (apply, shown) = WINDOWS[windows], OPERATIONS[operation]
    items = [item for records in epochs for item in (*(record(*one) for one in records), EPOCH)][:-1]

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(env, items).key_by("key")
        apply(keyed.window(assigner).allowed_lateness(lateness).queryable(NAME)).sink_to(Collect())

    job = _asked(build, parallelism)
    watermark = -(2**60)
    held: dict[tuple[str, int, int], int] = {}
    for number, records in enumerate(epochs, start=1):
        for key, at, n in records:
            for start, end in windows_of(at):
                if end - 1 + lateness > watermark:
                    held[key, start, end] = held.get((key, start, end), 0) + n
        watermark = max(watermark, *(at - 1 for _, at, _ in records))
        held = {place: total for place, total in held.items() if place[2] - 1 + lateness > watermark}
        with job.at(epoch=number) as view:
            assert view.windows_many(NAME, "bcab") == [view.windows(NAME, key) for key in "bcab"]
            for key in "abc":
                own = [(start, end, total) for (owner, start, end), total in held.items() if owner == key]
                assert sums(view, key, shown) == sorted(own, key=lambda window: (window[1], window[0]))
