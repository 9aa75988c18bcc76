"""Lowering in the compiler: the logical graph before each pass, the resulting plan, as text.

`lowered/` has a golden text for each lowering pass. The uids in them are those of stores written before the passes
existed: they must never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from oracles.lowered_operators import lowered_operation

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.compiler import passes
from millstream.compiler.explain import explain
from millstream.compiler.passes import compile_graph
from millstream.datastream import DataStream, OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.graph import notices
from millstream.graph.builder import GraphBuilder
from millstream.graph.nodes import (
    Cache,
    Edge,
    Graph,
    LoopHead,
    LoopTail,
    Map,
    Node,
    Operation,
    Partitioning,
    Read,
    Window,
    Write,
)
from millstream.graph.site import here
from millstream.plan.operations import FoldedWindow, PaneAggregate
from millstream.testing import Collect, Script

ORDER = Types.ROW_NAMED(["id", "at", "cents"], [Types.STRING(), Types.LONG(), Types.LONG()])

TOTALS = agg.Aggregates(orders=agg.count(), cents=agg.sum("cents"))

GOLDEN = Path(__file__).parent / "lowered"


def graph_of(program: Callable[[StreamExecutionEnvironment], Any]) -> Graph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_max_parallelism(128)
    program(env)
    return env._graph("job")


def list_nodes(nodes: Iterable[Node]) -> str:
    """One line per node, with its operation and its inputs."""
    return "".join(f"{_line(node)}\n" for node in nodes)


def _line(node: Node) -> str:
    edges = ", ".join(f"{edge.source} {edge.partitioning.value}" for edge in node.inputs)
    return f"[{node.id}] {node.name}: {type(node.operation).__name__}" + (f" of {edges}" if edges else "")


def roll_in_columns(env: StreamExecutionEnvironment) -> None:
    """A field of a typed stream is rolled in columns, that of an untyped stream is not."""
    typed = env.add_source(Script([], type_info=ORDER), "orders").key_by("id")
    typed.sum("cents").sink_to(Collect())
    typed.map(lambda order: order).key_by(0).max(2).sink_to(Collect())


def timestamped_orders(env: StreamExecutionEnvironment, name: str = "orders") -> DataStream:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda order, _: order["at"])
    return env.from_source(Script([], [], type_info=ORDER), strategy, name)


def split_windows(env: StreamExecutionEnvironment) -> None:
    """Built-in aggregates are split in two before each input; with an evictor or a process function they are not."""
    orders = timestamped_orders(env).union(timestamped_orders(env, "returns")).key_by("id")
    minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    orders.window(minutes).queryable("totals").aggregate(TOTALS).name("totals").sink_to(Collect())
    orders.window(minutes).evictor(CountEvictor.of(3)).aggregate(TOTALS).uid("last three").sink_to(Collect())
    orders.window(EventTimeSessionWindows(10)).aggregate(TOTALS).sink_to(Collect())
    hours = SlidingEventTimeWindows.of(Duration.of_hours(1), Duration.of_minutes(1))
    timestamped_orders(env).window_all(hours).aggregate(TOTALS).uid("all").sink_to(Collect())


def fold_windows(env: StreamExecutionEnvironment) -> None:
    """Records are folded into fixed windows that store one value; other windows process them one by one."""
    orders, minutes = timestamped_orders(env).key_by("id"), TumblingEventTimeWindows.of(Duration.of_minutes(1))
    orders.window(minutes).reduce(max).sink_to(Collect())
    orders.window(minutes).trigger(PurgingTrigger.of(EventTimeTrigger())).reduce(max).uid("purged").sink_to(Collect())
    orders.window(minutes).trigger(CountTrigger.of(3)).reduce(max).sink_to(Collect())
    orders.window(minutes).aggregate(TOTALS, Rows()).sink_to(Collect())
    orders.window(EventTimeSessionWindows(10)).reduce(max).sink_to(Collect())


class Rows(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return elements


def join_in_columns(env: StreamExecutionEnvironment) -> None:
    """Selected fields of both sides are joined in columns; by merging windows, or with a function, they are not."""
    orders, payments = timestamped_orders(env), timestamped_orders(env, "payments")
    pairs = orders.join(payments).where("id").equal_to("id")
    late = OutputTag("late", ORDER)
    minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    joined = pairs.window(minutes).side_output_left_late_data(late).project(["id", "cents"], ["at"])
    joined.sink_to(Collect())
    joined.get_side_output(late).sink_to(Collect())
    pairs.window(EventTimeSessionWindows(10)).project(["id"], ["cents"]).sink_to(Collect())
    pairs.window(minutes).apply(lambda order, payment: order.id, Types.STRING()).sink_to(Collect())
    interval = orders.key_by("id").interval_join(payments.key_by("id")).between(-1, 1)
    interval.project(["id"], ["cents"]).sink_to(Collect())
    interval.apply(lambda order, payment: order.id, Types.STRING()).sink_to(Collect())


def fill_caches(env: StreamExecutionEnvironment) -> None:
    """A cached stream that cannot be read yet gets a sink, where its records are."""
    orders = env.from_source(Script([], [], type_info=ORDER), WatermarkStrategy.no_watermarks(), "orders")
    cached = orders.map(lambda order: order, ORDER).set_parallelism(1).cache()
    cached.filter(lambda order: order.cents > 0).sink_to(Collect())
    orders.rebalance().cache().sink_to(Collect())


PROGRAMS = [fill_caches, roll_in_columns, split_windows, fold_windows, join_in_columns]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_is_lowered_as_before(program: Callable[[StreamExecutionEnvironment], Any]) -> None:
    graph = graph_of(program)
    lowered = sorted(compile_graph(graph).nodes(), key=lambda node: node.id)
    text = f"{list_nodes(graph.nodes)}\n{list_nodes(lowered)}\n{explain(graph)}"
    assert text == (GOLDEN / f"{program.__name__}.txt").read_text()


def test_plain_windows_emit_rows_of_their_own_type_and_others_the_declared_one() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    orders, declared = timestamped_orders(env).key_by("id"), Types.ROW([Types.STRING(), *[Types.LONG()] * 4])
    minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    own = orders.window(minutes).aggregate(TOTALS).get_type()
    for trigger, type_info, kind in (
        (EventTimeTrigger(), own, PaneAggregate),
        (PurgingTrigger.of(EventTimeTrigger()), declared, FoldedWindow),
    ):
        windows = orders.window(minutes).trigger(trigger).aggregate(TOTALS, output_type=declared)
        assert windows.get_type() == type_info
        assert type(lowered_operation(windows)) is kind


def test_windows_occupy_the_node_number_of_their_stored_uids() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    both = timestamped_orders(env).union(timestamped_orders(env))
    both.key_by("id").window(TumblingEventTimeWindows(10, 0)).aggregate(TOTALS)
    assert env._next_place() == 6, "two sources, a partial aggregate of each, and the windows precede it"
    both.key_by("id").window(EventTimeSessionWindows(10)).aggregate(TOTALS)
    assert env._next_place() == 7


# --- settings made after the operator -------------------------------------------------------------------------------


def test_a_partial_aggregate_runs_at_the_upstream_parallelism_even_if_it_is_set_later() -> None:
    def program(env: StreamExecutionEnvironment) -> None:
        orders = timestamped_orders(env).map(lambda order: order, ORDER)
        windows = orders.key_by("id").window(TumblingEventTimeWindows(10, 0)).aggregate(TOTALS)
        windows.sink_to(Collect())
        orders.set_parallelism(3)

    nodes = {node.name: node for node in compile_graph(graph_of(program)).nodes()}
    partial = nodes["Partial TumblingEventTimeWindows"]
    assert partial.parallelism == nodes["Map"].parallelism == 3
    assert partial.inputs[0].partitioning is Partitioning.FORWARD
    assert nodes["TumblingEventTimeWindows"].parallelism == 2


TRIGGERS = [
    (EventTimeTrigger(), FoldedWindow),
    (PurgingTrigger.of(EventTimeTrigger()), FoldedWindow),
    (type("Own", (EventTimeTrigger,), {})(), Window),
    (ContinuousEventTimeTrigger(5), Window),
    (ProcessingTimeTrigger(), Window),
]


def test_a_cached_stream_is_written_at_the_upstream_parallelism_even_if_it_is_set_later() -> None:
    def program(env: StreamExecutionEnvironment) -> None:
        orders = env.add_source(Script([], type_info=ORDER)).map(lambda order: order, ORDER)
        orders.cache().sink_to(Collect())
        orders.set_parallelism(3)

    nodes = {node.name: node for node in compile_graph(graph_of(program)).nodes()}
    assert [nodes[name].parallelism for name in ("Map", "Cached Map", "Sink: Cache", "Sink: Writer")] == [3, 3, 3, 2]
    assert nodes["Cached Map"].inputs[0].partitioning is Partitioning.FORWARD


def test_operators_needed_only_to_fill_a_filled_cache_are_removed_from_the_job() -> None:
    """Not even a loop, whose tail has no reader; operators with other readers stay."""
    builder = GraphBuilder()

    def add(operation: Operation, name: str, *sources: Node) -> Node:
        return builder.add(operation, name, inputs=tuple(Edge(source.id) for source in sources), output_type=ORDER)

    read = add(Read(Script([], type_info=ORDER)), "read")
    head = add(LoopHead(1, None), "head", read)
    body = add(Map(abs), "body", head)
    add(LoopTail(1), "tail", body)
    cached = add(Cache(4, source=Script([], type_info=ORDER)), "cached", body)
    add(Write(Collect()), "out", cached)
    assert list_nodes(passes.fill_caches(builder.graph("job", 2, 128)).nodes) == (
        "[1] Source: cached: Read\n[2] out: Write of 1 unspecified\n"
    )
    add(Write(Collect()), "beside", body)
    assert [node.name for node in passes.fill_caches(builder.graph("job", 2, 128)).nodes] == [
        "read", "head", "body", "tail", "Source: cached", "out", "beside",
    ]  # fmt: skip


@pytest.mark.parametrize(("trigger", "kind"), TRIGGERS, ids=lambda item: getattr(item, "__name__", type(item).__name__))
def test_records_are_folded_only_under_triggers_that_wait_for_the_window_end(trigger: Any, kind: type) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    windows = timestamped_orders(env).key_by("id").window(TumblingEventTimeWindows(10, 0)).trigger(trigger)
    assert type(lowered_operation(windows.reduce(max))) is kind
    own_windows = type("Own", (TumblingEventTimeWindows,), {})(10, 0)
    own = timestamped_orders(env).key_by("id").window(own_windows).reduce(max)
    assert type(lowered_operation(own)) is Window, "a user-defined class may assign other windows"


def test_windows_that_run_a_record_at_a_time_are_reported_once_with_their_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_LOGGED", set())
    env = StreamExecutionEnvironment.get_execution_environment()
    orders, minutes = timestamped_orders(env), TumblingEventTimeWindows.of(Duration.of_minutes(1))
    orders.key_by("id").window(minutes).evictor(CountEvictor.of(3)).aggregate(TOTALS).print()
    pairs = orders.join(orders).where("id").equal_to("id")
    pairs.window(TumblingProcessingTimeWindows(10, 0)).project(["id"], ["at"]).print()
    with caplog.at_level("INFO", "millstream.datastream"):
        env.explain()
        env.get_execution_plan()
    windows, join = (record.message for record in caplog.records)
    line = here().line
    assert windows == (
        f"the windows at test_lowering.py:{line - 7} have an evictor: their aggregates run a record at a time, not in "
        "columns, which is slower"
    )
    assert join == (
        f"the join at test_lowering.py:{line - 5} has windows of TumblingProcessingTimeWindows: it runs a pair at a "
        "time and not in columns, which is slower"
    )
