"""State as data: the state of a program, at any retained epoch, is returned as typed columns and can be written
back.

The programs run in memory; the reader opens their stores afterwards, as an external process would.
"""

from __future__ import annotations

import datetime as dt
import pickle
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores.stored_leases import leases_of

from millstream import state_reader
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import RetentionPolicy
from millstream.checkpoint.snapshot_names import SnapshotName
from millstream.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import PlatformError, ProgramError, StoreError, TypeMismatchError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.state.keys.canonical import canonical_bytes, decode
from millstream.state_reader import SavepointBuilder, Snapshot
from millstream.state_reader.difference import changed_groups
from millstream.state_reader.forms import decoder_of, key_form
from millstream.state_reader.verifying import verify
from millstream.storage import open_store
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, ManualClock, Script, Watermark, run

STORES = count()
PICKLED = Types.PICKLED_BYTE_ARRAY()
PLACE = Types.ROW_NAMED(["name", "visits"], [Types.STRING(), Types.LONG()])


def new_store() -> str:
    return f"test-state-reader-{next(STORES)}"


def reader_after(build: Any, store: str | None = None, **options: Any) -> state_reader.JobReader:
    """Runs a program and opens its store. The last epochs are retained."""
    store = store or new_store()
    run(build, store=store, **options)
    return state_reader.open(f"memory://{store}")


def rows(snapshot: Snapshot, operator: str, state: str, **options: Any) -> list[tuple[Any, ...]]:
    result = snapshot.read(operator, state, unpickle=pickle.loads, **options)
    return sorted((tuple(row.values()) for row in result), key=repr)


class Keeps(KeyedProcessFunction):
    """Stores the records of a key in states of every kind."""

    def open(self, runtime_context: Any) -> None:
        ttl = StateTtlConfig.new_builder(Time.milliseconds(1_000)).build()
        short = ValueStateDescriptor("short", Types.LONG())
        short.enable_time_to_live(ttl)
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.place = runtime_context.get_state(ValueStateDescriptor("place", PLACE))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.by_number = runtime_context.get_map_state(MapStateDescriptor("by number", Types.LONG(), Types.STRING()))
        self.loose = runtime_context.get_map_state(MapStateDescriptor("loose", PICKLED, PICKLED))
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.LONG()))
        self.anything = runtime_context.get_state(ValueStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY()))
        self.short = runtime_context.get_state(short)

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        key, number = value
        if number < 0:
            self.total.clear()
            self.seen.clear()
            return
        self.total.update((self.total.value() or 0) + number)
        self.place.update(Row(name=key, visits=number))
        self.seen.add(number)
        self.by_number.put(number, str(number))
        self.loose.put((key, number), {"n": number})
        self.largest.add(number)
        self.anything.update({"last": number})
        self.short.update(number)
        ctx.timer_service().register_event_time_timer(10_000 + number)


def keeping(*items: Any, key_type: Any = None) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Script(items, type_info=Types.TUPLE([Types.STRING(), Types.LONG()])))
        keyed = stream.key_by(lambda value: value[0], key_type)
        keyed.process(Keeps()).uid("keeper").name("keep all").sink_to(Collect())

    return build


STORY = (("a", 1), ("b", 2), EPOCH, ("a", 5), ("c", 7), EPOCH, ("b", -1), EPOCH, Watermark(20_000))


