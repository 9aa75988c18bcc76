"""Text in, syntax out: the doors of this package.

Each function reads the whole text or raises an SqlError that draws the place; none gives half a result.
"""

from __future__ import annotations

from millstream.sql.query_syntax import Query
from millstream.sql.statements import Statement
from millstream.sql.syntax import Expression, TypeName

__all__ = ["parse_expression", "parse_query", "parse_statement", "parse_statements", "parse_type"]


def parse_statements(text: str) -> tuple[Statement, ...]:
    """The statements of a script, separated by semicolons. Spans are places in the whole script."""
    raise NotImplementedError


def parse_statement(text: str) -> Statement:
    """One statement, with or without a semicolon at its end."""
    raise NotImplementedError


def parse_query(text: str) -> Query:
    """A query alone, as `sql_query` takes it."""
    raise NotImplementedError


def parse_expression(text: str) -> Expression:
    """An expression alone: `price * 0.908`."""
    raise NotImplementedError


def parse_type(text: str) -> TypeName:
    """A data type alone: `ROW<name STRING, tags ARRAY<STRING>> NOT NULL`."""
    raise NotImplementedError
