"""Stored rows of OVER by time, keyed by partition; each row has a unique number and its time.

A waiting row is due at its time. A row stored for the lookback of later rows is due when no later row can reach it.
Numbers only increase, so rows with equal times stay in arrival order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.layout import NEVER_MS
from millstream.state.tables.state_table import StateTable

__all__ = ["StoredTimedRows", "TimedRows"]


@dataclass(frozen=True)
class TimedRows:
    """Rows as columns: partition keys, contents as one struct column, times, and numbers."""

    keys: KeyColumn
    contents: pa.Array
    times: Int64s
    numbers: Int64s

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Int64s) -> TimedRows:
        """The rows at these positions, in this order."""
        return TimedRows(self.keys.take(rows), self.contents.take(pa.array(rows)), self.times[rows], self.numbers[rows])

    @classmethod
    def concat(cls, pieces: Sequence[TimedRows]) -> TimedRows:
        """All rows, concatenated."""
        if len(pieces) == 1:
            return pieces[0]
        keys = KeyColumn.concat([rows.keys for rows in pieces])
        return cls(
            keys,
            pa.concat_arrays([rows.contents for rows in pieces]),
            np.concatenate([rows.times for rows in pieces]),
            np.concatenate([rows.numbers for rows in pieces]),
        )


class StoredTimedRows(StateHandle):
    """The stored rows of one subtask."""

    next_number: int
    numbers_rows = True

    def __init__(
        self,
        name: str,
        key_type: TypeInformation | None,
        max_parallelism: int,
        codec: StateCodec,
        scope: Scope,
        ttl_ms: int | None,
    ) -> None:
        table = StateTable(
            name,
            key_type,
            max_parallelism,
            codec,
            sub_type=pa.int64(),
            has_due=True,
            ttl_ms=ttl_ms,
            evolves=False,
        )
        super().__init__(table, scope)
        self._ttl_ms = ttl_ms

    def begin(self) -> None:
        self.next_number = self.table.rows_numbered

    def numbered(self, rows: TimedRows) -> TimedRows:
        """Arrived rows with the next numbers."""
        numbers = self.next_number + np.arange(len(rows))
        self.next_number += len(rows)
        return TimedRows(rows.keys, rows.contents, rows.times, numbers)

    def due(self, through_ms: int) -> TimedRows:
        """The stored rows that are due by that time."""
        if self.table.view.is_empty:
            return self._no_rows()
        return self._rows(self.table.view.scan_due(max(-NEVER_MS, min(NEVER_MS - 1, through_ms))))

    def of_keys(self, keys: KeyColumn) -> TimedRows:
        """The stored rows of these keys, which may repeat."""
        if not len(keys) or self.table.view.is_empty:
            return self._no_rows()
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        return self._rows(self.table.view.scan_keys(keys.take(distinct)))

    def _rows(self, rows: pa.RecordBatch) -> TimedRows:
        keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
        times, contents = rows.column("value").flatten()
        return TimedRows(keys, contents, times.to_numpy(), rows.column("sub").to_numpy())

    def _no_rows(self) -> TimedRows:
        none, layout = np.empty(0, dtype=np.int64), self.table.layout
        assert layout.value_type is not None
        keys = KeyColumn(none, pa.nulls(0, layout.stored_key_type))
        return TimedRows(keys, pa.nulls(0, layout.value_type[1].type), none, none)

    def store(self, rows: TimedRows, due_ms: Int64s, expires_ms: int | None = None) -> None:
        """Store rows, or replace the time at which stored ones are due."""
        if not len(rows):
            return
        kind = self.table.layout.value_type
        assert kind is not None
        values = pa.StructArray.from_arrays([pa.array(rows.times), rows.contents], fields=list(kind))
        expires = None if self._ttl_ms is None else np.full(len(rows), expires_ms or NEVER_MS, dtype=np.int64)
        self.table.changes.put(rows.keys, values, subs=pa.array(rows.numbers), due_ms=due_ms, expires_ms=expires)

    def remove(self, rows: TimedRows) -> None:
        """Delete stored rows."""
        if len(rows):
            self.table.changes.delete(rows.keys, subs=pa.array(rows.numbers))
