"""The sink's operations in PostgreSQL. Rows are transferred by COPY.

Upserts use a temporary table with the target's column types, so that the database decides which keys are equal.
It is created once per connection, and empties itself at the end of each transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.copy_text import copy_text
from millstream.connectors.databases.dialect import Dialect, RowBatch, TableName, TableShape, Timeouts
from millstream.connectors.databases.postgres_session import connect, deadline, psycopg, quoted, quoted_name, refusal
from millstream.connectors.databases.sql_values import checked_fields, row_values
from millstream.connectors.databases.statements import inserted_columns, with_percent_parameters
from millstream.connectors.databases.unique_indexes import UniqueIndex
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["PostgresDialect"]

_UNIQUE_INDEXES = """
    SELECT i.indexrelid::regclass::text,
        coalesce(array_agg(a.attname::text) FILTER (WHERE a.attname IS NOT NULL), '{}'),
        i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL,
        NOT i.indimmediate
    FROM pg_index i LEFT JOIN pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) AND a.attnum > 0
    WHERE (i.indisunique OR i.indisexclusion) AND i.indisready AND (i.indrelid = %(table)s OR
        i.indrelid IN (SELECT relid FROM pg_partition_tree(%(table)s))
        AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = i.indexrelid))
    GROUP BY i.indexrelid ORDER BY 1
