"""Reads the rows of a job's table at one epoch, as columns: all rows, or those of some keys.

A table is a state that holds the result of a query (`state.stored.queryable`): rows by primary key, or each row as a
key with its count. Only data that the epoch's manifest names is read: the table's state and, if old rows are archived,
the files that the state names (`archived_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millstream.connectors.archives.archived_files import ArchivedFile
from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.query.archived_rows import ANY_TIME, ArchivedRows, TimeRange
from millstream.query.keyed_reads import KeyedReads
from millstream.state.keys.hashing import Int64s
from millstream.state.schemas.saved_sql_types import sql_type_from
from millstream.state.stored.queryable import KEYED_ROWS, Queryable

__all__ = ["ROWS_MAX", "TableReads", "row_type_of"]

ROWS_MAX = 1_000_000
"""How many rows of a table are read as a whole, unless more are allowed."""


def row_type_of(table: Queryable) -> RowType:
    """The columns of a table, with their SQL types."""
    types: list[DataType] = [sql_type_from(written) for _, written in table.columns]
    return RowType.of([name for name, _ in table.columns], types, nullable=False)


class TableReads:
    """One table."""

    def __init__(self, name: str, table: Queryable, reads: KeyedReads) -> None:
        self.name, self.primary_key, self.row_type = name, table.primary_key, row_type_of(table)
        self._reads, self._is_keyed = reads, table.form == KEYED_ROWS
        self._archived = ArchivedRows(table, self.row_type.schema, reads.keys, reads.archived, reads.removed)

    @property
    def archived_files(self) -> list[ArchivedFile]:
        """The files of rows that left the state, the oldest first."""
        return self._archived.files

    @property
    def archived_by(self) -> str | None:
        """The column whose time selects files of the archive, if there is one."""
        return self._archived.by if self._archived.has_fixed_times else None

    def all(self, rows_max: int | None = ROWS_MAX, times: TimeRange = ANY_TIME) -> pa.Table:
        """Every row, possibly without rows outside of `times` (by `archived_by`); raises ProgramError for
        more than `rows_max` rows."""
        files = self._archived.within(times)
        count = sum(file.rows for file in files)
        blocks, counts = [self.row_type.schema.empty_table()], [np.zeros(0, dtype=np.int64)]
        self._check_count(count, rows_max)
        for rows, times_there in self._scanned():
            blocks.append(pa.Table.from_batches([rows]))
            counts.append(times_there)
            count += rows.num_rows if self._is_keyed else int(times_there.sum())
            self._check_count(count, rows_max)
        stored, stored_counts = pa.concat_tables(blocks), np.concatenate(counts)
        if self._is_keyed:
            return pa.concat_tables([self._archived.current(files, self._reads.view), stored]) if files else stored
        if files or (stored_counts < 0).any():
            stored, stored_counts = self._archived.counted(files, stored, stored_counts)
        return _repeated(stored, stored_counts)

    def _check_count(self, count: int, rows_max: int | None) -> None:
        if rows_max is not None and count > rows_max:
            raise ProgramError(
                f"table '{self.name}' has more than {rows_max:,} rows, the limit for one read. "
                f"{self._by_key()}, or allow more by 'table.live.rows-max'"
            )

    def _by_key(self) -> str:
        by_time = f", or by time: WHERE {self.archived_by} >= …" if self.archived_by and self.archived_files else ""
        if not self.primary_key:
            return f"Declare a PRIMARY KEY, and query rows by it{by_time}"
        return f"Query rows by key: WHERE {' AND '.join(f'{name} = …' for name in self.primary_key)}{by_time}"

    def of_keys(self, keys: pa.Array) -> pa.Table:
        """The rows of these primary keys: values of the one column, or a struct of several."""
        assert self._is_keyed
        view, schema = self._reads.view, self.row_type.schema
        if not len(keys):
            return schema.empty_table()
        column, rows = self._reads.keys.of_arrow(keys), schema.empty_table()
        if view is not None:
            lookup = view.get(column)
            if lookup.values is not None and len(lookup.values):
                rows = pa.Table.from_batches([self._rows(lookup.values)])
        if self.archived_files:
            rows = pa.concat_tables([self._archived.of_keys(column, view), rows])
        return rows

    def _scanned(self) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """Rows of the state, with the count of each."""
        if self._reads.view is None:
            return
        for block in self._reads.view.scan():
            if not block.num_rows:
                continue
            if self._is_keyed:
                yield self._rows(block.column("value")), np.ones(block.num_rows, dtype=np.int64)
            else:
                rows = block.column("key")
                columns = rows.flatten() if len(self.row_type.fields) > 1 else [rows]
                yield self._typed(columns), block.column("value").to_numpy()

    def _rows(self, values: pa.Array) -> pa.RecordBatch:
        return self._typed(values.flatten())

    def _typed(self, columns: list[pa.Array]) -> pa.RecordBatch:
        schema = self.row_type.schema
        typed = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(typed, schema=schema)


def _repeated(rows: pa.Table, counts: Int64s) -> pa.Table:
    """Each row repeated by its count."""
    return rows if (counts == 1).all() else rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
