"""The end of a query that stores its result in queryable state: INSERT INTO a table with `'connector' = 'state'`, or a
materialised table.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.connectors.archives.archive import Archive
from millstream.expressions.nested_types import RowType
from millstream.graph.nodes import Operation

__all__ = ["KeptTable"]


@dataclass(frozen=True)
class KeptTable(Operation):
    """The rows of a table after each epoch. Column 0 of the input is the key, the others are `row_type`.

    `primary_key`: the columns of the key; a later row with the same key replaces the previous row. Without a primary
    key, the key is the whole row, and the state is its count. `ttl_ms`: rows expire after this time without access.
    `archive`: the target for old rows; the output then consists of staged archive files, which a sink publishes.
    """

    row_type: RowType
    primary_key: tuple[str, ...] = ()
    ttl_ms: int | None = None
    archive: Archive | None = None