"""
"""Indexes that only a partition has conflict, too."""
# Strings that are invalid for the column's type, numbers and times out of range, characters missing in the encoding.
_UNFIT_CODES = frozenset({"22P02", "22003", "22007", "22008", "22021", "22P05"})
_ORDINAL, _DELETES = "__millstream_n", "__millstream_d"
_COPIED_ROWS = 65_536


class PostgresDialect(Dialect):
    """The sink's operations in PostgreSQL."""

    other_index_advice = (
        "PostgreSQL would refuse the rows of an epoch that is already committed. Make it a deferrable constraint, "
        "which is checked at the end of the epoch (ALTER TABLE … ADD UNIQUE (…) DEFERRABLE), drop it "
        "(DROP INDEX {}), or write by its columns as the key"
    )

    def connect(self, address: DatabaseAddress, timeouts: Timeouts) -> Any:
        return connect(address, timeouts)

    def deadline(self, connection: Any, total_s: float) -> AbstractContextManager[None]:
        return deadline(connection, total_s)

    def refusal(self, error: BaseException) -> str | None:
        return refusal(error)

    def shape(self, connection: Connection[Any], table: TableName) -> TableShape | None:
        entry = connection.execute(
            "SELECT c.oid, c.relpersistence, has_table_privilege(c.oid, 'INSERT'), current_user "
            "FROM pg_class c WHERE c.oid = to_regclass(%s)",
            [quoted(table)],
        ).fetchone()
        if entry is None:
            return None
        oid, persistence, may_insert, role = entry
        if not may_insert:
            raise ProgramError(
                f"Role {role!r} may not write to table {table}. Have its owner run: "
                f'GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(table)} TO "{role}"'
            )
        if persistence == "u":
            raise ProgramError(
                f"Table {table} is unlogged: a crash of the server empties it, and output written exactly once is "
                f"lost. Run: ALTER TABLE {quoted(table)} SET LOGGED"
            )
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '' "
            "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [oid],
        ).fetchall()
        indexes = connection.execute(_UNIQUE_INDEXES, {"table": oid}).fetchall()
        return TableShape(
            {name: type_text for name, type_text, _ in columns},
            tuple(UniqueIndex(name, frozenset(names), *more) for name, names, *more in indexes),
            frozenset(name for name, _, needed in columns if needed),
        )

    def make_commits_table(self, connection: Connection[Any], table: TableName) -> None:
        library, name = psycopg(), quoted(table)
        statement = (
            f"CREATE TABLE IF NOT EXISTS {name} (committer text PRIMARY KEY, epoch bigint NOT NULL, "
            "committed_at timestamptz NOT NULL DEFAULT now())"
        )
        if self.shape(connection, table) is None:
            try:
                connection.execute(statement)
                connection.commit()
            except (library.errors.UniqueViolation, library.errors.DuplicateTable):
                connection.rollback()  # another session is creating it
            except library.errors.InsufficientPrivilege as error:
                raise ProgramError(
                    f"The table of commits {table} does not exist, and this role may not create it "
                    f"({error.diag.message_primary}). Have an authorised role run: {statement}"
                ) from error
        shape = self.shape(connection, table)
        if shape is None or not {"committer", "epoch", "committed_at"} <= shape.columns.keys():
            raise ProgramError(
                f"Table {table} has the columns {list(shape.columns) if shape else []}, but a table of commits has "
                "committer, epoch and committed_at. Set commits_table to another name"
            )

    def lock_committer(self, connection: Connection[Any], table: TableName, committer: str) -> int:
        name = quoted(table).replace("%", "%%")
        # Two statements: the second sees the commit of another transaction that the first one waited for.
        connection.execute(
            f"INSERT INTO {name} (committer, epoch) VALUES (%s, 0) ON CONFLICT (committer) DO NOTHING", [committer]
        )
        row = connection.execute(f"SELECT epoch FROM {name} WHERE committer = %s FOR UPDATE", [committer]).fetchone()
        assert row is not None, "the row exists since this transaction or before"
        return int(row[0])

    def record_commit(self, connection: Connection[Any], table: TableName, committer: str, epoch: int) -> None:
        connection.execute(
            f"UPDATE {quoted(table).replace('%', '%%')} SET epoch = %s, committed_at = now() WHERE committer = %s",
            [epoch, committer],
        )

    def append(
        self, connection: Connection[Any], table: TableName, names: Sequence[str], batches: Iterator[RowBatch]
    ) -> None:
        target, columns = quoted(table), _list(names)
        if _is_copied_into(connection, target):
            _copy(connection, f"{target} ({columns})", batches, staged=False)
            return
        stage = _make_stage(connection, table, names)
        connection.execute(f"TRUNCATE pg_temp.{stage}")
        _copy(connection, f"pg_temp.{stage} ({columns}, {_ORDINAL}, {_DELETES})", batches, staged=True)
        connection.execute(
            f"INSERT INTO {target} ({columns}) SELECT {columns} FROM pg_temp.{stage} ORDER BY {_ORDINAL}"
        )

    def upsert(
        self,
        connection: Connection[Any],
        table: TableName,
        names: Sequence[str],
        key: Sequence[str],
        batches: Iterator[RowBatch],
    ) -> None:
        target, keys, columns = quoted(table), _list(key), _list(names)
        connection.execute("SET CONSTRAINTS ALL DEFERRED")  # rows may exchange unique values within an epoch
        stage = _make_stage(connection, table, names)
        has_deletes = _copy(connection, f"pg_temp.{stage} ({columns}, {_ORDINAL}, {_DELETES})", batches, staged=True)
        # Ordered by key, to prevent deadlocks between two jobs that write the same keys.
        last = f"(SELECT DISTINCT ON ({keys}) * FROM pg_temp.{stage} ORDER BY {keys}, {_ORDINAL} DESC) AS s"
        if has_deletes:
            same_key = " AND ".join(f"t.{quoted_name(name)} = s.{quoted_name(name)}" for name in key)
            connection.execute(f"DELETE FROM {target} AS t USING {last} WHERE s.{_DELETES} AND {same_key}")
        others = [name for name in names if name not in key]
        updates = ", ".join(f"{quoted_name(name)} = EXCLUDED.{quoted_name(name)}" for name in others)
        connection.execute(
            # As in COPY: a column that is GENERATED ALWAYS AS IDENTITY receives the stream's values.
            f"INSERT INTO {target} ({columns}) OVERRIDING SYSTEM VALUE "
            f"SELECT {columns} FROM {last} WHERE NOT s.{_DELETES} "
            f"ON CONFLICT ({keys}) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
        )

    def clear_upserted(self, connection: Connection[Any], table: TableName, names: Sequence[str]) -> None:
        connection.execute(f"TRUNCATE pg_temp.{_stage_of(table, names)}")

    def execute(
        self, connection: Connection[Any], statement: str, batches: Iterator[RowBatch], batch_rows: int
    ) -> None:
        insert = inserted_columns(statement)
        if insert is not None and _is_copied_into(connection, insert[0]):
            _copy(connection, f"{insert[0]} ({insert[1]})", batches, staged=False)
            return
        sql, _ = with_percent_parameters(statement)
        with connection.cursor() as cursor:
            for batch in batches:
                _, types = checked_fields(batch.type_info, "The statement")
                for at in range(0, batch.columns.num_rows, batch_rows):
                    cursor.executemany(sql, row_values(batch.columns.slice(at, batch_rows), types, arrays=True))

    def texts(
        self, connection: Connection[Any], query: str, parameters: Sequence[Any], types: Sequence[TypeInformation]
    ) -> list[pa.Array]:
        with connection.cursor() as cursor:
            answer = cursor.execute(query, parameters).pgresult
            assert answer is not None, "a query has a result"
            # Not as Python values: a scan and the log have the server's strings.
            columns = [[answer.get_value(row, at) for row in range(answer.ntuples)] for at in range(answer.nfields)]
        return [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]

    def is_invalid_parameter(self, error: BaseException) -> bool:
        library = psycopg()
        if not isinstance(error, library.DataError):
            return False
        # An error without a code is the client's own: NUL in a string. The server names the parameter, as `$1`.
        return error.sqlstate is None or (error.sqlstate in _UNFIT_CODES and "$" in (error.diag.context or ""))


