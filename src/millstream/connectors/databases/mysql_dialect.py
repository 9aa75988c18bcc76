"""MySQL and MariaDB, through PyMySQL. Rows are transferred by multi-row statements.

Sessions are strict: a string that is too long, or a number out of range, is an error and never truncated. Tables must
use InnoDB, the engine with transactions. Only the database decides which keys are equal (a collation may treat
'A' as 'a'), so changes are not sorted by key here: runs of upserts and of deletes are executed in order.
Only an update's before and after rows with the same key are treated as one change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.dialect import Dialect, RowBatch, TableName, TableShape, Timeouts
from millstream.connectors.databases.mysql_texts import mysql_texts
from millstream.connectors.databases.sql_values import checked_fields, row_values
from millstream.connectors.databases.statements import with_percent_parameters
from millstream.connectors.databases.tls_modes import mysql_tls, tls_context
from millstream.connectors.databases.unique_indexes import UniqueIndex, check_upsert_key
from millstream.errors import PlatformError, ProgramError
from millstream.storage.certificates import certificate_refusal

__all__ = ["MysqlDialect"]

_ROWS_AT_ONCE = 5_000
_SETTINGS = (
    "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION innodb_lock_wait_timeout = 10",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
# Lost and refused connections, shutdown, lock time-outs and deadlocks.
_TRANSIENT = frozenset(
    {0, 1040, 1053, 1077, 1158, 1159, 1160, 1161, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 2014, 2055}
)


def pymysql() -> Any:
    """The client library."""
    try:
        import pymysql
    except ImportError as error:
        raise PlatformError(
            "MySQL needs the package pymysql, which is not installed: pip install 'millstream[mysql]'"
        ) from error
    return pymysql


@cache
def _connection_class(*, needs_tls: bool) -> Any:
    """PyMySQL's connection class; it falls back to an unencrypted connection, unless `needs_tls`.

    It checks the server's capabilities before the client sends user and password.
    """
    library = pymysql()
    if not needs_tls:
        return library.connections.Connection

    class EncryptedConnection(library.connections.Connection):  # type: ignore[misc, name-defined]
        def _request_authentication(self) -> None:
            if not self.server_capabilities & library.constants.CLIENT.SSL:
                raise library.err.OperationalError(
                    2026,
                    "the server has no TLS, but the address requires it. Enable it there, or set sslMode=DISABLED",
                )
            super()._request_authentication()

    return EncryptedConnection


class MysqlDialect(Dialect):
    """The sink's operations in MySQL."""

    other_index_advice = (
        "MySQL would overwrite that row. Drop the index, or make it non-unique (ALTER TABLE … DROP INDEX "
        "{}), or write by its columns as the key"
    )

    def connect(self, address: DatabaseAddress, timeouts: Timeouts) -> Any:
        host, port = address.hosts[0]
        subject = f"Database {address.shown}"
        tls, options = mysql_tls(dict(address.options), subject)
        context = tls_context(tls, subject)
        connection = _connection_class(needs_tls=context is not None)(
            host=host,
            port=port,
            user=address.user,
            password=address.password or "",
            database=address.database,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=max(2, int(timeouts.connect_s)),
            read_timeout=max(1, int(timeouts.transaction_s)),
            write_timeout=max(1, int(timeouts.transaction_s)),
            ssl=context,
            ssl_disabled=tls.mode == "disable",
            **options,
        )
        with connection.cursor() as cursor:
            for statement in _SETTINGS:
                cursor.execute(statement)
        return connection

    def refusal(self, error: BaseException) -> str | None:
        if (reason := certificate_refusal(error)) is not None:
            return reason
        errors = pymysql().err
        if isinstance(error, (OSError, errors.InterfaceError)):
            return None
        code = error.args[0] if error.args else None
        if isinstance(error, errors.Error) and code in _TRANSIENT:
            return None
        return str(error.args[1] if len(error.args) > 1 else error) or type(error).__name__

    def shape(self, connection: Any, table: TableName) -> TableShape | None:
        where, place = _place(table)
        engine = _rows(connection, f"SELECT engine FROM information_schema.tables WHERE {where}", place)
        if not engine:
            return None
        if engine[0][0] is None:
            raise ProgramError(f"Table {table} is a view. Use its base table")
        if engine[0][0].lower() != "innodb":
            raise ProgramError(
                f"Table {table} uses the engine {engine[0][0]}, which has no transactions. "
                f"Run: ALTER TABLE {_quoted(table)} ENGINE = InnoDB"
            )
        columns = _rows(
            connection,
            "SELECT column_name, column_type, is_nullable = 'NO' AND column_default IS NULL AND extra = '' "
            f"FROM information_schema.columns WHERE {where} ORDER BY ordinal_position",
            place,
        )
        return TableShape(
            {name: type_text for name, type_text, _ in columns},
            _unique_indexes(connection, where, place),
            frozenset(name for name, _, needed in columns if needed),
        )

    def make_commits_table(self, connection: Any, table: TableName) -> None:
        if self.shape(connection, table) is None:
            _execute(
                connection,
                f"CREATE TABLE IF NOT EXISTS {_quoted(table)} "
                "(committer varchar(512) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, epoch bigint NOT NULL, "
                "committed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB",
            )
        shape = self.shape(connection, table)
        if shape is None or not {"committer", "epoch", "committed_at"} <= shape.columns.keys():
            raise ProgramError(
                f"Table {table} has the columns {list(shape.columns) if shape else []}, but a table of commits has "
                "committer, epoch and committed_at. Set commits_table to another name"
            )
        connection.rollback()

    def lock_committer(self, connection: Any, table: TableName, committer: str) -> int:
        question = f"SELECT epoch FROM {_quoted(table)} WHERE committer = %s FOR UPDATE"
        rows = _rows(connection, question, (committer,))
        if not rows:
            _execute(connection, f"INSERT IGNORE INTO {_quoted(table)} (committer, epoch) VALUES (%s, 0)", (committer,))
            rows = _rows(connection, question, (committer,))
        return int(rows[0][0])

    def record_commit(self, connection: Any, table: TableName, committer: str, epoch: int) -> None:
        _execute(
            connection,
            f"UPDATE {_quoted(table)} SET epoch = %s, committed_at = CURRENT_TIMESTAMP WHERE committer = %s",
            (epoch, committer),
        )

    def append(self, connection: Any, table: TableName, names: Sequence[str], batches: Iterator[RowBatch]) -> None:
        statement = f"INSERT INTO {_quoted(table)} ({_list(names)}) VALUES ({_marks(names)})"
        self._execute_many(connection, statement, batches, _ROWS_AT_ONCE)

    def upsert(
        self, connection: Any, table: TableName, names: Sequence[str], key: Sequence[str], batches: Iterator[RowBatch]
    ) -> None:
        others = [name for name in names if name not in key] or [key[0]]
        updates = ", ".join(f"{_name(name)} = VALUES({_name(name)})" for name in others)
        put = (
            f"INSERT INTO {_quoted(table)} ({_list(names)}) VALUES ({_marks(names)}) ON DUPLICATE KEY UPDATE {updates}"
        )
        remove = f"DELETE FROM {_quoted(table)} WHERE ({_list(key)}) IN"
        places = [list(names).index(name) for name in key]
        for batch in batches:
            _, types = checked_fields(batch.type_info, "A table")
            rows = row_values(batch.columns, types, arrays=False)
            deletes = [False] * len(rows) if batch.deletes is None else batch.deletes.to_pylist()
            for deletes_rows, run in groupby(_changes(rows, deletes, places), key=lambda change: change[0]):
                _write_run(connection, put, remove, places, deletes_rows, [row for _, row in run])
        # An index may have been created since the start; none can be created between the first row and the commit.
        indexes = _unique_indexes(connection, *_place(table))
        check_upsert_key(indexes, key, f"Table {table}", self.other_index_advice)

    def execute(self, connection: Any, statement: str, batches: Iterator[RowBatch], batch_rows: int) -> None:
        sql, _ = with_percent_parameters(statement)
        self._execute_many(connection, sql, batches, batch_rows)

    def texts(
        self, connection: Any, query: str, parameters: Sequence[Any], types: Sequence[TypeInformation]
    ) -> list[pa.Array]:
        with connection.cursor() as cursor:
            connection.decoders = {}  # the server's own strings, which represent values exactly
            cursor.execute(query, parameters)
            rows, bits = cursor.fetchall(), pymysql().constants.FIELD_TYPE.BIT
            are_bits = [column[1] == bits for column in cursor.description]
        return [
            mysql_texts([row[at] for row in rows], type_info, is_bits=is_bits)
            for at, (type_info, is_bits) in enumerate(zip(types, are_bits, strict=True))
        ]

    def is_invalid_parameter(self, error: BaseException) -> bool:
        # Raised by the client for NaN and infinity: the server's errors have a number.
        return isinstance(error, pymysql().err.ProgrammingError) and "can not be used with MySQL" in str(error)

    def _execute_many(self, connection: Any, sql: str, batches: Iterator[RowBatch], batch_rows: int) -> None:
        with connection.cursor() as cursor:
            for batch in batches:
                _, types = checked_fields(batch.type_info, "A table")
                for at in range(0, batch.columns.num_rows, batch_rows):
                    cursor.executemany(sql, row_values(batch.columns.slice(at, batch_rows), types, arrays=False))


