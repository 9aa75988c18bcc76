"""What a query is bound in: the session, the WITH tables that can be seen, and the views that are being expanded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millstream.planner.binding.scope import Scope
from millstream.planner.entries import ObjectPath
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql.query_syntax import Hint

__all__ = ["QueryContext"]


@dataclass(frozen=True)
class QueryContext:
    """Where a query stands. A WITH table hides a table of the catalog with the same name. `outer`: what can be seen of
    the query around it, where it stands in an expression. `hints`: those of the SELECT."""

    session: PlannerSession
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    views: tuple[ObjectPath, ...] = ()
    outer: Scope | None = None
    hints: tuple[Hint, ...] = ()

    def with_cte(self, name: str, relation: Relation) -> QueryContext:
        """The same, with one more WITH table."""
        return replace(self, ctes={**self.ctes, name: relation})

    def inside_view(self, path: ObjectPath, home: tuple[str, str]) -> QueryContext:
        """The context of a view's own query: it sees no WITH tables of who reads it."""
        return QueryContext(self.session.at(*home), {}, (*self.views, path))
