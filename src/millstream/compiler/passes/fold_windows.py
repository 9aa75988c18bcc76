"""Fold records into windows together, where windows stand fixed in time and keep one value each.

Such a window does the same for every record, to add it to its value, and nothing else before it ends. So which windows
a record is in is arithmetic, and the trigger need not be asked. Windows of two streams keep their records, and are left
alone.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.graph.nodes import Graph, Node, Window
from millstream.graph.window_traits import FixedTimeAssigner, fires_at_its_end, fixed_windows, passes_through
from millstream.plan.operations import FoldedWindow

__all__ = ["fold_windows"]


def fold_windows(graph: Graph) -> Graph:
    """Every window that can be is a FoldedWindow."""
    return replace(graph, nodes=tuple(map(_folded, graph.nodes)))


def _folded(node: Node) -> Node:
    operation = node.operation
    if type(operation) is not Window or operation.evictor is not None:
        return node
    if operation.reduce is None and operation.aggregate is None:
        return node
    panes = fixed_windows(operation.assigner, operation.allowed_lateness_ms)
    if panes is None or not fires_at_its_end(operation.assigner, operation.trigger):
        return node
    assert isinstance(operation.assigner, FixedTimeAssigner)
    folded = FoldedWindow(
        **vars(operation),
        panes=panes,
        window_type=operation.assigner.window_type,
        passes_through=passes_through(operation.function),
    )
    return replace(node, operation=folded)
