"""The entry points of this package: text to syntax.

Each function parses the whole text, or raises an SqlError that shows the position; none returns a partial result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.sql.query_syntax import Query
from millstream.sql.statement_reader import StatementReader
from millstream.sql.statements import Statement
from millstream.sql.syntax import Expression, TypeName

__all__ = ["parse_expression", "parse_query", "parse_statement", "parse_statements", "parse_type"]

T = TypeVar("T")


def parse_statements(text: str) -> tuple[Statement, ...]:
    """The statements of a script, separated by semicolons. Spans are positions in the whole script.

    >>> [type(each).__name__ for each in parse_statements("CREATE VIEW v AS SELECT 1; -- done\\nSELECT * FROM v;")]
    ['CreateView', 'QueryStatement']
    """
    reader = StatementReader(text)
    return _read(reader, reader.script)


def parse_statement(text: str) -> Statement:
    """One statement, with or without a semicolon at its end."""
    reader = StatementReader(text)
    return _whole(reader, reader.statement)


def parse_query(text: str) -> Query:
    """A single query, as for `sql_query`."""
    reader = StatementReader(text)
    return _whole(reader, reader.query)


def parse_expression(text: str) -> Expression:
    """A single expression: `price * 0.908`."""
    reader = StatementReader(text)
    return _whole(reader, reader.expression)


def parse_type(text: str) -> TypeName:
    """A single data type: `ROW<name STRING, tags ARRAY<STRING>> NOT NULL`."""
    reader = StatementReader(text)
    return _whole(reader, reader.type_name)


def _whole(reader: StatementReader, read: Callable[[], T]) -> T:
    """The result of the reader, which must consume the whole text."""

    def read_all() -> T:
        result = read()
        reader.finish()
        return result

    return _read(reader, read_all)


def _read(reader: StatementReader, read: Callable[[], T]) -> T:
    try:
        return read()
    except RecursionError:
        # In a deep call stack, Python's recursion limit may be reached before ours.
        raise reader.too_deep() from None
