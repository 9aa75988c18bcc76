"""The types of streams in a graph, for passes."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation
from millstream.graph.nodes import Edge, Graph, Node, Process, Read
from millstream.records.batch import is_typed

__all__ = ["edge_type", "typed_input"]


def edge_type(graph: Graph, edge: Edge) -> TypeInformation | None:
    """The declared type of an edge's records, which may come from a side output; None if undeclared."""
    source = graph.node(edge.source)
    if edge.tag is None:
        return source.output_type
    assert isinstance(source.operation, (Process, Read))
    return dict(source.operation.tags)[edge.tag]


def typed_input(graph: Graph, node: Node, number: int = 1) -> TypeInformation | None:
    """The type of a node's input records on this input; None if they are not columnar. All edges of one input have the
    same type."""
    type_info = edge_type(graph, next(edge for edge in node.inputs if edge.input == number))
    return type_info if is_typed(type_info) else None
