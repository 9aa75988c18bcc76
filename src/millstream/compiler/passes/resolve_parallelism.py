"""Sets every node's parallelism: its own, or the environment's, within the maximum."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import ProgramError
from millstream.graph.nodes import Graph, Node, Read

__all__ = ["resolve_parallelism"]


def resolve_parallelism(graph: Graph) -> Graph:
    """Resolves all nodes. A source that always has one split runs with parallelism 1, like Flink's collection
    source."""
    return replace(graph, nodes=tuple(_resolve(node, graph) for node in graph.nodes))


def _resolve(node: Node, graph: Graph) -> Node:
    single = isinstance(node.operation, Read) and node.operation.source.single
    parallelism = 1 if single else node.parallelism or graph.parallelism
    maximum = node.max_parallelism or graph.max_parallelism
    if not 1 <= parallelism <= maximum:
        raise ProgramError(
            f"'{node.name}' has parallelism {parallelism}, which is not between 1 and its maximum {maximum}. "
            "Lower it with set_parallelism, or raise set_max_parallelism before the job first runs",
            at=str(node.site),
        )
    return replace(node, parallelism=parallelism, max_parallelism=maximum)
