"""What is asked of rows that change, where a table begins and where it ends, as operations of the graph.

Column 0 of the input is the key, the others are `row_type`. Operations are frozen data; `runtime.tables` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.expressions.nested_types import RowType
from millstream.graph.nodes import Operation

__all__ = ["LatestRows", "MaterialiseRows", "NormaliseRows"]


@dataclass(frozen=True)
class NormaliseRows(Operation):
    """The last row of each key, in full: -U as it was, +U as it is. `rowtime` is the column of event time. `ttl_ms`:
    how long a row is kept that nobody touches."""

    row_type: RowType
    rowtime: int | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True)
class MaterialiseRows(Operation):
    """For each key of a sink one change in an epoch: its row, or its deletion. `is_stored`: several rows of the query
    may have one key, and are kept; the one that came last stands for all."""

    row_type: RowType
    is_stored: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True)
class LatestRows(Operation):
    """Rows without those that say what was before an update: a sink puts the row after it in their place."""
