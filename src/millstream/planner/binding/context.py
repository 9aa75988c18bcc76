"""The context in which a query is bound: the session, the visible WITH tables, and the views being expanded."""

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
    """A query's context. A WITH table hides a catalog table of the same name. `outer`: the enclosing query's scope,
    for a subquery in an expression. `hints`: those of the SELECT."""

    session: PlannerSession
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    views: tuple[ObjectPath, ...] = ()
    outer: Scope | None = None
    hints: tuple[Hint, ...] = ()

    def with_cte(self, name: str, relation: Relation) -> QueryContext:
        """A copy with one more WITH table."""
        return replace(self, ctes={**self.ctes, name: relation})

    def inside_view(self, path: ObjectPath, home: tuple[str, str]) -> QueryContext:
        """The context of a view's own query, in which WITH tables of the referring query are not visible."""
        return QueryContext(self.session.at(*home), {}, (*self.views, path))
