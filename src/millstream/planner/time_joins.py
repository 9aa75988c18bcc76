"""Joins bounded by time, as relations. They never retract a result, and their time attributes remain time attributes.

They store no column positions: `traits.intervals` reads the interval or the window from the condition, so passes that
move columns need no special case.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.planner.relations import Join, Relation

__all__ = ["IntervalJoin", "Stamp", "TemporalJoin", "WindowJoin"]


@dataclass(frozen=True)
class IntervalJoin(Join):
    """A join of two append-only tables whose condition bounds the distance between two rows' times."""


@dataclass(frozen=True)
class WindowJoin(Join):
    """A join of rows in windows whose condition equates their windows."""


@dataclass(frozen=True)
class TemporalJoin(Join):
    """Joins every left row with the version of the right table that was valid at its time. The condition equates the
    right table's key and requires a version time of at most the left row's; the last such version matches, so no
    filter on the right table may be pushed below the join."""


@dataclass(frozen=True)
class Stamp(Relation):
    """The input with `column` as its rowtime: one of several time attributes retained by a join."""

    input: Relation
    column: int
