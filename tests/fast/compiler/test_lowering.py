"""What the compiler makes of what a program asked for: the logical graph before, and the plan after, as text.

`lowered/` has a golden text for each lowering pass. The uids in them are those of stores that were written before there
were such passes: they must never change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Types
from millstream.compiler.explain import explain
from millstream.datastream import StreamExecutionEnvironment
from millstream.graph.nodes import Graph, Node
from millstream.testing import Collect, Script

ORDER = Types.ROW_NAMED(["id", "at", "cents"], [Types.STRING(), Types.LONG(), Types.LONG()])

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


@pytest.mark.parametrize("program", [roll_in_columns], ids=lambda program: program.__name__)
def test_a_program_is_lowered_as_before(program: Callable[[StreamExecutionEnvironment], Any]) -> None:
    graph = graph_of(program)
    assert f"{written(graph)}\n{explain(graph)}" == (GOLDEN / f"{program.__name__}.txt").read_text()
