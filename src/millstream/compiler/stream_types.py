"""The types of streams in a graph, as passes need them."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation
from millstream.graph.nodes import Edge, Graph, Node, Process, Read
from millstream.records.batch import is_typed

__all__ = ["edge_type", "typed_input"]


def edge_type(graph: Graph, edge: Edge) -> TypeInformation | None:
    """The declared type of the records of an edge, which may be a side output; None where there is none."""
    source = graph.node(edge.source)
    if edge.tag is None:
        return source.output_type
    assert isinstance(source.operation, (Process, Read))
    return dict(source.operation.tags)[edge.tag]


def typed_input(graph: Graph, node: Node, number: int = 1) -> TypeInformation | None:
    """The type of the records that come into a node on this input; None where they are no columns. All edges of one
    input have one type."""
    type_info = edge_type(graph, next(edge for edge in node.inputs if edge.input == number))
    return type_info if is_typed(type_info) else None
