"""Relations whose first columns are their input's, row by row: properties of an input column also hold in the result.

Joins, and relations that exist only at one stage of planning, are not listed: callers add them.
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
