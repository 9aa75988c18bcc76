"""A sink that writes each epoch to a database in one transaction, together with the name of its commit.

Tasks stage rows in the job's store, in columnar form. After the manifest is written, the driver opens a transaction and
locks its committer's row in the table of commits. The row holds the newest epoch that this committer has published. If
it is this epoch or a newer one, nothing is done. Else the rows are written, then the epoch, and the transaction is
committed: rows and epoch appear together or not at all.

Rows are therefore never duplicated or lost:

- A connection lost before COMMIT leaves no changes; one lost after COMMIT leaves all of them, as the committer's row
  shows. In both cases the whole transaction is repeated.
- A replaced driver that resumes in the middle either holds the row lock (then its successor waits, sees the epoch and
  does nothing) or is later (then it sees the epoch itself). The server ends a session that holds the lock too long.
- `CommitId.committer` contains the job's id, so that another job, also a fork of this one, has its own row.

One connection of the driver writes an epoch, so that it appears as a whole. COPY delivers columns
faster than a single server can store them; several connections would only split the transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import RowKind
from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.databases.accepted_values import AcceptedValues, accepted_values
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.dialect import Dialect, RowBatch, TableName, Timeouts, dialect_of
from millstream.connectors.databases.patience import Patience, retry
from millstream.connectors.databases.refused_by_database import NumberedRows, is_about_rows, refused_rows
from millstream.connectors.databases.sql_values import checked_fields
from millstream.connectors.databases.statements import with_percent_parameters
from millstream.connectors.databases.unique_indexes import check_upsert_key
from millstream.connectors.refused_rows import RefusedRowsError, accepted_rows, shown_row
from millstream.connectors.staging import StagedBatches, decode_columns, read_staged, read_staged_values
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, stream_schema
from millstream.state.schemas.saved_types import type_from, written_type
from millstream.storage.store import Store

__all__ = ["COMMITS_TABLE", "DatabaseSink", "StatementRows", "TableRows"]

COMMITS_TABLE = "millstream_commits"
_LOOKING = 0.2
"""The fraction of the transaction time limit for the search for refused rows, once one was detected."""
_REMOVES = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
_KIND_TEXTS = {kind.value: str(kind) for kind in RowKind}


@dataclass(frozen=True)
class TableRows:
    """Rows of a table: inserted, or, with a `key`, upserted by it."""

    table: TableName
    key: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"upsert into {self.table} by {', '.join(self.key)}" if self.key else f"append to {self.table}"


@dataclass(frozen=True)
class StatementRows:
    """A statement, executed for each row in order; its `?` are the fields of `type_info`."""

    sql: str
    type_info: TypeInformation
    batch_rows: int = 5000

    def describe(self) -> str:
        return " ".join(self.sql.split())


class DatabaseSink(Sink):
    """Writes rows to the database at `address`."""

    reports_refused_rows = True

    def __init__(
        self,
        address: DatabaseAddress,
        rows: TableRows | StatementRows,
        commits_table: TableName | None = None,
        patience: Patience | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.address, self.rows = address, rows
        self.commits_table = commits_table or TableName((COMMITS_TABLE,))
        self.patience, self.timeouts = patience or Patience(), timeouts or Timeouts()
        # The driver's view of the table, read when it opens the sink, is sent to the tasks with the plan.
        self.accepted = AcceptedValues(address.kind)
        if isinstance(rows, StatementRows):
            _check_statement(rows)
        self._connection: Any = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Pickles only the sink as created by the program: each process opens its own connection.
        return {**self.__dict__, "_connection": None, "_lock": None}

    @property
    def subject(self) -> str:
        """The prefix of error messages."""
        return f"Sink to {self.address.shown} ({self.rows.describe()})"

    def writer(self, context: WriterContext) -> SinkWriter:
        return _RowWriter(self, context)

    def opened(self, session: Any) -> Sink:
        """This sink, after checking that the database can store the rows. No part of the job has run yet."""
        sink = copy(self)
        sink._lock = threading.Lock()
        sink._with_connection(lambda dialect, connection: sink._check_tables(dialect, connection))
        self.accepted = sink.accepted
        return sink

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if publish:
            self._with_connection(
                lambda dialect, connection: self._publish(dialect, connection, commit, publish, store)
            )

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any]:
        return read_staged_values(staged, store, _staged_type(staged))

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        if isinstance(self.rows, TableRows) and self.rows.key:
            return pending, "the rows of later epochs are repeated, with the same keys"
        return pending, "the rows of later epochs stay in the table, and are repeated in new commits"

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def describe(self) -> str:
        return f"{self.rows.describe()} at {self.address.shown}, an epoch per transaction"

    def _publish(
        self, dialect: Dialect, connection: Any, commit: CommitId, publish: Sequence[Json], store: Store
    ) -> None:
        newest = dialect.lock_committer(connection, self.commits_table, commit.committer)
        if newest >= commit.epoch:
            connection.rollback()
            return
        try:
            self._write(dialect, connection, publish[0], (batch.rows for batch in _row_batches(publish, store)))
            dialect.record_commit(connection, self.commits_table, commit.committer, commit.epoch)
            connection.commit()
        except Exception as error:
            if not is_about_rows(self.address.kind, error):
                raise
            connection.rollback()
            self._refuse_rows(dialect, connection, publish, store, error)
            raise

    def _refuse_rows(
        self, dialect: Dialect, connection: Any, publish: Sequence[Json], store: Store, error: BaseException
    ) -> None:
        """Determine the rows that the database refuses, and raise them. Returns if it refuses none of them now."""

        until_s = self.patience.monotonic() + self.timeouts.transaction_s * _LOOKING

        def reason_of(refused: BaseException) -> str:
            return self.address.without_secrets(dialect.refusal(refused) or str(refused))

        def write(batches: Iterator[RowBatch]) -> None:
            self._write(dialect, connection, publish[0], batches)
            if isinstance(self.rows, TableRows) and self.rows.key:
                names, _ = checked_fields(_staged_type(publish[0]), self.subject)
                dialect.clear_upserted(connection, self.rows.table, names)

        rows = refused_rows(
            self.address.kind,
            connection,
            self.accepted,
            write,
            _row_batches(publish, store),
            reason_of,
            lambda: self.patience.monotonic() > until_s,
        )
        connection.rollback()
        if rows:
            reason, shown = reason_of(error).rstrip("."), rows[0].shown
            raise RefusedRowsError(f"{self.subject}: {reason}. The first refused row is {shown}", rows) from error

    def _write(self, dialect: Dialect, connection: Any, staged: Json, batches: Iterator[RowBatch]) -> None:
        if isinstance(self.rows, StatementRows):
            dialect.execute(connection, self.rows.sql, batches, self.rows.batch_rows)
            return
        names, _ = checked_fields(_staged_type(staged), self.subject)
        if self.rows.key:
            dialect.upsert(connection, self.rows.table, names, self.rows.key, batches)
        else:
            dialect.append(connection, self.rows.table, names, batches)

    def _with_connection(self, operation: Any) -> None:
        """Call `operation(dialect, connection)`; repeat on a new connection if the connection or its server is lost."""
        dialect = dialect_of(self.address)

        def attempt() -> None:
            if self._connection is None:
                self._connection = dialect.connect(self.address, self.timeouts)
            try:
                with dialect.deadline(self._connection, self.timeouts.transaction_s):
                    operation(dialect, self._connection)
            except BaseException:
                self._disconnect()  # which rolls back
                raise

        def refusal(error: BaseException) -> str | None:
            reason = dialect.refusal(error)
            return None if reason is None else self.address.without_secrets(reason)

        with self._lock:
            retry(attempt, self.patience, self.subject, refusal)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    def _check_tables(self, dialect: Dialect, connection: Any) -> None:
        dialect.make_commits_table(connection, self.commits_table)
        if isinstance(self.rows, TableRows):
            shape = dialect.shape(connection, self.rows.table)
            if shape is None:
                raise ProgramError(
                    f"{self.subject}: the table does not exist. Create it first, with a column for each field"
                )
            missing = [name for name in self.rows.key if name not in shape.columns]
            if missing:
                raise ProgramError(f"{self.subject}: the table has the columns {list(shape.columns)}, not {missing}")
            if self.rows.key:
                check_upsert_key(shape.unique, self.rows.key, self.subject, dialect.other_index_advice)
            self.accepted = accepted_values(self.address.kind, connection, self.rows.table, shape)
        connection.rollback()


class _RowWriter(SinkWriter):
    """Stages the rows of one task attempt; rejects rows that the table cannot store."""

    def __init__(self, sink: DatabaseSink, context: WriterContext) -> None:
        self._sink, self._context = sink, context
        self._staged = StagedBatches()
        self._type = context.input_type
        if isinstance(sink.rows, StatementRows):
            self._type = sink.rows.type_info
        self._names, _ = checked_fields(self._type, sink.subject)
        if sink.accepted.types:
            _check_names(self._names, sink.accepted, sink.subject)

    def write(self, batch: Batch) -> None:
        if batch.type_info != self._type:
            batch = Batch.of_values(batch.values(), self._type)
        self._check(batch.columns())
        self._staged.add(batch)

    def stage(self) -> Sequence[Json]:
        if not self._staged.records:
            return ()
        assert self._type is not None
        return ({**self._staged.stage(self._context), "type": written_type(self._type)},)

    def _check(self, columns: pa.RecordBatch) -> None:
        rows, subject = self._sink.rows, self._sink.subject
        if KIND_COLUMN in columns.schema.names:
            kinds = columns.column(KIND_COLUMN)
            if kinds.null_count:
                raise TypeMismatchError(f"{subject}: a record is None, expected a row. Filter it out before")
            _check_kinds(set(kinds.unique().to_pylist()), rows, subject)
        if isinstance(rows, TableRows):
            for name in rows.key:
                if name not in self._names:
                    raise ProgramError(f"{subject}: records have the fields {self._names}, but no field {name!r}")
                if columns.column(name).null_count:
                    raise TypeMismatchError(f"{subject}: {name!r} of a record is None, but a key must not be None")
        if self._context.dead_letters is None:
            self._check_values(columns)

    def _check_values(self, columns: pa.RecordBatch) -> None:
        """Reject values that the table would refuse: after the commit they would stop the job permanently."""
        rows, deletes = _without_kinds(columns, self._names)
        value = next(self._sink.accepted.refused(rows, deletes), None)
        if value is not None:
            raise TypeMismatchError(
                f"{self._sink.subject}: {value.column!r} is {value.reason}. The row is {shown_row(rows, value.row)}. "
                "Change such values or filter them out before the sink. A DatabaseSink can write such rows "
                "elsewhere: sink.with_dead_letters(folder)"
            )


def _check_names(names: Sequence[str], accepted: AcceptedValues, subject: str) -> None:
    """Reject fields that prevent every row from being written, before an epoch with them is committed."""
    if missing := accepted.missing(names):
        raise ProgramError(
            f"{subject}: records have the fields {names}, and the table has the columns {list(accepted.types)}, but "
            f"not {missing}. Name each field like its column"
        )
    if omitted_columns := accepted.omitted_columns(names):
        raise ProgramError(
            f"{subject}: records have the fields {names}, but the table's columns {omitted_columns} are NOT NULL and "
            f"have no default. Give them a default, or add such fields"
        )
    if computed := accepted.computed_columns(names):
        raise ProgramError(
            f"{subject}: records have the fields {computed}, but the database computes these columns itself. Remove "
            "such fields before the sink"
        )


def _check_kinds(kinds: set[int], rows: TableRows | StatementRows, subject: str) -> None:
    if isinstance(rows, TableRows) and rows.key:
        return
    allowed = {RowKind.INSERT.value} if isinstance(rows, TableRows) else {0, RowKind.UPDATE_AFTER.value}
    refused = sorted(kinds - allowed)
    if refused:
        texts = ", ".join(_KIND_TEXTS[kind] for kind in refused)
        raise TypeMismatchError(
            f"{subject}: found rows of kind {texts}. Updates and deletes need a key: "
            "use millstream.datastream.connectors.databases.DatabaseSink(..., key=[...])"
        )


def _check_statement(rows: StatementRows) -> None:
    names, _ = checked_fields(rows.type_info, "JdbcSink.sink")
    _, count = with_percent_parameters(rows.sql)
    if count != len(names):
        raise ProgramError(
            f"JdbcSink.sink: the statement has {count} parameters (?), and type_info has {len(names)} fields {names}. "
            "Declare one field for each ?, in order"
        )


def _row_batches(publish: Sequence[Json], store: Store) -> Iterator[NumberedRows]:
    """The staged rows to write, payload by payload, so that only one of them is in memory at a time."""
    first = 0
    for item, payload in enumerate(publish):
        type_info = _staged_type(payload)
        schema = stream_schema(type_info)
        assert schema is not None
        for columns, numbers in accepted_rows(payload, decode_columns(read_staged(payload, store))):
            rows, deletes = _without_kinds(columns, schema.names)
            yield NumberedRows(item, numbers, RowBatch(rows, type_info, first, deletes))
            first += columns.num_rows


def _without_kinds(columns: pa.RecordBatch, names: Sequence[str]) -> tuple[pa.RecordBatch, pa.Array | None]:
    """The fields of rows, and the mask of deletes if the rows have kinds."""
    if KIND_COLUMN not in columns.schema.names:
        return columns, None
    kinds = columns.column(KIND_COLUMN)
    return columns.select(list(names)), pc.is_in(kinds, value_set=pa.array(_REMOVES, kinds.type))


def _staged_type(payload: Json) -> TypeInformation:
    """The type of staged rows: as declared when they were staged, possibly by an earlier run."""
    return type_from(payload["type"], "staged rows")
