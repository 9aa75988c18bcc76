"""Endpoints of plans other than connector tables: streams, sources and sinks of the program.

An origin is stored in `TableEntry.origin`, or replaces the entry as a Scan's table; a target is stored in a Sink. The
Table API creates them; lowering only reads them.
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
    """Rows of a source whose type is a `TableRowType` of the columns read: from_elements, from_pandas."""

    source: Source
    name: str = "Unregistered table"


@dataclass(frozen=True, eq=False)
class StreamOrigin:
    """Records of a DataStream: the output of node `node` of the builder (or its side output `input_tag`), or of all
    `edges` if there are several. They become rows of the physical columns; a metadata column `rowtime` is their
    timestamp. `changes`: the row kinds that may occur."""

    node: int
    name: str = "DataStream"
    input_tag: str | None = None
    edges: tuple[Edge, ...] = ()
    changes: frozenset[RowKind] = frozenset({RowKind.INSERT})


@dataclass(frozen=True, eq=False)
class CollectTarget:
    """Rows that the program reads: `sink` is a `CollectSink`, or a test sink."""

    sink: Sink
    name: str = "collect"
    kind: str = "collect"


@dataclass(frozen=True, eq=False)
class StreamTarget:
    """Rows that continue as a DataStream; `lower` returns their node for the sink. `changes`: whether all row kinds are
    allowed, as in a changelog stream. With a `key`, changes are upserts by these columns, and a row is emitted only
    when it changes."""

    name: str = "DataStream"
    changes: bool = False
    key: tuple[str, ...] = ()
    kind: str = "stream"
    details: Any = None