def _place(table: TableName) -> tuple[str, tuple[str | None, str]]:
    """The catalogue condition for a table, and its parameters."""
    schema = table.parts[0] if len(table.parts) == 2 else None
    return "table_schema = COALESCE(%s, DATABASE()) AND table_name = %s", (schema, table.parts[-1])


def _unique_indexes(connection: Any, where: str, place: Sequence[Any]) -> tuple[UniqueIndex, ...]:
    """Unique indexes. Prefix and expression parts of an index are omitted from its columns."""
    parts = _rows(
        connection,
        "SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name END FROM information_schema.statistics "
        f"WHERE {where} AND non_unique = 0 ORDER BY index_name, seq_in_index",
        place,
    )
    indexes = []
    for name, group in groupby(parts, key=lambda part: part[0]):
        columns = [column for _, column in group]
        indexes.append(UniqueIndex(name, frozenset(filter(None, columns)), is_whole=None not in columns))
    return tuple(indexes)


def _changes(
    rows: list[tuple[Any, ...]], deletes: list[bool], places: list[int]
) -> Iterator[tuple[bool, tuple[Any, ...]]]:
    """Whether each row is deleted or written, row by row, without the first half of updates of one key."""
    for number, (row, is_removed) in enumerate(zip(rows, deletes, strict=True)):
        has_next = number + 1 < len(rows)
        if is_removed and has_next and not deletes[number + 1]:
            following = rows[number + 1]
            if all(row[place] == following[place] for place in places):
                continue
        yield is_removed, row


def _write_run(
    connection: Any, put: str, remove: str, places: list[int], deletes: bool, rows: list[tuple[Any, ...]]
) -> None:
    with connection.cursor() as cursor:
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            piece = rows[at : at + _ROWS_AT_ONCE]
            if not deletes:
                cursor.executemany(put, piece)
                continue
            keys = [tuple(row[place] for place in places) for row in piece]
            mark = f"({', '.join(['%s'] * len(places))})"
            cursor.execute(f"{remove} ({', '.join([mark] * len(keys))})", [value for key in keys for value in key])


def _execute(connection: Any, statement: str, parameters: Sequence[Any] | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _rows(connection: Any, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def _name(name: str) -> str:
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_name, names))


def _marks(names: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(names))


def _quoted(table: TableName) -> str:
    return ".".join(map(_name, table.parts))
