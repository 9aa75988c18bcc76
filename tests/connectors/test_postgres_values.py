"""Values of every type on a real PostgreSQL: columnar COPY and a statement per row write the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pytest
from database_rows import url_of
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.postgres import PostgresServer

from millstream.common import Instant, Row, Types
from millstream.connectors.databases.dialect import RowBatch, TableName
from millstream.connectors.databases.postgres_dialect import PostgresDialect
from millstream.records.columns import to_record_batch

TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
WORD = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])

# Name, our type, PostgreSQL's, and values.
COLUMNS: list[tuple[str, Any, str, st.SearchStrategy[Any]]] = [
    ("text", Types.STRING(), "text", TEXTS),
    ("small", Types.SHORT(), "smallint", st.integers(-(2**15), 2**15 - 1)),
    ("whole", Types.INT(), "integer", st.integers(-(2**31), 2**31 - 1)),
    ("long", Types.LONG(), "bigint", st.integers(-(2**63), 2**63 - 1)),
    ("huge", Types.BIG_INT(), "numeric", st.integers(-(10**40), 10**40)),
    ("single", Types.FLOAT(), "real", st.floats(width=32)),
    ("double", Types.DOUBLE(), "double precision", st.floats()),
    ("truth", Types.BOOLEAN(), "boolean", st.booleans()),
    ("money", Types.DECIMAL(20, 4), "numeric(20, 4)", st.decimals(-(10**12), 10**12, places=4)),
    (
        "any",
        Types.BIG_DEC(),
        "numeric",
        st.decimals(allow_infinity=False, allow_nan=False, places=9, min_value=-(10**20), max_value=10**20),
    ),
    ("day", Types.SQL_DATE(), "date", st.dates(dt.date(1, 1, 2))),
    ("time", Types.SQL_TIME(), "time", st.times()),
    ("stamp", Types.SQL_TIMESTAMP(), "timestamp", MOMENTS),
    (
        "instant",
        Types.INSTANT(),
        "timestamptz",
        st.builds(Instant, st.integers(-(10**10), 10**10), st.integers(0, 999_999).map(lambda us: us * 1000)),
    ),
    ("bytes", Types.PRIMITIVE_ARRAY(Types.BYTE()), "bytea", st.binary(max_size=8)),
    ("list", Types.LIST(Types.STRING()), "text[]", st.lists(st.one_of(st.none(), TEXTS), max_size=3)),
    ("numbers", Types.LIST(Types.LONG()), "bigint[]", st.lists(st.integers(-(2**40), 2**40), max_size=3)),
    ("row", WORD, "jsonb", st.builds(lambda word, n: Row(word=word, n=n), TEXTS, st.integers(0, 99))),
    ("map", Types.MAP(Types.STRING(), Types.DOUBLE()), "json", st.dictionaries(TEXTS, st.floats(-1, 1), max_size=2)),
]
NAMES = [name for name, _, _, _ in COLUMNS]
ROW = Types.ROW_NAMED(NAMES, [type_ for _, type_, _, _ in COLUMNS])
ROWS = st.lists(st.tuples(*(st.one_of(st.none(), values) for _, _, _, values in COLUMNS)), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def connection(_postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url_of(_postgres)) as connection:
        columns = ", ".join(f'"{name}" {declared}' for name, _, declared, _ in COLUMNS)
        for table in ("copied", "executed"):
            connection.execute(f"create temp table {table} ({columns})")  # type: ignore[call-overload]
        connection.execute("set TimeZone = 'UTC'")
        yield connection


def plain(name: str, value: Any) -> Any:
    """The value that psycopg reads for a written value."""
    if isinstance(value, Instant):
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            seconds=value.seconds, microseconds=value.nanos // 1000
        )
    if isinstance(value, Row):
        return value.as_dict()
    return Decimal(value) if name == "huge" and value is not None else value


@settings(max_examples=25)
@given(ROWS)
def test_copy_and_statements_write_the_same_rows(
    connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]
) -> None:
    dialect = PostgresDialect()
    batch = RowBatch(to_record_batch([Row(*row) for row in rows], ROW), ROW)
    connection.execute("delete from copied")
    connection.execute("delete from executed")
    dialect.append(connection, TableName(("copied",)), NAMES, iter([batch]))
    marks = ", ".join(["?"] * len(NAMES))
    dialect.execute(connection, f"INSERT INTO executed VALUES ({marks})", iter([batch]), 2)
    copied = connection.execute("select * from copied").fetchall()
    assert repr(copied) == repr(connection.execute("select * from executed").fetchall())
    sent = [tuple(plain(name, value) for name, value in zip(NAMES, row, strict=True)) for row in rows]
    for found, expected in zip(copied, sent, strict=True):
        for name, left, right in zip(NAMES, found, expected, strict=True):
            if name == "single" and left is not None:  # the client parses the shortest text of 32 bits as 64 bits
                left = float(np.float32(left))
            assert left == right or (left != left and right != right), name
    connection.commit()
