"""Sets the tail's uid on the head of every loop: the head reads the fed-back records stored under that uid."""

from __future__ import annotations

from dataclasses import replace

from millstream.graph.nodes import Graph, LoopHead, LoopTail, Node

__all__ = ["link_loops"]


def link_loops(graph: Graph) -> Graph:
    """Sets the `tail` of every LoopHead."""
    tails = {node.operation.loop: node.uid for node in graph.nodes if isinstance(node.operation, LoopTail)}

    def linked(node: Node) -> Node:
        if not isinstance(node.operation, LoopHead):
            return node
        return replace(node, operation=replace(node.operation, tail=tails[node.operation.loop]))

    return replace(graph, nodes=tuple(map(linked, graph.nodes)))
