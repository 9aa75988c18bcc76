"""Text in, syntax out: the doors of this package.

Each function reads the whole text or raises an SqlError that draws the place; none gives half a result.
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
    """The statements of a script, separated by semicolons. Spans are places in the whole script.

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
    """A query alone, as `sql_query` takes it."""
    reader = StatementReader(text)
    return _whole(reader, reader.query)


def parse_expression(text: str) -> Expression:
    """An expression alone: `price * 0.908`."""
    reader = StatementReader(text)
    return _whole(reader, reader.expression)


def parse_type(text: str) -> TypeName:
    """A data type alone: `ROW<name STRING, tags ARRAY<STRING>> NOT NULL`."""
    reader = StatementReader(text)
    return _whole(reader, reader.type_name)


def _whole(reader: StatementReader, read: Callable[[], T]) -> T:
    """What the reader reads, which must be all there is."""

    def read_all() -> T:
        result = read()
        reader.finish()
        return result

    return _read(reader, read_all)


def _read(reader: StatementReader, read: Callable[[], T]) -> T:
    try:
        return read()
    except RecursionError:
        # Called from deep inside a program, Python's stack ends before our own measure does.
        raise reader.too_deep() from None
