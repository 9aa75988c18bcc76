"""The first rows of windows as a relation: Flink's window Top-N and window deduplication.

A window's result is never retracted: it is emitted once, at the window's end, and its rows then expire.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.planner.relations import Rank, TimeKind

__all__ = ["WindowRank"]


@dataclass(frozen=True)
class WindowRank(Rank):
    """Ranks rows of an append-only table within their windows; the partition contains the window's start and end.
    `bounds_at`: their positions in `partition`; `time_kind`: event or processing time. `latest_first`: of rows with
    equal times, the last to arrive ranks first."""

    bounds_at: tuple[int, int] = (0, 0)
    time_kind: TimeKind = TimeKind.ROWTIME
    latest_first: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """The columns of the window's start and end."""
        start, end = self.bounds_at
        return self.partition[start], self.partition[end]
