"""Binds syntax: resolves names, checks types and inserts casts. The result is relations and row expressions.

This is the public entry to `planner.binding`, for SQL text and for calls of the Table API.
"""

from __future__ import annotations

from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.queries import bind_query
from millstream.planner.binding.scope import Scope

__all__ = ["Scope", "bind_expression", "bind_query"]
