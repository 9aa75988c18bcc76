"""Statements that somebody asks a query server: a SELECT over the tables of its job, and nothing else.

The session of a statement has the tables of the one job, no functions of anybody's and no settings; it lives as long as
the answer. All rows are of one epoch: the newest, or the one that `FOR SYSTEM_TIME AS OF` names. When nobody waits for
the answer any more, the job that makes it is cancelled: it ends between two batches.
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
_LOOK_S = 0.1
"""How often it is looked whether anybody still waits."""


@dataclass
class _TablesOfJob:
    """Finds tables of one job, at one epoch. `check` refuses what may not be read."""

    job: JobView
    newest: EpochView
    check: TableCheck
    session: PlannerSession = field(default_factory=PlannerSession)

    def __post_init__(self) -> None:
        self._standing = _StandingJob(self.job, self.newest)

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
        """The job, standing still at its newest epoch: all tables of an answer are of it."""
        return self._standing


@dataclass(frozen=True)
class _StandingJob:
    """A job whose newest epoch is the one that the statement began with."""

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
        raise problem("a server answers SELECT alone: nothing is changed through it", parsed)
    newest = job.newest()
    tables = _TablesOfJob(job, newest, check)
    tables.session.job_table = tables.find
    relation = bind_query(parsed.query, tables.session)
    collected = ColumnCollectSink(TableRowType(relation.schema.row_type))
    target = Sink(relation.schema, relation, CollectTarget(collected))
    if not is_live(relation) and any(isinstance(each, Scan) for each in relations_of([target])):
        raise problem("a server answers questions about the tables of its job alone", parsed)
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
    """Rows as the JSON text that is sent, and no more of it than the bounds allow."""

    def __init__(self, bounds: AnswerBounds) -> None:
        self._bounds = bounds
        self._rows, self._read_bytes, self._size = 0, 0, len("[]") - len(",")  # none behind the last
        self._pieces: list[bytes] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode rows. ProgramError for too many, TooLargeError for too many bytes: as columns, which all are held at
        once, and as JSON, in which a character may have twelve."""
        self._rows += batch.num_rows
        self._read_bytes += batch.nbytes
        if self._rows > self._bounds.rows_max:
            raise ProgramError(
                f"the answer has more than {self._bounds.rows_max} rows. Ask for fewer: by WHERE or by LIMIT"
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
                f"the answer has more than {self._bounds.bytes_max} bytes. Ask for fewer columns or rows"
            )


def _next_batch(source: JobRows, abandoned: threading.Event) -> pa.RecordBatch | None:
    """The next rows, None at the end; ProgramError when nobody waits for them any more."""
    while not source.wait(_LOOK_S):
        if abandoned.is_set():
            raise ProgramError("nobody waits for the answer any more. Ask for less, or ask again")
    return source.next_batch()
