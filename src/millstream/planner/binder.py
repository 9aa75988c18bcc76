"""Binds syntax: resolves names, checks types and inserts casts. The result is relations and row expressions.

The public entry point of `planner.binding`, for SQL text and Table API calls.
"""

from __future__ import annotations

from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.queries import bind_query
from millstream.planner.binding.scope import Scope

__all__ = ["Scope", "bind_expression", "bind_query"]
