"""The meaning of syntax: names found, types checked, casts put between; the result is relations and row expressions.

The doors of `planner.binding`: whoever has syntax (of SQL text, or of the Table API's calls) comes in here.
"""

from __future__ import annotations

from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.queries import bind_query
from millstream.planner.binding.scope import Scope

__all__ = ["Scope", "bind_expression", "bind_query"]
