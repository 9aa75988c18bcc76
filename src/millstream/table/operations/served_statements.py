"""Statements from clients of a query server: only SELECT over the tables of the server's job.

A statement's session exists only for that statement. It has the tables of the job, but no user functions or settings.
All rows are from one epoch: the newest, or the one given by `FOR SYSTEM_TIME AS OF`. When the client disconnects, the
job that computes the result is cancelled between two batches.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.errors import ProgramError
from millstream.planner.binder import bind_query
from millstream.planner.entries import ColumnEntry, ObjectPath, TableEntry
from millstream.planner.lowering.endpoints import CollectTarget
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.relations import Scan, Sink
from millstream.planner.session import PlannerSession
from millstream.query.epoch_view import EpochView
from millstream.query.job_view import JobView
from millstream.query.statement_answers import AnswerBounds, StatementAnswer, TableCheck
from millstream.query.wire.json_values import json_of
from millstream.query.wire.refusals import TooLargeError
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import shown_watermark
from millstream.sql.parser import parse_statement
from millstream.sql.places import problem
from millstream.sql.statements import QueryStatement
from millstream.table.operations.live_queries import is_live, started_live
from millstream.table.results.row_source import ColumnCollectSink, JobRows

__all__ = ["EncodedRows", "answered"]

_ENCODED_ROWS = 256
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_POLL_S = 0.1
"""How often the server checks whether the client is still waiting."""


@dataclass
class _TablesOfJob:
    """Looks up tables of one job, at one epoch. `check` rejects tables that the client may not read."""

    job: JobView
    newest: EpochView
    check: TableCheck
    session: PlannerSession = field(default_factory=PlannerSession)

    def __post_init__(self) -> None:
        self._job_at_epoch = _JobAtEpoch(self.job, self.newest)

    def find(self, path: ObjectPath) -> TableEntry | None:
        """A table by its name, or as job.table."""
        if path[1] not in (self.session.database, self.job.job, self.job.job_id):
            return None
        self.check(path[2])
        if path[2] not in self.newest.tables():
            return None
        table = self.newest.table(path[2])
        return TableEntry(
            tuple(ColumnEntry(each.name, each.data_type) for each in table.row_type.fields),
            primary_key=table.primary_key,
            options=(("connector", STATE_CONNECTOR),),
            path=path,
        )

    def view_of(self, entry: TableEntry) -> Any:
        """The job at a fixed newest epoch, at which all tables of a statement are read."""
        return self._job_at_epoch


@dataclass(frozen=True)
class _JobAtEpoch:
    """A job whose newest epoch is fixed to the one at the start of the statement."""

    job: JobView
    epoch: EpochView

    def newest(self) -> EpochView:
        return self.epoch

    def at(self, **moment: Any) -> EpochView:
        return self.job.at(**moment)


def answered(
    job: JobView, statement: str, check: TableCheck, bounds: AnswerBounds, abandoned: threading.Event
) -> StatementAnswer:
    """The answer to a statement; see `StatementExecutor`."""
    parsed = parse_statement(statement)
    if not isinstance(parsed, QueryStatement):
        raise problem("a server executes only SELECT: clients cannot change anything", parsed)
    newest = job.newest()
    tables = _TablesOfJob(job, newest, check)
    tables.session.job_table = tables.find
    relation = bind_query(parsed.query, tables.session)
    collected = ColumnCollectSink(TableRowType(relation.schema.row_type))
    target = Sink(relation.schema, relation, CollectTarget(collected))
    if not is_live(relation) and any(isinstance(each, Scan) for each in relations_of([target])):
        raise problem("a server executes queries over the tables of its job only", parsed)
    queue = collected.open()
    source = JobRows(started_live(target, tables.session, tables), queue, collected.id)
    rows = EncodedRows(bounds)
    try:
        while (batch := _next_batch(source, abandoned)) is not None:
            rows.add(batch.select(range(len(relation.schema))))
    finally:
        source.close()
    fields = tuple((each.name, str(each.type.nullable())) for each in relation.schema.fields)
    return StatementAnswer(newest.epoch, newest.committed_ms, shown_watermark(newest.watermark), fields, rows.text())


class EncodedRows:
    """Rows encoded as JSON text, within size limits."""

    def __init__(self, bounds: AnswerBounds) -> None:
        self._bounds = bounds
        self._rows, self._read_bytes, self._size = 0, 0, len("[]") - len(",")  # no comma after the last row
        self._pieces: list[bytes] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Encodes rows. Raises ProgramError for too many rows, and TooLargeError for too many bytes. Bytes are limited
        as columns, which are all in memory at once, and as JSON, where a character may take twelve bytes."""
        self._rows += batch.num_rows
        self._read_bytes += batch.nbytes
        if self._rows > self._bounds.rows_max:
            raise ProgramError(
                f"the result has more than {self._bounds.rows_max} rows. Restrict it by WHERE or by LIMIT"
            )
        self._check(self._read_bytes)
        for start in range(0, batch.num_rows, _ENCODED_ROWS):
            columns = [column.to_pylist() for column in batch.slice(start, _ENCODED_ROWS).columns]
            rows = [[json_of(value) for value in row] for row in zip(*columns, strict=True)]
            self._pieces.append(_encode(rows)[1:-1].encode())
            self._size += len(self._pieces[-1]) + len(",")
            self._check(self._size)

    def text(self) -> bytes:
        """All rows as a JSON array."""
        return b"[" + b",".join(self._pieces) + b"]"

    def _check(self, size: int) -> None:
        if size > self._bounds.bytes_max:
            raise TooLargeError(
                f"the result has more than {self._bounds.bytes_max} bytes. Select fewer columns or rows"
            )


def _next_batch(source: JobRows, abandoned: threading.Event) -> pa.RecordBatch | None:
    """The next rows, None at the end; raises ProgramError if the client has stopped waiting."""
    while not source.wait(_POLL_S):
        if abandoned.is_set():
            raise ProgramError("the client has stopped waiting. Request less, or repeat the statement")
    return source.next_batch()
