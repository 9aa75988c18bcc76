"""Writes syntax as text: `written(node)` is a statement, query, expression or type that can be parsed again.

Parsing the written text returns an equal node; a test checks this for statements of every kind. Names are put in
backticks, and parentheses written, where necessary. Used for SHOW CREATE, views and plans.
"""

from __future__ import annotations

from millstream.sql import writing_calls, writing_commands, writing_queries, writing_statements
from millstream.sql.writing_expressions import name_text, text_literal, written

__all__ = ["name_text", "text_literal", "written"]

# Importing these modules registers their nodes with `written`.
_ = (writing_calls, writing_commands, writing_queries, writing_statements)
