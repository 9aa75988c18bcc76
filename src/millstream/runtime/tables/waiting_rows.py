"""Stored rows of one side of a time join. They expire when no later row can match them; unmatched ones are then
emitted.

A row waiting for its first match is due when no match can arrive any more, and is located by that time. A row that was
matched, or that need not be emitted, expires at that time and is never due.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, plain_view
from millstream.state.tables.layout import NEVER_MS

__all__ = ["WaitingRows", "WaitingTable"]


class WaitingTable(RowTable):
    """A table in which some rows are rewritten or deleted before they expire. Segments are not dropped whole, since a
    row in an older segment might reappear. Compaction drops expired rows."""

    def _drop_expired(self) -> None:
        pass


class WaitingRows(JoinedRows):
    """The rows of one side in one subtask."""

    def waiting_matches(self, keys: KeyColumn) -> tuple[SignedRows, Int64s, Bools]:
        """The rows of these keys, which may repeat; their expiry times; and a mask of the waiting rows."""
        if not len(keys) or self.table.view.is_empty:
            none = np.empty(0, dtype=np.int64)
            return self.no_rows(), none, none.astype(np.bool_)
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        stored = self.table.view.scan_keys(keys.take(distinct))
        order = np.argsort(stored.column("sub").to_numpy(), kind="stable")
        due, expires = (plain_view(stored.column(name))[order] for name in ("due_ms", "expires_ms"))
        is_waiting = due < NEVER_MS
        return self._rows(stored), np.where(is_waiting, due, expires), is_waiting

    def add_waiting(self, rows: SignedRows, until_ms: Int64s, is_waiting: Bools) -> None:
        """Add rows; waiting ones are due at their time."""
        if len(rows):
            numbers = self.next_number + np.arange(len(rows))
            self.next_number += len(rows)
            self._put(rows, numbers, until_ms, is_waiting)

    def end_waiting(self, rows: SignedRows, until_ms: Int64s) -> None:
        """Mark stored rows as matched."""
        if len(rows):
            self._put(rows, rows.numbers, until_ms, np.zeros(len(rows), dtype=np.bool_))

    def _put(self, rows: SignedRows, numbers: Int64s, until_ms: Int64s, is_waiting: Bools) -> None:
        due, expires = np.where(is_waiting, until_ms, NEVER_MS), np.where(is_waiting, NEVER_MS, until_ms)
        self.table.changes.put(rows.keys, rows.contents, subs=pa.array(numbers), due_ms=due, expires_ms=expires)

    def take_due(self, through_ms: int) -> tuple[SignedRows, Int64s]:
        """Remove and return the rows that were never matched, with their times. Includes this epoch's writes."""
        self.table.settle()
        rows, due = self.due_through(through_ms)
        self.remove(rows)
        return rows, due

    def earliest_due(self) -> int | None:
        """The earliest due time of a waiting row; None if no row waits."""
        self.table.settle()
        return self.table.view.min_due()
