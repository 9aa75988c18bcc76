"""The rows that Top-N keeps of partitions, and rows as it emits them. `rank` and `window_rank` share these."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn

__all__ = ["Lots", "RankedRows", "emitted_rows"]

# Text is given as places in the rows it stands in, if those are not many more than the rows that are given.
_DICTIONARY_ROOM = 2


class RankedRows(JoinedRows):
    """The stored rows of partitions."""

    def of_partitions(self, keys: KeyColumn) -> tuple[SignedRows, Int64s]:
        """The rows of these keys, those of each as they came, and for every row which of the keys it has."""
        if self.table.view.is_empty:
            return self.no_rows(), np.empty(0, dtype=np.int64)
        rows = self.stored_rows(keys)
        return self.stored_as(rows), rows.column("position").to_numpy()


class Lots:
    """Rows that are stored and rows that are added, as if they stood one after another: of wide rows only the columns
    that are asked for are put together."""

    def __init__(self, before: SignedRows, added: SignedRows, partitions: Int64s) -> None:
        self.before, self.added, self.partitions = before, added, partitions
        self._columns = [rows.contents.flatten() for rows in (before, added)]
        self._whole: dict[int, pa.Array] = {}

    def __len__(self) -> int:
        return len(self.partitions)

    def column(self, number: int, rows: Int64s) -> pa.Array:
        """A column of some of the rows."""
        if number not in self._whole:
            self._whole[number] = pa.concat_arrays([columns[number] for columns in self._columns])
        whole = self._whole[number]
        is_all = len(rows) == len(whole) and len(rows) and rows[0] == 0 and (np.diff(rows) == 1).all()
        return whole if is_all else whole.take(pa.array(rows))


def emitted_rows(schema: pa.Schema, rows: SignedRows, numbers: Int64s, chosen: Int64s) -> pa.RecordBatch:
    """The chosen rows as they are emitted, with their numbers where the schema has a column for them. Text is pointed
    at where that is less than copying it: who needs it spelt out does that once."""
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
