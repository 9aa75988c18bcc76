"""Folds records in batches into fixed windows that store a single value.

Until it ends, a window of this kind only adds each record to its value. A record's windows are computed arithmetically,
and the trigger need not be called. Windows over two streams store their records, and are left unchanged.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.graph.nodes import Graph, Node, Window
from millstream.graph.window_traits import FixedTimeAssigner, fires_at_its_end, fixed_windows, passes_through
from millstream.plan.operations import FoldedWindow

__all__ = ["fold_windows"]


def fold_windows(graph: Graph) -> Graph:
    """Turns every eligible window into a FoldedWindow."""
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
