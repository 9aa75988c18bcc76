"""stub"""

from __future__ import annotations

from millstream.expressions.row_expressions import RowExpression
from millstream.planner.binding.scope import Scope
from millstream.planner.session import PlannerSession
from millstream.sql.syntax import Expression

__all__ = ["bind_expression"]


def bind_expression(syntax: Expression, scope: Scope, session: PlannerSession) -> RowExpression:
    """What an expression means among the columns of a scope."""
    raise NotImplementedError
