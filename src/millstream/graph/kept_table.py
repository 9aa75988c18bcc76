"""The end of a query that keeps its result in state, where it can be asked for: what INSERT INTO a table of
`'connector' = 'state'`, and a materialised table, come to in the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.connectors.archives.archive import Archive
from millstream.expressions.nested_types import RowType
from millstream.graph.nodes import Operation

__all__ = ["KeptTable"]


@dataclass(frozen=True)
class KeptTable(Operation):
    """The rows of a table as they are after each epoch. Column 0 of the input is the key, the others are `row_type`.

    `primary_key`: the columns that the key is made of; a later row of a key replaces the one before. Without, the key
    is the whole row, and what is kept is how often it is there. `ttl_ms`: how long a row is kept that nobody touches.
    `archive`: where rows go that are old; then the output is what was staged there, which a sink publishes.
    """

    row_type: RowType
    primary_key: tuple[str, ...] = ()
    ttl_ms: int | None = None
    archive: Archive | None = None
