"""Optional details of EXPLAIN."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["ExplainDetail"]


class ExplainDetail(Enum):
    """An optional detail of EXPLAIN."""

    ESTIMATED_COST = 0
    CHANGELOG_MODE = 1
    JSON_EXECUTION_PLAN = 2
    PLAN_ADVICE = 3


add_pyflink_names(globals())
