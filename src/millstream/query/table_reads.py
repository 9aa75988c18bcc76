"""The rows of a table of a job, at one epoch, as columns: all of them, or those of some keys.

A table is a state that a query keeps its result in (`state.stored.queryable`): rows by primary key, or each row as a
key with how often it is there. What is read is what the epoch's manifest names, and nothing later.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.query.keyed_reads import KeyedReads
from millstream.state.schemas.saved_sql_types import sql_type_from
from millstream.state.stored.queryable import KEYED_ROWS, Queryable

__all__ = ["ROWS_MAX", "TableReads", "row_type_of"]

ROWS_MAX = 1_000_000
"""How many rows of a table are read as a whole, unless more are allowed."""


def row_type_of(table: Queryable) -> RowType:
    """The columns of a table, as SQL has them."""
    types: list[DataType] = [sql_type_from(written) for _, written in table.columns]
    return RowType.of([name for name, _ in table.columns], types, nullable=False)


class TableReads:
    """One table."""

    def __init__(self, name: str, table: Queryable, reads: KeyedReads) -> None:
        self.name, self.primary_key, self.row_type = name, table.primary_key, row_type_of(table)
        self._reads, self._is_keyed = reads, table.form == KEYED_ROWS

    @property
    def rows_stored(self) -> int:
        """At most so many rows are stored: versions that were replaced since are counted, too."""
        view = self._reads.view
        return 0 if view is None else sum(ref.rows for ref in view.refs)

    def all(self, rows_max: int | None = ROWS_MAX) -> pa.Table:
        """Every row; ProgramError where there are more than `rows_max`."""
        batches, count = [], 0
        for batch in self._scanned():
            batches.append(batch)
            count += batch.num_rows
            if rows_max is not None and count > rows_max:
                raise ProgramError(
                    f"table '{self.name}' has more than {rows_max:,} rows, which is as many as are read at once. "
                    f"{self._by_key()}, or allow more by 'table.live.rows-max'"
                )
        return pa.Table.from_batches(batches, schema=self.row_type.schema)

    def _by_key(self) -> str:
        if not self.primary_key:
            return "Declare a PRIMARY KEY, and ask for rows by it"
        return f"Ask for rows by key: WHERE {' AND '.join(f'{name} = …' for name in self.primary_key)}"

    def of_keys(self, keys: pa.Array) -> pa.Table:
        """The rows of these primary keys: values of the one column, or a struct of several."""
        assert self._is_keyed
        view = self._reads.view
        if view is None or not len(keys):
            return self.row_type.schema.empty_table()
        lookup = view.get(self._reads.keys.of_arrow(keys))
        rows = [] if lookup.values is None or not len(lookup.values) else [self._rows(lookup.values)]
        return pa.Table.from_batches(rows, schema=self.row_type.schema)

    def _scanned(self) -> Iterator[pa.RecordBatch]:
        if self._reads.view is None:
            return
        for block in self._reads.view.scan():
            if not block.num_rows:
                continue
            if self._is_keyed:
                yield self._rows(block.column("value"))
            else:
                yield self._repeated(block.column("key"), block.column("value").to_numpy())

    def _rows(self, values: pa.Array) -> pa.RecordBatch:
        return self._typed(values.flatten())

    def _repeated(self, rows: pa.Array, counts: np.ndarray) -> pa.RecordBatch:
        columns = rows.flatten() if len(self.row_type.fields) > 1 else [rows]
        if (counts != 1).any():
            at = pa.array(np.repeat(np.arange(len(counts)), counts))
            columns = [column.take(at) for column in columns]
        return self._typed(columns)

    def _typed(self, columns: list[pa.Array]) -> pa.RecordBatch:
        schema = self.row_type.schema
        typed = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(typed, schema=schema)
