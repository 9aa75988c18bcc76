"""The passes that turn what the user wrote into what runs, in the order they run.

Each is a pure function from graph to graph in a file of its own name; `cut_stages` then makes the plan.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.compiler.passes.assign_uids import assign_uids
from millstream.compiler.passes.check_event_time import check_event_time
from millstream.compiler.passes.check_functions import check_functions
from millstream.compiler.passes.check_loops import check_loops
from millstream.compiler.passes.check_program import check_program
from millstream.compiler.passes.cut_stages import cut_stages
from millstream.compiler.passes.link_loops import link_loops
from millstream.compiler.passes.resolve_parallelism import resolve_parallelism
from millstream.compiler.passes.resolve_partitioning import resolve_partitioning
from millstream.graph.nodes import Graph
from millstream.plan.stages import Plan

__all__ = ["PASSES", "compile_graph"]

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    check_program,
    check_loops,
    check_event_time,
    check_functions,
    resolve_parallelism,
    assign_uids,
    link_loops,
    resolve_partitioning,
)


def compile_graph(graph: Graph) -> Plan:
    """Run every pass, then cut the graph into stages."""
    for step in PASSES:
        graph = step(graph)
    return cut_stages(graph)
