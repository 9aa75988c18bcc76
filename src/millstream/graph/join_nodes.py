"""Time-bounded joins of tables, as operations of the graph: their results are never retracted.

Both inputs are append-only. Event time, or the clock, determines when a row can have no more matches; then it expires,
and is emitted if unmatched rows are part of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.nodes import Operation
from millstream.graph.table_nodes import TableJoin

__all__ = ["IntervalPairs", "StampRows", "TemporalPairs", "WindowPairs"]


@dataclass(frozen=True)
class IntervalPairs(TableJoin):
    """Pairs of rows whose time difference, right minus left, is between `lower_ms` and `upper_ms`.

    `times` are the columns of the rows' times; None: the clock at arrival. A result has the time of its left row, or of
    the right one if there is none; with RIGHT it is the right row's."""

    times: tuple[int, int] | None = None
    lower_ms: int = 0
    upper_ms: int = 0


@dataclass(frozen=True)
class WindowPairs(TableJoin):
    """Pairs of rows in one window, emitted when it ends. The times of rows are those of their windows."""


@dataclass(frozen=True)
class TemporalPairs(TableJoin):
    """Every left row with the right row that was valid at its time. `times` are the columns of the rows' times: a right
    row is valid for its key from its own time until the next one arrives or it is deleted."""

    times: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class StampRows(Operation):
    """The same rows, with one of their columns as their timestamps."""

    column: int
