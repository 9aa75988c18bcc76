"""Whether OVER goes by time: its rows are ordered by one time attribute, the earliest first.

Of a table that only grows such rows are given once, when their time has come. All other orders need every row of a
partition, and a row that comes changes what others have.
"""

from __future__ import annotations

from millstream.planner.relations import Over, TimeKind

__all__ = ["time_order"]


def time_order(over: Over) -> TimeKind | None:
    """The kind of time that rows are ordered by; None for any other order."""
    if len(over.order) != 1 or over.order[0].descending:
        return None
    return over.input.schema.fields[over.order[0].column].time
