"""PostgreSQL, by psycopg 3. Rows are handed over by COPY.

A session is made so that the promise holds whatever the role's settings are: a commit that the server acknowledges has
reached its disk (`synchronous_commit` is switched on where it is off), and a driver that stalls within a transaction is
cut off by the server, so that its successor does not wait for the committer's row for ever.

Upserts go through a temporary table of the target's column types, so that which keys are equal is the database's word.
It is made once per connection, and empties itself at the end of each transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import Types
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.copy_text import copy_text
from millstream.connectors.databases.dialect import Dialect, RowBatch, TableName, TableShape, Timeouts
from millstream.connectors.databases.sql_values import checked_fields, row_values
from millstream.connectors.databases.statements import inserted_columns, with_percent_parameters
from millstream.errors import PlatformError, ProgramError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["PostgresDialect", "connect", "is_away"]

_ORDINAL, _DELETES = "__millstream_n", "__millstream_d"
_COPIED_ROWS = 65_536
_IDLE_MS_MAX = 60_000
_LOCK_MS = 10_000

_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

# Classes and codes of errors that pass: lost connections, shutdown and recovery, time-outs, deadlocks, no room.
_AWAY_CLASSES = ("08", "53", "40")
_AWAY_CODES = frozenset({"57P01", "57P02", "57P03", "57P05", "57014", "55P03", "25P03", "55006"})
# When a connection is refused there is no code, only the server's words.
_REFUSED_FOR_GOOD = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "no password supplied",
    "invalid connection option",
    "invalid sslmode",
    "is not permitted",
)


def psycopg() -> Any:
    """The client library."""
    try:
        import psycopg
    except ImportError as error:
        raise PlatformError(
            "PostgreSQL needs the package psycopg, which is not installed: pip install 'millstream[postgres]'"
        ) from error
    return psycopg


def connect(address: DatabaseAddress, timeouts: Timeouts, **more: Any) -> Connection[Any]:
    """A session whose commits are durable, whose texts are UTF-8 and whose times are in UTC."""
    options = dict(address.options)
    search_path = options.pop("search_path", None)
    milliseconds = int(timeouts.transaction_s * 1000)
    settings = {
        "client_encoding": "UTF8",
        "application_name": "millstream",
        "connect_timeout": str(max(2, int(timeouts.connect_s))),
        # A cut network is noticed by silence; without these, after hours.
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",
        **options,
        "host": ",".join(host for host, _ in address.hosts),
        "port": ",".join(str(port) for _, port in address.hosts),
        "dbname": address.database,
        **{name: value for name, value in (("user", address.user), ("password", address.password)) if value},
    }
    connection: Connection[Any] = psycopg().connect(**settings, **more)
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET DateStyle = 'ISO'")
        connection.execute("SET bytea_output = 'hex'")
        connection.execute("SET extra_float_digits = 1")
        connection.execute(f"SET statement_timeout = {milliseconds}")
        connection.execute(f"SET idle_in_transaction_session_timeout = {min(milliseconds, _IDLE_MS_MAX)}")
        connection.execute(f"SET lock_timeout = {_LOCK_MS}")
        connection.execute(_DURABLE)
        if search_path is not None:
            connection.execute("SELECT set_config('search_path', %s, false)", [search_path])
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


def is_away(error: BaseException) -> bool:
    """Whether an error may pass by itself."""
    library = psycopg()
    if not isinstance(error, library.Error):
        return isinstance(error, OSError)
    code = error.sqlstate
    if code is not None:
        return code.startswith(_AWAY_CLASSES) or code in _AWAY_CODES
    text = str(error)
    return isinstance(error, library.OperationalError) and not any(words in text for words in _REFUSED_FOR_GOOD)


class PostgresDialect(Dialect):
    """What the sink asks, in PostgreSQL's words."""

    def connect(self, address: DatabaseAddress, timeouts: Timeouts) -> Any:
        return connect(address, timeouts)

    def refusal(self, error: BaseException) -> str | None:
        if is_away(error):
            return None
        diag = getattr(error, "diag", None)
        told = [str(error).splitlines()[0].strip() if str(error) else type(error).__name__]
        for more in (getattr(diag, "message_detail", None), getattr(diag, "message_hint", None)):
            told += [more] if more else []
        context = (getattr(diag, "context", None) or "").splitlines()
        return ". ".join(part.rstrip(".") for part in [*told, *context[:1]])

    def shape(self, connection: Connection[Any], table: TableName) -> TableShape | None:
        found = connection.execute(
            "SELECT c.oid, c.relpersistence FROM pg_class c WHERE c.oid = to_regclass(%s)", [_quoted(table)]
        ).fetchone()
        if found is None:
            return None
        oid, persistence = found
        if persistence == "u":
            raise ProgramError(
                f"Table {table} is unlogged: a crash of the server empties it, and what was written exactly once is "
                f"gone. Run: ALTER TABLE {_quoted(table)} SET LOGGED"
            )
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '' "
            "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [oid],
        ).fetchall()
        unique = connection.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) "
            "WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL "
            "AND i.indexprs IS NULL GROUP BY i.indexrelid",
            [oid],
        ).fetchall()
        return TableShape(
            {name: type_text for name, type_text, _ in columns},
            tuple(frozenset(names) for (names,) in unique),
            frozenset(name for name, _, needed in columns if needed),
        )

    def make_commits_table(self, connection: Connection[Any], table: TableName) -> None:
        library, name = psycopg(), _quoted(table)
        statement = (
            f"CREATE TABLE IF NOT EXISTS {name} (committer text PRIMARY KEY, epoch bigint NOT NULL, "
            "committed_at timestamptz NOT NULL DEFAULT now())"
        )
        if self.shape(connection, table) is None:
            try:
                connection.execute(statement)
                connection.commit()
            except (library.errors.UniqueViolation, library.errors.DuplicateTable):
                connection.rollback()  # somebody else makes it at this moment
            except library.errors.InsufficientPrivilege as error:
                raise ProgramError(
                    f"The table of commits {table} is not there, and this role may not make it "
                    f"({error.diag.message_primary}). Have somebody run: {statement}"
                ) from error
        shape = self.shape(connection, table)
        if shape is None or not {"committer", "epoch"} <= shape.columns.keys():
            raise ProgramError(
                f"Table {table} has the columns {list(shape.columns) if shape else []}, and a table of commits has "
                "committer and epoch. Give commits_table another name"
            )

    def lock_committer(self, connection: Connection[Any], table: TableName, committer: str) -> int:
        name = _quoted(table).replace("%", "%%")
        # Two statements: the second sees what another transaction committed while the first one waited for it.
        connection.execute(
            f"INSERT INTO {name} (committer, epoch) VALUES (%s, 0) ON CONFLICT (committer) DO NOTHING", [committer]
        )
        row = connection.execute(f"SELECT epoch FROM {name} WHERE committer = %s FOR UPDATE", [committer]).fetchone()
        assert row is not None, "the row was made in this transaction, or before it"
        return int(row[0])

    def record_commit(self, connection: Connection[Any], table: TableName, committer: str, epoch: int) -> None:
        connection.execute(
            f"UPDATE {_quoted(table).replace('%', '%%')} SET epoch = %s, committed_at = now() WHERE committer = %s",
            [epoch, committer],
        )

    def append(
        self, connection: Connection[Any], table: TableName, names: Sequence[str], batches: Iterator[RowBatch]
    ) -> None:
        _copy(connection, f"{_quoted(table)} ({_list(names)})", batches, staged=False)

    def upsert(
        self,
        connection: Connection[Any],
        table: TableName,
        names: Sequence[str],
        key: Sequence[str],
        batches: Iterator[RowBatch],
    ) -> None:
        target, keys, columns = _quoted(table), _list(key), _list(names)
        digest = hashlib.sha256(f"{target}|{columns}".encode()).hexdigest()[:16]
        stage = _name(f"millstream_{digest}")
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS SELECT {columns}, "
            f"0::bigint AS {_ORDINAL}, false AS {_DELETES} FROM {target} WITH NO DATA"
        )
        has_deletes = _copy(connection, f"pg_temp.{stage} ({columns}, {_ORDINAL}, {_DELETES})", batches, staged=True)
        # Ordered by key, so that two jobs that write the same keys do not wait for each other in a circle.
        last = f"(SELECT DISTINCT ON ({keys}) * FROM pg_temp.{stage} ORDER BY {keys}, {_ORDINAL} DESC) AS s"
        if has_deletes:
            same_key = " AND ".join(f"t.{_name(name)} = s.{_name(name)}" for name in key)
            connection.execute(f"DELETE FROM {target} AS t USING {last} WHERE s.{_DELETES} AND {same_key}")
        others = [name for name in names if name not in key]
        updates = ", ".join(f"{_name(name)} = EXCLUDED.{_name(name)}" for name in others)
        connection.execute(
            f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {last} WHERE NOT s.{_DELETES} "
            f"ON CONFLICT ({keys}) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
        )

    def execute(
        self, connection: Connection[Any], statement: str, batches: Iterator[RowBatch], batch_rows: int
    ) -> None:
        insert = inserted_columns(statement)
        if insert is not None:
            _copy(connection, f"{insert[0]} ({insert[1]})", batches, staged=False)
            return
        sql, _ = with_percent_parameters(statement)
        with connection.cursor() as cursor:
            for batch in batches:
                _, types = checked_fields(batch.type_info, "The statement")
                for at in range(0, batch.columns.num_rows, batch_rows):
                    cursor.executemany(sql, row_values(batch.columns.slice(at, batch_rows), types, arrays=True))


def _copy(connection: Connection[Any], target: str, batches: Iterator[RowBatch], *, staged: bool) -> bool:
    """Copy the rows; `staged`: with their numbers, and whether they delete. Whether any did."""
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


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_name, names))


def _quoted(table: TableName) -> str:
    return ".".join(map(_name, table.parts))