def _stage_of(table: TableName, names: Sequence[str]) -> str:
    """The name of the temporary table for upserts of these columns into a table."""
    digest = hashlib.sha256(f"{quoted(table)}|{_list(names)}".encode()).hexdigest()[:16]
    return quoted_name(f"millstream_{digest}")


def _make_stage(connection: Connection[Any], table: TableName, names: Sequence[str]) -> str:
    """Create the temporary table; it exists until the connection is closed, and is empty after each transaction."""
    stage = _stage_of(table, names)
    connection.execute("SET LOCAL client_min_messages = warning")
    connection.execute(
        f"CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS SELECT {_list(names)}, "
        f"0::bigint AS {_ORDINAL}, false AS {_DELETES} FROM {quoted(table)} WITH NO DATA"
    )
    return stage


def _is_copied_into(connection: Connection[Any], table: str) -> bool:
    """Whether COPY is equivalent to INSERT for this table. COPY refuses views and tables with row security."""
    row = connection.execute(
        "SELECT relkind IN ('r', 'p') AND NOT relrowsecurity FROM pg_class WHERE oid = to_regclass(%s)", [table]
    ).fetchone()
    return row == (True,)


def _copy(connection: Connection[Any], target: str, batches: Iterator[RowBatch], *, staged: bool) -> bool:
    """Copy the rows; `staged`: with their numbers and delete marks. Returns whether any row deletes."""
    has_deletes = False
    with connection.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy:
        for batch in batches:
            _, types = checked_fields(batch.type_info, "A table")
            columns = batch.columns.columns
            if staged:
                rows = batch.columns.num_rows
                ordinals = pa.array(np.arange(batch.first, batch.first + rows, dtype=np.int64))
                deletes = pa.array(np.zeros(rows, dtype=bool)) if batch.deletes is None else batch.deletes
                has_deletes = has_deletes or batch.deletes is not None
                columns, types = [*columns, ordinals, deletes], [*types, Types.LONG(), Types.BOOLEAN()]
            for at in range(0, batch.columns.num_rows, _COPIED_ROWS):
                copy.write(memoryview(copy_text([column.slice(at, _COPIED_ROWS) for column in columns], types)))
    return has_deletes


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted_name, names))
