"""Shared code of the database sink's tests: rows staged like a task stages them, and a sink that publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from inputs.fresh_names import fresh_name
from servers.postgres import PostgresServer

from millstream.common import Row, Types
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import CommitId, Json, WriterContext
from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.dialect import TableName
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.sink import DatabaseSink, StatementRows, TableRows
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore

__all__ = ["WORDS", "commit_id", "query", "staged", "statement_sink", "table_sink", "url_of", "words"]

WORDS = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])


def url_of(server: PostgresServer, port: int | None = None, user: str = "postgres") -> str:
    return f"postgresql://{user}@127.0.0.1:{port or server.port}/test"


def query(server: PostgresServer, sql: str) -> list[Any]:
    """The rows that an ordinary client reads."""
    with psycopg.connect(url_of(server), autocommit=True) as connection:
        cursor = connection.execute(sql)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []


def words(count: int, first: int = 0) -> list[Row]:
    return [Row(word=f"w{n % 7}", n=n) for n in range(first, first + count)]


def table_sink(url: str, table: str, key: Sequence[str] = (), patience_s: float = 30.0) -> DatabaseSink:
    rows = TableRows(TableName.parse(table), tuple(key))
    return DatabaseSink(parse_address(url), rows, patience=Patience(patience_s))


def staged(
    sink: DatabaseSink, store: MemoryStore, rows: Sequence[Any], type_info: TypeInformation | None = WORDS
) -> list[Json]:
    """The payloads that two tasks stage for these rows, in one epoch."""
    payloads: list[Json] = []
    half = (len(rows) + 1) // 2
    for subtask, part in enumerate((list(rows[:half]), list(rows[half:]))):
        context = WriterContext("out", 1, subtask, 2, fresh_name("attempt"), store, 0, type_info, "job")
        writer = sink.writer(context)
        writer.write(Batch.of_values(part, type_info))
        payloads.extend(writer.stage())
    return payloads


def commit_id(epoch: int, job: str) -> CommitId:
    return CommitId(job, "out", epoch)


def statement_sink(url: str, sql: str, type_info: TypeInformation) -> DatabaseSink:
    return DatabaseSink(parse_address(url), StatementRows(sql, type_info))
