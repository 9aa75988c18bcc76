"""Writes syntax as text: `written(node)` is a statement, query, expression or type that can be parsed again.

Parsing the written text returns an equal node; a test checks that for statements of every kind. Names are put in
backticks if necessary, parentheses are written where precedence needs them. Used for SHOW CREATE, views and plans.
"""

from __future__ import annotations

from millstream.sql import writing_calls, writing_commands, writing_queries, writing_statements
from millstream.sql.writing_expressions import name_text, text_literal, written

__all__ = ["name_text", "text_literal", "written"]

# These modules add their nodes to `written` when they are imported.
_ = (writing_calls, writing_commands, writing_queries, writing_statements)
