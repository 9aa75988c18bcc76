"""Rejects programs that cannot run, at the line of the mistake."""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.graph.nodes import Cache, Graph, LoopTail, Node, Read, Write
from millstream.graph.notices import warn_once

__all__ = ["check_program"]


def check_program(graph: Graph) -> Graph:
    """Returns the graph unchanged, or raises ProgramError.

    A program needs a source. A stream that ends in neither a sink nor a queryable state runs for the side effects of
    its functions, as in Flink; a warning reports it, because a missing sink is usually a mistake."""
    if not any(isinstance(node.operation, Read) for node in graph.nodes):
        raise ProgramError(
            f"job '{graph.job_name}' reads nothing: no source was added since the last execute. "
            "Start with env.from_collection(...), env.from_source(...) or env.from_spark(...)"
        )
    _check_queryable(graph)
    _warn_of_loose_ends(graph)
    return graph


def _warn_of_loose_ends(graph: Graph) -> None:
    """Warns about streams that end without a sink: their functions run, and their records are dropped."""
    read = {edge.source for node in graph.nodes for edge in node.inputs}
    for node in graph.nodes:
        is_end = isinstance(node.operation, (Write, LoopTail, Cache)) or node.queryable is not None
        if node.id not in read and not is_end:
            warn_once(
                f"end of {node.id}",
                f"the stream of '{node.name}' has no sink: it runs, and its records are dropped. End it with "
                "print() or sink_to(...), or leave it out",
                node.site,
            )


def _check_queryable(graph: Graph) -> None:
    """Rejects two operators with the same queryable name."""
    owners: dict[str, Node] = {}
    for node in graph.nodes:
        if node.queryable is None:
            continue
        other = owners.setdefault(node.queryable, node)
        if other is not node:
            raise ProgramError(
                f"'{node.queryable}' is the queryable name of both '{other.name}' ({other.site}) and '{node.name}'. "
                "A name refers to one state: change one of them",
                at=str(node.site),
            )
