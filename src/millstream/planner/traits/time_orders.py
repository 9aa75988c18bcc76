"""Whether OVER and ROW_NUMBER go by time: rows are ordered by one time attribute, the earliest first.

Of a table that only grows such rows are given once, when their time has come. All other orders need every row of a
partition, and a row that comes changes what others have.
"""

from __future__ import annotations

from millstream.planner.relations import Over, Rank, TimeKind

__all__ = ["is_first_to_come", "time_order"]


def time_order(over: Over) -> TimeKind | None:
    """The kind of time that rows are ordered by; None for any other order."""
    if len(over.order) != 1 or over.order[0].descending:
        return None
    return over.input.schema.fields[over.order[0].column].time


def is_first_to_come(rank: Rank) -> bool:
    """Whether of each partition the row is wanted that comes first by the clock: no later row takes its place."""
    if (rank.kind, rank.first, rank.last) != ("ROW_NUMBER", 1, 1) or not rank.order:
        return False
    first = rank.order[0]
    return rank.input.schema.fields[first.column].time is TimeKind.PROCTIME and not first.descending
