"""Chooses the partitioning of edges that the user did not specify.

With equal parallelism records stay in their task; otherwise they are rebalanced. An explicit `forward()` between
different parallelisms is a contradiction and rejected, as in Flink.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import ProgramError
from millstream.graph.nodes import Edge, Graph, Node, Partitioning

__all__ = ["resolve_partitioning"]


def resolve_partitioning(graph: Graph) -> Graph:
    """Sets a partitioning other than UNSPECIFIED on every edge."""
    by_id = {node.id: node for node in graph.nodes}
    nodes = tuple(
        replace(node, inputs=tuple(_resolve(edge, by_id[edge.source], node) for edge in node.inputs))
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _resolve(edge: Edge, source: Node, target: Node) -> Edge:
    equal = source.parallelism == target.parallelism
    if edge.partitioning is Partitioning.UNSPECIFIED:
        return replace(edge, partitioning=Partitioning.FORWARD if equal else Partitioning.REBALANCE)
    if edge.partitioning is Partitioning.FORWARD and not equal:
        if edge.key_selector is not None:
            raise ProgramError(
                f"reinterpret_as_keyed_stream() from '{source.name}' (parallelism {source.parallelism}) to "
                f"'{target.name}' (parallelism {target.parallelism}): records stay in their subtask, which needs equal "
                f"parallelism. Call set_parallelism({source.parallelism}) on '{target.name}', or use key_by()",
                at=str(target.site),
            )
        raise ProgramError(
            f"forward() from '{source.name}' (parallelism {source.parallelism}) to '{target.name}' "
            f"(parallelism {target.parallelism}): forward needs equal parallelism. Use rebalance(), or make them equal",
            at=str(target.site),
        )
    return edge
