"""Joins of tables that go by time, as operations of the graph: what they give is never taken back.

Rows of both tables are only ever added. When a row can have no more partners is known from event time, or from the
clock; then it goes, and where rows without a partner are told, it is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.nodes import Operation
from millstream.graph.table_nodes import TableJoin

__all__ = ["IntervalPairs", "StampRows", "TemporalPairs", "WindowPairs"]


@dataclass(frozen=True)
class IntervalPairs(TableJoin):
    """Pairs of rows whose times lie no further apart than this: right minus left is `lower_ms` to `upper_ms`.

    `times` are the columns of the rows' times; None: the time of the clock when they come. Results have the time of
    their left row, or of the right one where there is none; with RIGHT it is the right one's."""

    times: tuple[int, int] | None = None
    lower_ms: int = 0
    upper_ms: int = 0


@dataclass(frozen=True)
class WindowPairs(TableJoin):
    """Pairs of rows that are in one window, given when it is over. The times of rows are those of their windows."""


@dataclass(frozen=True)
class TemporalPairs(TableJoin):
    """Every left row with the right row that was there at its time. `times` are the columns of the rows' times: from
    its own time on a right row is the one of its key, until the next one comes or it is taken away."""

    times: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class StampRows(Operation):
    """The same rows, with a column of theirs as their time."""

    column: int
