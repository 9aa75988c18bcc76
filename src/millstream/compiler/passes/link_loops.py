"""Tell the head of every loop the uid of its tail: under that uid it finds the records that came back."""

from __future__ import annotations

from dataclasses import replace

from millstream.graph.nodes import Graph, LoopHead, LoopTail, Node

__all__ = ["link_loops"]


def link_loops(graph: Graph) -> Graph:
    """Every LoopHead leaves this pass with its `tail`."""
    tails = {node.operation.loop: node.uid for node in graph.nodes if isinstance(node.operation, LoopTail)}

    def linked(node: Node) -> Node:
        if not isinstance(node.operation, LoopHead):
            return node
        return replace(node, operation=replace(node.operation, tail=tails[node.operation.loop]))

    return replace(graph, nodes=tuple(map(linked, graph.nodes)))
