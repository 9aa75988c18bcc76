"""Relations whose first columns are those of their input, row by row: properties of a column below hold above.

Joins are not listed, nor relations that exist at one stage of planning only: callers add those.
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
