"""A test program before and after a change: an added operator, or widened types.

The change is applied to the graph that the program built, so every program can be changed, at any of its edges.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from programs import connected as connected_programs
from programs import interval_joins as join_programs
from programs import loops as loop_programs
from programs import stateful as stateful_programs
from programs import window_joins as window_join_programs
from programs import windows as window_programs
from programs.plain import NUMBERS, Program

from millstream.common import Configuration, RestartStrategies, Types
from millstream.common.typeinfo import TupleTypeInfo, TypeInformation
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.state import MapStateDescriptor
from millstream.graph.nodes import Edge, Graph, LoopHead, LoopTail, Map, Node
from millstream.jobs.settings.job_settings import JobSettings
from millstream.testing import Collect, Script

__all__ = ["Version", "narrow_states"]

_MODULES = (
    stateful_programs,
    window_programs,
    connected_programs,
    join_programs,
    loop_programs,
    window_join_programs,
)
_OF_VALUES = ("ValueStateDescriptor", "ListStateDescriptor")
_OF_FUNCTIONS = ("ReducingStateDescriptor", "AggregatingStateDescriptor")


@dataclass(frozen=True)
class Version:
    """One version of a program. `uids`: assign one to every operator. `inserted`: a seed for the place of an added
    operator. `source_type`: that of the numbers read.
    """

    program: Program
    uids: bool = False
    inserted: int | None = None
    source_type: TypeInformation = Types.LONG()  # noqa: RUF009 - types are values

    def built(self, out: Collect, parallelism: int, path: str | None = None) -> tuple[Graph, JobSettings]:
        """The graph and settings of a job, which starts from the snapshot at `path`, if any."""
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        settings = Configuration().set_integer("millstream.epoch.max-records", 9)
        if path is not None:
            settings.set_string("execution.state-recovery.path", path)
        env.configure(settings)
        env.set_restart_strategy(RestartStrategies.no_restart())
        splits = [NUMBERS[split::3] for split in range(3)]
        self.program.add(env, out, Script(*splits, type_info=self.source_type))
        graph = env._graph("changed")
        if self.uids:
            graph = replace(graph, nodes=tuple(replace(node, uid=f"operator-{node.id}") for node in graph.nodes))
        if self.inserted is not None:
            graph = _with_one_more(graph, random.Random(self.inserted))
        return graph, env._job_settings()


def _with_one_more(graph: Graph, rng: random.Random) -> Graph:
    """The graph with an identity operator on one of its edges."""
    consumer, at = rng.choice([(node, at) for node in graph.nodes for at in range(len(node.inputs)) if _is_open(node)])
    edge = consumer.inputs[at]
    before = graph.node(edge.source)
    id = len(graph.nodes) + 1
    more = Node(
        id,
        Map(lambda value: value),
        "put in",
        inputs=(Edge(before.id, tag=edge.tag),),
        output_type=before.output_type if edge.tag is None else None,
        uid="put-in",
        parallelism=before.parallelism,
    )
    inputs = (*consumer.inputs[:at], replace(edge, source=id, tag=None), *consumer.inputs[at + 1 :])
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += [more, replace(node, inputs=inputs)] if node is consumer else [node]
    number = {node.id: place for place, node in enumerate(nodes, start=1)}
    renumbered = (
        replace(
            node,
            id=number[node.id],
            inputs=tuple(replace(edge, source=number[edge.source]) for edge in node.inputs),
        )
        for node in nodes
    )
    return replace(graph, nodes=tuple(renumbered))


def _is_open(node: Node) -> bool:
    """Whether a program could have inserted an operator upstream of it."""
    return not isinstance(node.operation, (LoopHead, LoopTail))


# --- types ------------------------------------------------------------------------------------------------------------


def _narrow(kind: Any) -> Any:
    if kind == Types.LONG():
        return Types.INT()
    if isinstance(kind, TupleTypeInfo):
        return Types.TUPLE([_narrow(part) for part in kind.get_field_types()])
    return kind


@contextmanager
def narrow_states() -> Iterator[None]:
    """While this is open, the states of all programs are declared with int32 instead of int64.

    Map keys retain their type: they cannot be widened, because they hash differently.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            for name in {*_OF_VALUES, *_OF_FUNCTIONS, "MapStateDescriptor"} & set(vars(module)):
                patch.setattr(module, name, _narrowing(getattr(module, name)))
        patch.setattr(connected_programs, "LARGEST", MapStateDescriptor("largest", Types.STRING(), Types.INT()))
        yield


def _narrowing(descriptor: Callable[..., Any]) -> Callable[..., Any]:
    """The last argument is the value type."""
    return lambda *arguments: descriptor(*arguments[:-1], _narrow(arguments[-1]))