@pytest.mark.parametrize("key_type", [None, Types.STRING()], ids=["untyped key", "typed key"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_kind_of_keyed_state_is_returned_as_typed_columns(key_type: Any, parallelism: int) -> None:
    reader = reader_after(keeping(*STORY, key_type=key_type), parallelism=parallelism)
    with reader.at(epoch=2) as snapshot:
        assert rows(snapshot, "keeper", "total") == [("a", 6), ("b", 2), ("c", 7)]
        assert snapshot.read("keeper", "total").schema == pa.schema({"key": pa.string(), "value": pa.int64()})
        assert rows(snapshot, "keep all", "place")[0] == ("a", {"name": "a", "visits": 5})
        assert rows(snapshot, "keeper", "place", flatten=True)[0] == ("a", "a", 5)
        assert rows(snapshot, "keeper", "seen") == [("a", 0, 1), ("a", 1, 5), ("b", 0, 2), ("c", 0, 7)]
        assert rows(snapshot, "keeper", "by number") == [("a", 1, "1"), ("a", 5, "5"), ("b", 2, "2"), ("c", 7, "7")]
        assert rows(snapshot, "keeper", "loose")[0] == ("a", ("a", 1), {"n": 1})
        assert rows(snapshot, "keeper", "largest") == [("a", 5), ("b", 2), ("c", 7)]
        assert rows(snapshot, "keeper", "anything") == [("a", {"last": 5}), ("b", {"last": 2}), ("c", {"last": 7})]
        timers = [("a", 10_001), ("a", 10_005), ("b", 10_002), ("c", 10_007)]
        assert rows(snapshot, "keeper", "event timers") == timers


def test_the_catalog_lists_kinds_types_and_sizes() -> None:
    with reader_after(keeping(*STORY, key_type=Types.STRING())).at(epoch=2) as snapshot:
        [operator] = [one for one in snapshot.operators if one.states]
        assert (operator.uid, operator.name, operator.parallelism) == ("keeper", "keep all", 1)
        states_by_name = {one.name: (one.kind, one.key_type, one.value_type) for one in snapshot.states("keep all")}
        assert states_by_name == {
            "total": ("value", "string", "int64"),
            "place": ("value", "string", "struct<name: string, visits: int64>"),
            "seen": ("list", "string", "int64"),
            "by number": ("map", "string", "string"),
            "loose": ("map", "string", "pickled"),
            "largest": ("value", "string", "int64"),
            "anything": ("value", "string", "pickled"),
            "short": ("value", "string", "int64"),
            "event timers": ("timers", "string", None),
        }
        assert all(one.bytes > 0 and one.rows > 0 and one.segments == 2 for one in snapshot.states())


def test_deleted_and_expired_rows_are_absent() -> None:
    clock = ManualClock(1_000_000)

    def build(env: StreamExecutionEnvironment) -> None:
        keeping(("a", 1), EPOCH, ("b", 2), ("a", -1))(env)

    store = new_store()
    run(build, store=store, clock=clock)
    reader = state_reader.open(f"memory://{store}")
    with reader.at() as snapshot:
        assert rows(snapshot, "keeper", "total") == [("b", 2)]
        assert rows(snapshot, "keeper", "short") == [("a", 1, 1_001_000), ("b", 2, 1_001_000)]
    manifest = reader.at().manifest
    late = replace(manifest, epoch=99, parent=manifest.epoch, created_ms=1_001_000)
    assert ManifestLog(open_store(f"memory://{store}")).commit(late)
    with reader.at(epoch=99) as snapshot:
        assert rows(snapshot, "keeper", "short") == []


def test_epochs_are_listed_and_selected_by_number_time_and_address() -> None:
    clock, store = ManualClock(5_000), new_store()
    run(keeping(*STORY), store=store, clock=clock)
    reader = state_reader.open(f"memory://{store}@2")
    epochs = reader.epochs()
    assert [one.epoch for one in epochs][:3] == [1, 2, 3] and epochs[-1].status == "FINISHED"
    assert [one.records for one in epochs][:3] == [2, 4, 5]
    assert reader.at().epoch == 2
    assert reader.at(time=dt.datetime.fromtimestamp(9, dt.UTC)).epoch == epochs[-1].epoch
    with pytest.raises(StoreError, match="retains no epoch that was committed at or before 1"):
        reader.at(time=1)
    with pytest.raises(ProgramError, match="no time zone"):
        reader.at(time=dt.datetime(2026, 1, 1))
    with pytest.raises(StoreError, match="has no epoch 77; it retains 1-5"):
        reader.at(epoch=77)
    with pytest.raises(StoreError, match="no savepoint 'before'; it has none"):
        reader.at(savepoint="before")


def test_a_snapshot_pins_its_epoch_until_it_is_closed() -> None:
    reader = reader_after(keeping(*STORY))
    with reader.at(epoch=1) as snapshot:
        assert [lease.epoch for lease in leases_of(reader.store)] == [1] and snapshot.is_held
    assert leases_of(reader.store) == []


def test_a_pinned_epoch_survives_the_collection_of_all_others() -> None:
    clock, store = ManualClock(1_000), new_store()
    run(keeping(*STORY), store=store, clock=clock)
    place = open_store(f"memory://{store}")
    reader = state_reader.JobReader(place, SnapshotName(f"memory://{store}"), now_ms=clock.now_ms)
    with reader.at(epoch=1) as snapshot:
        newest = ManifestLog(place).newest()
        Sweeper(place, clock.now_ms, RetentionPolicy(keep_last=1)).sweep(newest)
        assert [one.epoch for one in reader.epochs()] == [1, newest.epoch] if newest else False
        assert rows(snapshot, "keeper", "total") == [("a", 1), ("b", 2)]


def test_a_read_only_store_is_read_without_a_lease() -> None:
    class ReadOnly(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            raise StoreError("this store may only be read")

    name = new_store()
    run(keeping(*STORY), store=name)
    reader = state_reader.JobReader(ReadOnly(name), SnapshotName(f"memory://{name}"))
    with reader.at(epoch=1) as snapshot:
        assert not snapshot.is_held and rows(snapshot, "keeper", "total") == [("a", 1), ("b", 2)]
    with pytest.raises(StoreError, match="has no epoch 77"):
        reader.at(epoch=77)


def test_misspelt_names_are_reported_with_the_nearest_and_all_existing_ones() -> None:
    snapshot = reader_after(keeping(*STORY)).at()
    with pytest.raises(StoreError, match=r"no operator 'keper'. Did you mean 'keeper'\? With state it has: 'keep all'"):
        snapshot.read("keper", "total")
    with pytest.raises(
        StoreError, match=r"'keep all' has no state 'totals'. Did you mean 'total'\? It has: 'anything'"
    ):
        snapshot.read("keeper", "totals")


def test_one_key_is_read_by_a_lookup() -> None:
    snapshot = reader_after(keeping(*STORY)).at(epoch=2)
    assert rows(snapshot, "keeper", "total", key="a") == [("a", 6)]
    assert rows(snapshot, "keeper", "seen", key="a") == [("a", 0, 1), ("a", 1, 5)]
    assert rows(snapshot, "keeper", "total", key="nobody") == []


def test_pandas_arrow_and_raw_bytes() -> None:
    snapshot = reader_after(keeping(*STORY)).at(epoch=2)
    trusted = snapshot.read("keeper", "anything", unpickle=pickle.loads)
    frame = trusted.to_pandas().sort_values("key")
    assert frame["value"].tolist() == [{"last": 5}, {"last": 2}, {"last": 7}]
    arrow = trusted.to_arrow().read_all()
    assert arrow.schema.field("value").type == pa.struct({"last": pa.int64()})
    raw = snapshot.read("keeper", "anything", raw=True).to_arrow().read_all()
    assert raw.schema == pa.schema({"key": pa.binary(), "value": pa.binary()})
    with pytest.raises(TypeMismatchError, match="are not decoded in Spark's tasks"):
        snapshot.read("keeper", "anything").to_spark(None)
    with pytest.raises(ProgramError, match="in this process's memory"):
        snapshot.read("keeper", "total").to_spark(None)


def test_polars_is_used_where_it_is_installed() -> None:
    result = reader_after(keeping(*STORY)).at(epoch=2).read("keeper", "total")
    try:
        import polars  # noqa: F401
    except ImportError:
        with pytest.raises(PlatformError, match="pip install polars"):
            result.to_polars()
    else:
        assert sorted(result.to_polars()["value"].to_list()) == [2, 6, 7]


ONE_KIND = (
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    st.text(max_size=5) | st.none(),
    st.binary(max_size=3),
    st.floats(allow_nan=False),
    st.dates(),
    st.datetimes() | st.none(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.integers(),
    st.tuples(st.integers(0, 3), st.text(max_size=2)),
)
SAME_KIND = st.one_of(*(st.lists(one, min_size=1, max_size=6) for one in ONE_KIND))


@given(keys=st.one_of(SAME_KIND, st.lists(st.one_of(*ONE_KIND), max_size=6)))
def test_untyped_keys_in_columns_equal_keys_decoded_one_by_one(keys: list[Any]) -> None:
    stored = [canonical_bytes(key) for key in keys]
    form = key_form("key", [pa.array(stored[:2], pa.binary()), pa.array(stored[2:], pa.binary())])
    [field], [column] = form.fields, form.arrays(pa.array([b"", *stored], pa.binary()).slice(1))
    assert column.type == field.type
    read = decoder_of(field)
    shown = [value if read is None else read(value) for value in column.to_pylist()]
    assert [(type(value), value) for value in shown] == [(type(decode(data)), decode(data)) for data in stored]


def test_keys_of_several_kinds_are_python_values() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script([("a", 1), (("x", 2), 1), (3, 1), EPOCH])).key_by(lambda value: value[0])
        keyed.reduce(lambda a, b: b).uid("last").sink_to(Collect())

    snapshot = reader_after(build).at()
    assert [key for key, _ in rows(snapshot, "last", "result")] == ["a", ("x", 2), 3]
    with pytest.raises(TypeMismatchError, match="'key' have no common Arrow type"):
        snapshot.read("last", "result", unpickle=pickle.loads).to_arrow()


# --- windows ----------------------------------------------------------------------------------------------------------


def stamped(items: Iterable[Any]) -> Any:
    def stream_of(env: StreamExecutionEnvironment) -> DataStream:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
        pair = Types.TUPLE([Types.STRING(), Types.LONG()])
        return env.add_source(Script(items, type_info=pair)).assign_timestamps_and_watermarks(strategy)

    return stream_of


EVENTS = (("a", 10), ("b", 20), ("a", 130), EPOCH, ("a", 140), EPOCH, ("a", 999))


class Longest(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, len(list(elements))


def test_open_windows_of_a_custom_reduce_have_bounds() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(EVENTS)(env).key_by(lambda value: value[0], Types.STRING())
        windows = keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(100)))
        windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("w").sink_to(Collect())

    result = reader_after(build).at(epoch=2).read("w", "window values").to_pylist()
    assert result == [
        {"key": "a", "window_start_ms": 100, "window_end_ms": 200, "value": {"f0": "a", "f1": 270}},
    ]


def test_panes_of_builtin_aggregates_have_bounds_and_accumulators() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(EVENTS)(env).key_by(0)
        windows = keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(100)))
        windows.aggregate(agg.Aggregates(n=agg.count(), total=agg.sum(1))).uid("w").sink_to(Collect())

    snapshot = reader_after(build).at(epoch=2)
    [operator] = [one for one in snapshot.operators if "panes" in one.states]
    [row] = snapshot.read(operator.uid, "panes")
    assert (row["key"], row["pane_start_ms"], row["pane_end_ms"]) == ("a", 100, 200)
    assert 270 in row["value"].values()


