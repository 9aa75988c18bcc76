"""Rejects loops that are never closed, or closed with a stream that is not derived from the loop."""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.graph.nodes import Graph, LoopHead, LoopTail, Node

__all__ = ["check_loops"]


def check_loops(graph: Graph) -> Graph:
    """Returns the graph unchanged, or raises ProgramError at the line where a loop starts or is closed."""
    tails = {node.operation.loop: node for node in graph.nodes if isinstance(node.operation, LoopTail)}
    for head in graph.nodes:
        if not isinstance(head.operation, LoopHead):
            continue
        tail = tails.get(head.operation.loop)
        if tail is None:
            raise ProgramError(
                f"the loop '{head.name}' is never closed: no record would be fed back. Call close_with(feedback) on "
                "the result of iterate(), or leave iterate() out",
                at=str(head.site),
            )
        if head.id not in _upstream(graph, tail):
            raise ProgramError(
                f"the loop '{head.name}' ({head.site}) is closed with a stream that does not descend from it. Pass "
                "close_with() a stream derived from the result of iterate()",
                at=str(tail.site),
            )
    return graph


def _upstream(graph: Graph, node: Node) -> set[int]:
    """The nodes upstream of `node`."""
    by_id = {each.id: each for each in graph.nodes}
    reached: set[int] = set()
    pending = [edge.source for edge in node.inputs]
    while pending:
        id = pending.pop()
        if id not in reached:
            reached.add(id)
            pending.extend(edge.source for edge in by_id[id].inputs)
    return reached
