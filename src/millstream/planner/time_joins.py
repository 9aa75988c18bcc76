"""Joins that go by time, as relations. What they give is never taken back, and times stay times in it.

Neither names columns of its own: an interval and a window are read from the condition (`traits.intervals`), so that
passes that move columns need to know nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.planner.relations import Join, Relation

__all__ = ["IntervalJoin", "Stamp", "TemporalJoin", "WindowJoin"]


@dataclass(frozen=True)
class IntervalJoin(Join):
    """A join of two tables that only grow, whose condition bounds how far apart the times of two rows may lie."""


@dataclass(frozen=True)
class WindowJoin(Join):
    """A join of rows that are in windows, whose condition says that both are in the same one."""


@dataclass(frozen=True)
class TemporalJoin(Join):
    """Every left row with the version of the right table that was there at its time. The condition says what is equal
    to the right table's key, and that the version's time is at most the left one's; of such the last is meant, so that
    no filter on the right table may go below the join."""


@dataclass(frozen=True)
class Stamp(Relation):
    """The input, with column `column` as the time of its rows: one of several time attributes that a join kept."""

    input: Relation
    column: int
