"""Relations whose first columns are those of their input, row by row: what is known of a column below holds above.

Joins are not among them, and neither is what only one stage of planning has: whoever asks adds it.
"""

from __future__ import annotations

from millstream.planner.changing_relations import LookupJoin, Normalise
from millstream.planner.relations import (
    Correlate,
    Filter,
    Limit,
    Over,
    Rank,
    Sort,
    Unnest,
    WindowAssign,
)

__all__ = ["SAME_COLUMNS"]

SAME_COLUMNS = (Filter, Limit, Sort, Rank, Over, Unnest, Correlate, WindowAssign, LookupJoin, Normalise)
