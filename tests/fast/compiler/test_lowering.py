"""What the compiler makes of what a program asked for: the logical graph before, and the plan after, as text.

`lowered/` has a golden text for each lowering pass. The uids in them are those of stores that were written before there
were such passes: they must never change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.compiler.explain import explain
from millstream.compiler.passes import compile_graph
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.graph.nodes import Graph, Node, Partitioning
from millstream.testing import Collect, Script

ORDER = Types.ROW_NAMED(["id", "at", "cents"], [Types.STRING(), Types.LONG(), Types.LONG()])

TOTALS = agg.Aggregates(orders=agg.count(), cents=agg.sum("cents"))

GOLDEN = Path(__file__).parent / "lowered"


def graph_of(program: Callable[[StreamExecutionEnvironment], Any]) -> Graph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_max_parallelism(128)
    program(env)
    return env._graph("job")


def written(graph: Graph) -> str:
    """The logical graph: one line per node, with the operation and what it reads."""
    return "".join(f"{_line(node)}\n" for node in graph.nodes)


def _line(node: Node) -> str:
    edges = ", ".join(f"{edge.source} {edge.partitioning.value}" for edge in node.inputs)
    return f"[{node.id}] {node.name}: {type(node.operation).__name__}" + (f" of {edges}" if edges else "")


def roll_in_columns(env: StreamExecutionEnvironment) -> None:
    """A field of a typed stream is rolled in columns, one of an untyped stream is not."""
    typed = env.add_source(Script([], type_info=ORDER), "orders").key_by("id")
    typed.sum("cents").sink_to(Collect())
    typed.map(lambda order: order).key_by(0).max(2).sink_to(Collect())


def stamped(env: StreamExecutionEnvironment, name: str = "orders") -> DataStream:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda order, _: order["at"])
    return env.from_source(Script([], [], type_info=ORDER), strategy, name)


def split_windows(env: StreamExecutionEnvironment) -> None:
    """Ready aggregates are split in two before each input; with an evictor, or a function on top, they are not."""
    orders = stamped(env).union(stamped(env, "returns")).key_by("id")
    minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    orders.window(minutes).queryable("totals").aggregate(TOTALS).name("totals").sink_to(Collect())
    orders.window(minutes).evictor(CountEvictor.of(3)).aggregate(TOTALS).uid("last three").sink_to(Collect())
    orders.window(EventTimeSessionWindows(10)).aggregate(TOTALS).sink_to(Collect())
    hours = SlidingEventTimeWindows.of(Duration.of_hours(1), Duration.of_minutes(1))
    stamped(env).window_all(hours).aggregate(TOTALS).uid("all").sink_to(Collect())


@pytest.mark.parametrize("program", [roll_in_columns, split_windows], ids=lambda program: program.__name__)
def test_a_program_is_lowered_as_before(program: Callable[[StreamExecutionEnvironment], Any]) -> None:
    graph = graph_of(program)
    assert f"{written(graph)}\n{explain(graph)}" == (GOLDEN / f"{program.__name__}.txt").read_text()


# --- what a program says later ----------------------------------------------------------------------------------------


def test_a_partial_aggregate_runs_where_the_records_are_though_the_parallelism_is_set_afterwards() -> None:
    def program(env: StreamExecutionEnvironment) -> None:
        orders = stamped(env).map(lambda order: order, ORDER)
        windows = orders.key_by("id").window(TumblingEventTimeWindows(10, 0)).aggregate(TOTALS)
        windows.sink_to(Collect())
        orders.set_parallelism(3)

    nodes = {node.name: node for node in compile_graph(graph_of(program)).nodes()}
    partial = nodes["Partial TumblingEventTimeWindows"]
    assert partial.parallelism == nodes["Map"].parallelism == 3
    assert partial.inputs[0].partitioning is Partitioning.FORWARD
    assert nodes["TumblingEventTimeWindows"].parallelism == 2
