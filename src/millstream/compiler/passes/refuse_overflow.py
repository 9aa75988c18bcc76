"""Makes built-in sums strict if the program requests it (`millstream.sum.overflow`): an overflow is then an error."""

from __future__ import annotations

from dataclasses import replace

from millstream.graph.nodes import Graph, Node, RollingField, Window

__all__ = ["refuse_overflow"]


def refuse_overflow(graph: Graph) -> Graph:
    """Makes all built-in aggregates of the graph strict, or none."""
    if not graph.refuses_overflow:
        return graph
    return replace(graph, nodes=tuple(map(_strict, graph.nodes)))


def _strict(node: Node) -> Node:
    operation = node.operation
    if isinstance(operation, RollingField):
        return replace(node, operation=replace(operation, is_strict=True))
    if isinstance(operation, Window) and operation.ready is not None:
        measures = tuple(replace(measure, is_strict=True) for measure in operation.ready.measures)
        ready, aggregate = replace(operation.ready, measures=measures), operation.aggregate.strict()
        return replace(node, operation=replace(operation, ready=ready, aggregate=aggregate))
    return node
