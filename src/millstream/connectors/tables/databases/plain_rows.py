"""Converts rows of SQL tables to rows of database connectors, which use `Types`, and back.

Whole columns are cast. The planner keeps the parts of a type that the database lacks (a length, NOT NULL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.connectors.contracts import (
    Json,
    Offset,
    Read,
    SinkWriter,
    Source,
    SourceContext,
    Split,
    WriterContext,
)
from millstream.connectors.databases.sink import DatabaseSink
from millstream.connectors.foreign_columns import inward, outward
from millstream.errors import ProgramError, TypeMismatchError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType, plain_equivalent
from millstream.storage.store import Store

__all__ = ["TableDatabaseSink", "TableDatabaseSource", "plain_row", "table_batch"]


def plain_row(row_type: RowType, table: str) -> RowTypeInfo:
    """The row type for the connectors. Raises ProgramError for a column that no database supports."""
    return Types.ROW_NAMED(
        list(row_type.names), [_plain(field.data_type, field.name, table) for field in row_type.fields]
    )


def _plain(data_type: DataType, name: str, table: str) -> TypeInformation:
    if isinstance(data_type, types.DecimalType):
        return Types.DECIMAL(data_type.precision, data_type.scale)
    if isinstance(data_type, types.TimeType):
        return Types.SQL_TIME()
    if isinstance(data_type, types.TimestampType):
        return Types.SQL_TIMESTAMP()
    if isinstance(data_type, types.LocalZonedTimestampType):
        return Types.INSTANT()
    if isinstance(data_type, ArrayType):
        return Types.LIST(_plain(data_type.element_type, name, table))
    records = None if isinstance(data_type, RowType) else plain_equivalent(data_type)
    if records is None or data_type.arrow.num_fields:
        raise ProgramError(
            f"table {table!r}: column {name!r} is of type {data_type}, which is not supported for databases. CAST it "
            "to STRING"
        )
    return records


def table_batch(batch: pa.RecordBatch, plain: RowTypeInfo, row_type: RowType, subject: str) -> pa.RecordBatch:
    """A connector's rows as rows of a table, with their row kinds if present."""
    schema = row_type.schema
    kinds = batch.schema.get_field_index(KIND_COLUMN)
    rows = batch if kinds < 0 else batch.remove_column(kinds)
    columns = outward(rows, plain).columns
    arrays = []
    for column, field in zip(columns, row_type.fields, strict=True):
        if column.null_count and not field.data_type.is_nullable and kinds < 0:
            raise TypeMismatchError(f"{subject}: column {field.name!r} is NOT NULL, and found NULL. Omit NOT NULL")
        is_same = column.type.equals(field.data_type.arrow)
        arrays.append(column if is_same else column.cast(field.data_type.arrow, safe=False))
    if kinds >= 0:
        arrays, schema = [*arrays, batch.column(kinds)], schema.append(batch.schema.field(kinds))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class TableDatabaseSource(Source):
    """A database source that emits rows of a table. Delegates everything else to the connector's source."""

    def __init__(self, source: Any, row_type: RowType) -> None:
        self._source, self._row_type = source, row_type
        self.bounded, self.type_info = source.bounded, TableRowType(row_type)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        splits: Sequence[Split] = self._source.splits(context)
        return splits

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return self._source.reach(split, offset, budget, context)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(self._source.finished(split, offset))

    def complete(self, context: SourceContext) -> bool:
        return bool(self._source.complete(context))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from self._as_table(self._source.read(split, start, stop)))

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        return (yield from self._as_table(self._source.read_within(split, start, stop, bytes_max)))

    def _as_table(self, rows: Read) -> Read:
        while True:
            try:
                item = next(rows)
            except StopIteration as end:
                return end.value
            batch = item.columns() if isinstance(item, Batch) else item
            assert isinstance(batch, pa.RecordBatch)
            yield table_batch(batch, self._source.row_type, self._row_type, self._source.subject)

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        records: int | None = self._source.backlog(split, offset, context)
        return records

    def opened(self, store: Store, session: Any) -> Source:
        return TableDatabaseSource(self._source.opened(store, session), self._row_type)

    def reopened(self, store: Store, session: Any) -> Source:
        return TableDatabaseSource(self._source.reopened(store, session), self._row_type)

    def committed(self, positions: dict[str, Offset]) -> None:
        self._source.committed(positions)

    def released(self, retained_positions: Sequence[dict[str, Offset]]) -> None:
        self._source.released(retained_positions)

    def close(self) -> None:
        self._source.close()

    def describe(self) -> str:
        return str(self._source.describe())


class TableDatabaseSink(DatabaseSink):
    """The database sink for rows of a table."""

    plain: RowTypeInfo

    def writer(self, context: WriterContext) -> SinkWriter:
        return _PlainWriter(super().writer(replace(context, input_type=self.plain)), self.plain, self.subject)


class _PlainWriter(SinkWriter):
    """Casts rows of a table to the connector's rows."""

    def __init__(self, writer: SinkWriter, plain: RowTypeInfo, subject: str) -> None:
        self._writer, self._plain, self._subject = writer, plain, subject

    def write(self, batch: Batch) -> None:
        columns = batch.columns()
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        rows = inward(columns if kinds < 0 else columns.remove_column(kinds), self._plain, self._subject)
        if kinds >= 0:
            rows = rows.append_column(columns.schema.field(kinds), columns.column(kinds))
        self._writer.write(Batch.of_columns(rows, self._plain))

    def stage(self) -> Sequence[Json]:
        return self._writer.stage()

    def stateful(self) -> Any:
        return self._writer.stateful()

    def abort(self) -> None:
        self._writer.abort()
