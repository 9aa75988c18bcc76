"""Where rows come from and go to besides tables with a connector: streams, sources and sinks of the program.

An origin stands in `TableEntry.origin`, or for the whole entry as a Scan's table; a target stands in a Sink. Whoever
runs the program makes them; lowering only reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.common.types import RowKind
from millstream.connectors.contracts import Sink, Source
from millstream.graph.nodes import Edge

__all__ = ["CollectTarget", "SourceOrigin", "StreamOrigin", "StreamTarget"]


@dataclass(frozen=True, eq=False)
class SourceOrigin:
    """Rows of a source, whose type is a `TableRowType` of the columns that are read: from_elements, from_pandas."""

    source: Source
    name: str = "Unregistered table"


@dataclass(frozen=True, eq=False)
class StreamOrigin:
    """Records of a DataStream, which is node `node` of the builder (by `input_tag` a side output of it), or of all its
    `edges`, where it has several. They become rows of the physical columns; a metadata column `rowtime` is their
    timestamp. `changes`: the kinds that its rows may have."""

    node: int
    name: str = "DataStream"
    input_tag: str | None = None
    edges: tuple[Edge, ...] = ()
    changes: frozenset[RowKind] = frozenset({RowKind.INSERT})


@dataclass(frozen=True, eq=False)
class CollectTarget:
    """Rows that the program reads itself: `sink` is a `CollectSink`, or one for tests."""

    sink: Sink
    name: str = "collect"
    kind: str = "collect"


@dataclass(frozen=True, eq=False)
class StreamTarget:
    """Rows that a DataStream goes on with. The node that gives them is what `lower` returns for the sink. `changes`:
    whether rows of all kinds are let through, as a changelog stream has them; with a `key`, as upserts by these
    columns: a row is not told again before it changes."""

    name: str = "DataStream"
    changes: bool = False
    key: tuple[str, ...] = ()
    kind: str = "stream"
    details: Any = None
