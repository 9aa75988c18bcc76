"""The physical operator that the compiler substitutes for a stream's operator."""

from __future__ import annotations

from dataclasses import replace

from millstream.compiler.passes import fold_windows, join_in_columns, roll_in_columns, split_windows
from millstream.datastream import DataStream
from millstream.graph.nodes import Graph, Operation

__all__ = ["lowered_operation"]


def lowered_operation(stream: DataStream) -> Operation:
    """The physical operation of the operator that produced `stream`; the logical one if it runs itself."""
    own = stream._own_node("test")
    nodes = stream.get_execution_environment()._builder.nodes.values()
    graph = Graph("job", tuple(node for node in nodes if node.id <= own.id), 1, 128)
    # Its number may change, so that it is identified by a mark.
    graph = replace(graph, nodes=tuple(replace(n, description="it") if n is own else n for n in graph.nodes))
    for lower in (roll_in_columns, split_windows, fold_windows, join_in_columns):
        graph = lower(graph)
    return next(node.operation for node in graph.nodes if node.description == "it")