def test_sessions_show_their_windows_contents_timers_and_merging() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(EVENTS)(env).key_by(lambda value: value[0], Types.STRING())
        windows = keyed.window(EventTimeSessionWindows.with_gap(Duration.of_millis(50)))
        windows.process(Longest()).uid("w").sink_to(Collect())

    snapshot = reader_after(build).at(epoch=2)
    contents = snapshot.read("w", "window contents").to_pylist()
    assert [(row["window_start_ms"], row["index"], row["value"]["f1"]) for row in contents] == [
        (130, 0, 130),
        (130, 1, 140),
    ]
    [merged] = snapshot.read("w", "merging windows")
    assert (merged["window_start_ms"], merged["window_end_ms"], merged["state_window_start_ms"]) == (130, 190, 130)
    assert rows(snapshot, "w", "window event timers") == [("a", 130, 190, 189)]
    assert rows(snapshot, "w", "window contents", key="a") == rows(snapshot, "w", "window contents")
    assert rows(snapshot, "w", "window contents", key="b") == []
    kinds = {one.name: one.kind for one in snapshot.states("w")}
    assert kinds["window contents"] == "list per window"


# --- broadcast and operator state -------------------------------------------------------------------------------------


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
LOOSE = MapStateDescriptor("loose", PICKLED, PICKLED)


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        return ()

    def process_broadcast_element(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        ctx.get_broadcast_state(LOOSE).put(value, list(value))
        return ()


def test_broadcast_state_is_one_map() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        rules = env.add_source(Script([("x", 1), EPOCH, ("y", 2), ("x", 3)])).broadcast(RULES, LOOSE)
        env.add_source(Script([1])).connect(rules).process(Rules()).uid("r").sink_to(Collect())

    snapshot = reader_after(build, parallelism=2).at()
    assert rows(snapshot, "r", "rules") == [("x", 3), ("y", 2)]
    assert snapshot.read("r", "rules").schema.names == ["map_key", "value"]
    assert rows(snapshot, "r", "loose")[0] == (("x", 1), ["x", 1])


class Buffers(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("buffer", Types.LONG()))
        self.values = list(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.values)

    def map(self, value: int) -> int:
        self.values.append(value)
        return sum(self.values)


def buffering(items: Iterable[Any], out: Collect | None = None) -> Any:
    return lambda env: env.add_source(Script(items)).map(Buffers()).uid("buf").sink_to(out or Collect())


def test_operator_lists_are_returned_by_subtask_and_index() -> None:
    reader = reader_after(buffering([4, 5, EPOCH, 6]))
    with reader.at(epoch=1) as before, reader.at(epoch=2) as after:
        assert rows(before, "buf", "buffer") == [(0, 0, 4), (0, 1, 5)]
        assert before.diff(after, "buf", "buffer").to_pylist() == [
            {"change": "added", "subtask": 0, "index": 2, "before": None, "after": 6}
        ]
        assert [(one.kind, one.value_type) for one in before.states("buf")] == [("split list", "int64")]


class Counts(MapFunction, CheckpointedFunction):
    """Stores an operator map with typed keys, and one without types."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.rules, self.loose = store.get_broadcast_state(RULES), store.get_broadcast_state(LOOSE)

    def snapshot_state(self, context: Any) -> None:
        pass

    def map(self, value: int) -> int:
        self.rules.put(f"n {value}", value)
        self.loose.put((value,), [value])
        return value


def test_operator_maps_are_returned_by_subtask_and_map_key() -> None:
    reader = reader_after(lambda env: env.add_source(Script([4, EPOCH, 5])).map(Counts()).uid("op").sink_to(Collect()))
    with reader.at(epoch=1) as before, reader.at(epoch=2) as after:
        assert rows(after, "op", "rules") == [(0, "n 4", 4), (0, "n 5", 5)]
        assert rows(after, "op", "loose") == [(0, (4,), [4]), (0, (5,), [5])]
        assert [tuple(row.values()) for row in before.diff(after, "op", "rules")] == [("added", 0, "n 5", None, 5)]


@pytest.mark.parametrize("pair", [Types.TUPLE([Types.STRING(), Types.LONG()]), None], ids=["typed", "untyped"])
def test_records_in_a_loop_are_rows(pair: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([("a", 2), ("b", 1)], type_info=pair)).iterate(rounds_max=1)
        loop.close_with(loop.filter(lambda p: p[1] > 0).map(lambda p: (p[0], p[1] - 1), pair))
        loop.sink_to(Collect())

    with reader_after(build).at(epoch=1) as snapshot:
        [state] = snapshot.states()
        assert state.kind == "loop"
        result = snapshot.read(state.uid, "loop", unpickle=pickle.loads).to_pylist()
        values = [("a", 1), ("b", 0)]
        if pair is None:  # the content of a pickle is opaque to readers, so all records of a block are one row
            assert [row["value"] for row in result] == [(values, None)]
            return
        assert [row["value"] for row in result] == [{"f0": a, "f1": b} for a, b in values]
        assert [(row["subtask"], row["index"], row["timestamp_ms"]) for row in result] == [(0, 0, None), (0, 1, None)]


def test_join_sides_have_their_times_until_no_match_is_possible() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = stamped(EVENTS)(env).key_by(0)
        keyed.interval_join(keyed).between(0, 50).apply(lambda a, b: a[1] - b[1]).uid("j").sink_to(Collect())

    with reader_after(build).at(epoch=2) as snapshot:
        states = {one.name: one.kind for one in snapshot.states("j")}
        assert "join rows" in states.values()
        name = next(name for name, kind in states.items() if kind == "join rows")
        result = snapshot.read("j", name).to_pylist()
        assert [(row["key"], row["time_ms"], row["value"]["f1"]) for row in result] == [
            ("a", 130, 130),
            ("a", 140, 140),
        ]


# --- differences ------------------------------------------------------------------------------------------------------


def test_a_diff_lists_rows_added_removed_and_changed() -> None:
    reader = reader_after(keeping(*STORY))
    with reader.at(epoch=1) as one, reader.at(epoch=2) as two, reader.at(epoch=3) as three:
        diff = one.diff(two, "keeper", "total")
        assert sorted(tuple(row.values()) for row in diff) == [("added", "c", None, 7), ("changed", "a", 1, 6)]
        assert two.diff(three, "keeper", "total").to_pylist() == [
            {"change": "removed", "key": "b", "before": 2, "after": None}
        ]
        assert one.diff(three, "keeper", "total").counts() == {"added": 1, "removed": 1, "changed": 1}
        assert sorted(tuple(row.values()) for row in one.diff(two, "keeper", "seen")) == [
            ("added", "a", 1, None, 5),
            ("added", "c", 0, None, 7),
        ]
        assert ("added", "c", 10_007) in [tuple(row.values()) for row in one.diff(two, "keeper", "event timers")]
        assert two.diff(two, "keeper", "total").to_pylist() == []
        with pytest.raises(StoreError, match=r"has no state 'totl'\. Did you mean 'total'"):
            one.diff(two, "keeper", "totl")


def test_key_groups_with_equal_segments_are_not_read() -> None:
    reader = reader_after(keeping(*STORY))
    with reader.at(epoch=3) as snapshot:
        refs = snapshot.stored("keeper", "largest").refs
        assert changed_groups(refs, refs, 128) == []
        assert changed_groups(refs[:1], refs, 128) == [range(128)]


# --- writing back -----------------------------------------------------------------------------------------------------


def test_a_savepoint_written_from_tables_is_read_back() -> None:
    folder = f"memory://{new_store()}"
    visits = pd.DataFrame({"who": ["a", "b"], "name": ["A", "B"], "visits": [1, 2]})
    carts = pa.table({"who": ["a", "a"], "item": ["pen", "ink"], "count": pa.array([2, 1], pa.int32())})
    builder = SavepointBuilder("shop").operator("keeper", "keep all")
    builder.state(
        "keeper", "place", visits, key="who", key_type=Types.STRING(), value=["name", "visits"], value_type=PLACE
    )
    builder.state(
        "keeper",
        "cart",
        carts,
        kind="map",
        key="who",
        key_type=Types.STRING(),
        map_key="item",
        map_key_type=Types.STRING(),
        value="count",
        value_type=Types.LONG(),
    )
    builder.state("keeper", "seen", carts, kind="list", key="who", value="count", value_type=Types.LONG())
    builder.state("keeper", "anything", [{"key": "a", "value": {"x": 1}}])
    until = [{"key": "a", "value": 1, "until": 99}, {"key": "b", "value": 2, "until": None}]
    builder.state("keeper", "short", until, ttl_ms=10, expires_ms="until")
    builder.timers("keeper", [{"key": "a", "time_ms": 5}], domain="processing")
    builder.broadcast("keeper", "rules", [{"map_key": "x", "value": 1}], map_key_type=Types.STRING())
    builder.operator_list("keeper", "buffer", [{"value": 4}, {"value": 5}], value_type=Types.LONG(), mode="union")
    builder.now_ms = lambda: 50
    assert builder.write(folder) == folder
    with state_reader.open(folder).at() as snapshot:
        assert rows(snapshot, "keep all", "place") == [
            ("a", {"name": "A", "visits": 1}),
            ("b", {"name": "B", "visits": 2}),
        ]
        assert rows(snapshot, "keeper", "cart") == [("a", "ink", 1), ("a", "pen", 2)]
        assert rows(snapshot, "keeper", "seen") == [("a", 0, 2), ("a", 1, 1)]
        assert rows(snapshot, "keeper", "anything") == [("a", {"x": 1})]
        assert rows(snapshot, "keeper", "short") == [("a", 1, 99), ("b", 2, None)]
        assert rows(snapshot, "keeper", "processing timers") == [("a", 5)]
        assert rows(snapshot, "keeper", "rules") == [("x", 1)]
        assert rows(snapshot, "keeper", "buffer") == [(0, 0, 4), (0, 1, 5)]
        assert snapshot.manifest.states["keeper"]["subtasks"]["0"]["wake_ms"] == 5  # type: ignore[index, call-overload]
        assert snapshot.is_held


def starting_from(folder: str, program: Any) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.state-recovery.path", folder))
        program(env)

    return build


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_starts_from_a_written_savepoint(parallelism: int) -> None:
    folder = f"memory://{new_store()}"
    table = pa.table({"key": ["a", "z"], "value": [100, 200]})
    builder = SavepointBuilder("bootstrapped")
    builder.state("keeper", "total", table, key_type=Types.STRING(), value_type=Types.LONG())
    builder.state("keeper", "seen", table, kind="list", key_type=Types.STRING(), value_type=Types.LONG())
    builder.timers("keeper", [{"key": "z", "time_ms": 10_500}], key_type=Types.STRING()).write(folder)
    program = keeping(("a", 1), EPOCH, ("q", 0), key_type=Types.STRING())
    reader = reader_after(starting_from(folder, program), parallelism=parallelism)
    assert verify(reader.store.url).is_whole  # it shares files with the savepoint
    with reader.at(epoch=3) as snapshot:
        assert rows(snapshot, "keeper", "total") == [("a", 101), ("z", 200)]
        assert rows(snapshot, "keeper", "seen") == [("a", 0, 100), ("a", 1, 1), ("z", 0, 200)]
        assert rows(snapshot, "keeper", "event timers") == [("a", 10_001), ("z", 10_500)]


def test_a_job_starts_with_written_broadcast_and_operator_state() -> None:
    rules, buffer, out = f"memory://{new_store()}", f"memory://{new_store()}", Collect()
    builder = SavepointBuilder("rules")
    builder.broadcast(
        "r", "rules", [{"map_key": "x", "value": 7}], map_key_type=Types.STRING(), value_type=Types.LONG()
    ).write(rules)

    def build(env: StreamExecutionEnvironment) -> None:
        changes = env.add_source(Script([("y", 2)])).broadcast(RULES, LOOSE)
        env.add_source(Script([1])).connect(changes).process(Rules()).uid("r").sink_to(Collect())

    assert rows(reader_after(starting_from(rules, build), parallelism=2).at(), "r", "rules") == [("x", 7), ("y", 2)]
    SavepointBuilder("buffers").operator_list("buf", "buffer", [{"value": 100}], value_type=Types.LONG()).write(buffer)
    assert run(starting_from(buffer, buffering([1, 2], out)))[out] == [101, 103]


def test_a_job_resumes_from_a_snapshot_with_one_corrected_state() -> None:
    reader, folder = reader_after(keeping(*STORY, key_type=Types.STRING())), f"memory://{new_store()}"
    with reader.at(epoch=2) as snapshot:
        other = pa.table({"key": ["a"], "value": [1_000]})
        builder = SavepointBuilder.from_snapshot(snapshot)
        builder.state("keeper", "total", other, key_type=Types.STRING(), value_type=Types.LONG()).write(folder)
    # Its source resumes after epoch 2: one record of the story is left.
    story = (*STORY[:6], ("a", 24), EPOCH, Watermark(20_000))
    with reader_after(starting_from(folder, keeping(*story, key_type=Types.STRING()))).at(epoch=4) as snapshot:
        assert rows(snapshot, "keeper", "total") == [("a", 1_024)]
        assert rows(snapshot, "keeper", "seen", key="a") == [("a", 0, 1), ("a", 1, 5), ("a", 2, 24)]


def test_a_savepoint_from_a_snapshot_replaces_some_states_and_retains_the_rest() -> None:
    reader = reader_after(keeping(*STORY, key_type=Types.STRING()), parallelism=2)
    folder = f"memory://{new_store()}"
    with reader.at(epoch=3) as snapshot:
        doubled = snapshot.read("keeper", "total").to_pandas()
        doubled["value"] *= 2
        builder = SavepointBuilder.from_snapshot(snapshot).drop("keeper", "anything")
        builder.state("keeper", "total", doubled, key_type=Types.STRING(), value_type=Types.LONG()).write(folder)
        with state_reader.open(folder).at() as saved:
            assert saved.epoch == 3
            assert rows(saved, "keeper", "total") == [("a", 12), ("c", 14)]
            for same in ("seen", "by number", "event timers", "place"):
                assert rows(saved, "keeper", same) == rows(snapshot, "keeper", same)
            assert "anything" not in [one.name for one in saved.states()]
            assert saved.manifest.sources == snapshot.manifest.sources
        with pytest.raises(ProgramError, match="was saved with key string, and is passed with canonical"):
            SavepointBuilder.from_snapshot(snapshot).state("keeper", "total", doubled, value_type=Types.LONG())


def test_rows_that_are_invalid_as_state_are_rejected_by_name() -> None:
    builder = SavepointBuilder("refused")
    twice = pa.table({"key": ["a", "a"], "value": [1, 2]})
    with pytest.raises(ProgramError, match="state 's' of 'op': 2 rows were passed, and some have a key in common"):
        builder.state("op", "s", twice, value_type=Types.LONG())
    with pytest.raises(ProgramError, match="no column 'amount'; they have"):
        builder.state("op", "s", twice, value="amount", value_type=Types.LONG())
    with pytest.raises(TypeMismatchError, match="state 's' of 'op'"):
        builder.state("op", "s", pa.table({"key": ["a"], "value": ["text"]}), value_type=Types.LONG())
    with pytest.raises(ProgramError, match="found rows of int"):
        builder.state("op", "s", 5)
    folder = f"memory://{new_store()}"
    open_store(folder).put("notes.txt", b"mine")
    with pytest.raises(StoreError, match="is not empty"):
        builder.write(folder)
    assert open_store(folder).list("") == ["notes.txt"]


def test_the_example_page_in_docs_runs_as_printed() -> None:
    page: dict[str, Any] = {}
    text = (Path(__file__).resolve().parents[3] / "docs" / "operate" / "state-as-data.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "state-as-data.md", "exec"), page)
    words = pd.DataFrame({"word": ["sea", "sky"], "n": [3, 5]})
    first, second = (f"memory://{new_store()}" for _ in range(2))
    page["bootstrap"](words, first)
    assert page["totals"](first)["value"].tolist() == [5, 3]
    page["corrected"](first, second, 10)
    assert page["totals"](second)["value"].tolist() == [50, 30]
    assert page["movers"](first, 1, 1) == []


# --- types that changed -----------------------------------------------------------------------------------------------


class Totals(KeyedProcessFunction):
    def __init__(self, type_info: Any, upgrade: Any = None) -> None:
        self.descriptor = ValueStateDescriptor("total", type_info)
        if upgrade is not None:
            self.descriptor.evolve(upgrade=upgrade)

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.total.update(value[1])


def totals(items: Iterable[Any], function: Totals) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        source = env.add_source(Script(items)).uid("in")
        source.key_by(lambda value: value[0]).process(function).uid("op").sink_to(Collect()).uid("out")

    return build


def test_segments_of_an_older_type_are_read_as_the_newest() -> None:
    store = new_store()
    run(totals([("a", 1), ("b", 2), EPOCH, ("c", 9)], Totals(Types.INT())), store=store, epochs=1)
    run(totals([("a", 1), ("b", 2), EPOCH, ("b", 2**40)], Totals(Types.LONG())), store=store)
    with state_reader.open(f"memory://{store}").at() as snapshot:
        assert rows(snapshot, "op", "total") == [("a", 1), ("b", 2**40)]
        assert snapshot.read("op", "total").schema.field("value").type == pa.int64()


def test_the_newest_processing_time_session_has_bounds_too() -> None:
    clock = ManualClock(1_000)

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script([("a", 1), EPOCH, ("a", 2)], clock=clock)).key_by(lambda value: value[0])
        windows = keyed.window(ProcessingTimeSessionWindows.with_gap(Duration.of_millis(50)))
        windows.process(Longest()).uid("w").sink_to(Collect())

    with reader_after(build, clock=clock).at(epoch=1) as snapshot:
        assert rows(snapshot, "w", "window processing timers") == [("a", 1_000, 1_050, 1_049)]
