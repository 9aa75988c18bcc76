"""The compiler's passes, in order, from the user's program to the executable plan.

Each is a pure function from graph to graph in a file of the same name; `cut_stages` then makes the plan. First, cached
streams become sources or get sinks, and the program is checked as written. Then it is *lowered*: physical operations
(`plan.operations`) replace logical ones where they are faster. Later passes see the operations that will run.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.compiler.passes.assign_uids import assign_uids
from millstream.compiler.passes.check_event_time import check_event_time
from millstream.compiler.passes.check_functions import check_functions
from millstream.compiler.passes.check_loops import check_loops
from millstream.compiler.passes.check_program import check_program
from millstream.compiler.passes.cut_stages import cut_stages
from millstream.compiler.passes.fill_caches import fill_caches
from millstream.compiler.passes.fold_windows import fold_windows
from millstream.compiler.passes.join_in_columns import join_in_columns
from millstream.compiler.passes.link_loops import link_loops
from millstream.compiler.passes.name_sinks import name_sinks
from millstream.compiler.passes.refuse_overflow import refuse_overflow
from millstream.compiler.passes.resolve_parallelism import resolve_parallelism
from millstream.compiler.passes.resolve_partitioning import resolve_partitioning
from millstream.compiler.passes.roll_in_columns import roll_in_columns
from millstream.compiler.passes.split_table_aggregates import split_table_aggregates
from millstream.compiler.passes.split_windows import split_windows
from millstream.graph.nodes import Graph
from millstream.plan.stages import Plan

__all__ = ["PASSES", "compile_graph"]

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fill_caches,
    check_program,
    check_loops,
    refuse_overflow,
    roll_in_columns,
    split_windows,
    split_table_aggregates,
    fold_windows,
    join_in_columns,
    check_event_time,
    check_functions,
    resolve_parallelism,
    assign_uids,
    name_sinks,
    link_loops,
    resolve_partitioning,
)


def compile_graph(graph: Graph) -> Plan:
    """Runs every pass, then cuts the graph into stages."""
    for step in PASSES:
        graph = step(graph)
    return cut_stages(graph)
