"""Where rows of a query go that are for the program itself: its own hands, or a DataStream of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.graph.nodes import Edge, Write
from millstream.graph.site import here
from millstream.planner.endpoints import RowTarget
from millstream.records.table_type import TableRowType
from millstream.table.results.row_source import ColumnCollectSink

if TYPE_CHECKING:
    from millstream.graph.builder import GraphBuilder

__all__ = ["CollectTarget", "StreamTarget"]

_ALL_CHANGES = ("+I", "-U", "+U", "-D")


class CollectTarget(RowTarget):
    """The program collects the rows."""

    changes = _ALL_CHANGES

    def __init__(self, type_info: TableRowType) -> None:
        self.sink = ColumnCollectSink(type_info)

    def write(self, builder: GraphBuilder, edges: tuple[Edge, ...]) -> None:
        builder.add(Write(self.sink), "Sink: Collect table sink", inputs=edges, site=here())

    def describe(self) -> str:
        return "collect"


class StreamTarget(RowTarget):
    """The rows become a DataStream; `edges` are where it begins, once the plan was lowered."""

    def __init__(self, changes: tuple[str, ...] = ("+I",)) -> None:
        self.changes = changes
        self.edges: tuple[Edge, ...] = ()

    def write(self, builder: GraphBuilder, edges: tuple[Edge, ...]) -> None:
        self.edges = edges

    def describe(self) -> str:
        return "DataStream"
