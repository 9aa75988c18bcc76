"""Time-bounded joins of tables, as operations of the graph: their results are never retracted.

Both inputs are append-only. Event time or processing time determines when no further row can match. The row then
expires, and is emitted if it is unmatched and the join emits unmatched rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.nodes import Operation
from millstream.graph.table_nodes import TableJoin

__all__ = ["IntervalPairs", "StampRows", "TemporalPairs", "WindowPairs"]


@dataclass(frozen=True)
class IntervalPairs(TableJoin):
    """Pairs of rows whose time difference, right minus left, is between `lower_ms` and `upper_ms`.

    `times` are the columns of the rows' times; None means processing time at arrival. A result has the timestamp of its
    left row, or of the right row if unmatched; with RIGHT always that of the right row."""

    times: tuple[int, int] | None = None
    lower_ms: int = 0
    upper_ms: int = 0


@dataclass(frozen=True)
class WindowPairs(TableJoin):
    """Pairs of rows in the same window, emitted when it ends. Rows have the times of their windows."""


@dataclass(frozen=True)
class TemporalPairs(TableJoin):
    """Pairs every left row with the right row that was valid at its time. `times` are the columns of the rows' times: a
    right row is valid for its key from its own time until the next one arrives or it is deleted."""

    times: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class StampRows(Operation):
    """Replaces the rows' timestamps by one of their columns."""

    column: int
