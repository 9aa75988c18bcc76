"""Stored partitions of Top-N and its output rows. `rank` and `window_rank` share these."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn

__all__ = ["CandidateRows", "RankedRows", "emitted_rows"]

# Text is emitted dictionary-encoded if the source rows are not many more than the emitted ones.
_DICTIONARY_ROOM = 2


class RankedRows(JoinedRows):
    """The stored rows of partitions."""

    def of_partitions(self, keys: KeyColumn) -> tuple[SignedRows, Int64s]:
        """The rows of these keys, each key's in arrival order, and for every row the index of its key."""
        if self.table.view.is_empty:
            return self.no_rows(), np.empty(0, dtype=np.int64)
        rows = self.stored_rows(keys)
        return self.stored_as(rows), rows.column("position").to_numpy()


class CandidateRows:
    """Stored and added rows as one concatenation; only requested columns are concatenated."""

    def __init__(self, before: SignedRows, added: SignedRows, partitions: Int64s) -> None:
        self.before, self.added, self.partitions = before, added, partitions
        self._columns = [rows.contents.flatten() for rows in (before, added)]
        self._whole: dict[int, pa.Array] = {}

    def __len__(self) -> int:
        return len(self.partitions)

    def column(self, number: int, rows: Int64s) -> pa.Array:
        """A column of some rows."""
        if number not in self._whole:
            self._whole[number] = pa.concat_arrays([columns[number] for columns in self._columns])
        whole = self._whole[number]
        is_all = len(rows) == len(whole) and len(rows) and rows[0] == 0 and (np.diff(rows) == 1).all()
        return whole if is_all else whole.take(pa.array(rows))


def emitted_rows(schema: pa.Schema, rows: SignedRows, numbers: Int64s, chosen: Int64s) -> pa.RecordBatch:
    """The chosen rows as they are emitted, with their numbers if the schema has a column for them. Text is
    dictionary-encoded where that is cheaper than copying."""
    at = pa.array(chosen)
    is_dense = len(rows) <= _DICTIONARY_ROOM * len(chosen)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(chosen.astype(np.int32)), column)
        if is_dense and pa.types.is_string(column.type)
        else column.take(at)
        for column in rows.contents.flatten()
    ]
    if len(columns) < len(schema):
        columns.append(pa.array(numbers))
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
