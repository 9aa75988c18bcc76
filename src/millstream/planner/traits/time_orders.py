"""Whether OVER and ROW_NUMBER order rows by one ascending time attribute.

Over an append-only table such rows are emitted once, when their time is reached. Any other order requires all rows of
the partition, and an inserted row changes the results of other rows.
"""

from __future__ import annotations

from millstream.planner.relations import Over, Rank, TimeKind

__all__ = ["is_first_to_come", "time_order"]


def time_order(over: Over) -> TimeKind | None:
    """The kind of the ascending time attribute that orders the rows; None for any other order."""
    if len(over.order) != 1 or over.order[0].descending:
        return None
    return over.input.schema.fields[over.order[0].column].time


def is_first_to_come(rank: Rank) -> bool:
    """Whether each partition retains its first row by processing time, which no later row replaces."""
    if (rank.kind, rank.first, rank.last) != ("ROW_NUMBER", 1, 1) or not rank.order:
        return False
    first = rank.order[0]
    return rank.input.schema.fields[first.column].time is TimeKind.PROCTIME and not first.descending
