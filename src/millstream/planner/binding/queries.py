"""stub"""

from __future__ import annotations

from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql.query_syntax import Query

__all__ = ["bind_query"]


def bind_query(query: Query, session: PlannerSession) -> Relation:
    """What a query means."""
    raise NotImplementedError
