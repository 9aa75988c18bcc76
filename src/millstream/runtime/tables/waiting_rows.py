"""Rows of one side of a join by time: kept until nothing can meet them, and then told, if nothing did.

A row that waits for a first partner is due at the time from which on none can come, and is found by that. One that has
met a partner, or that nobody asks for when it had none, just expires at that time: it is never due.
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
    """Rows of which some are written again, or taken away before they expire: no segment is forgotten by itself, for a
    row in an older one might come back. Compaction drops what has expired."""

    def _forget(self) -> None:
        pass


class WaitingRows(JoinedRows):
    """The rows of one side, in one subtask."""

    def partners(self, keys: KeyColumn) -> tuple[SignedRows, Int64s, Bools]:
        """The rows of these keys, which may repeat, with the time each is kept until, and which of them wait."""
        if not len(keys) or self.table.view.is_empty:
            none = np.empty(0, dtype=np.int64)
            return self.no_rows(), none, none.astype(np.bool_)
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        found = self.table.view.scan_keys(keys.take(distinct))
        order = np.argsort(found.column("sub").to_numpy(), kind="stable")
        due, expires = (plain_view(found.column(name))[order] for name in ("due_ms", "expires_ms"))
        waits = due < NEVER_MS
        return self._rows(found), np.where(waits, due, expires), waits

    def keep(self, rows: SignedRows, until_ms: Int64s, waits: Bools) -> None:
        """Add rows; those that wait are due when their time has come."""
        if len(rows):
            numbers = self.next_number + np.arange(len(rows))
            self.next_number += len(rows)
            self._put(rows, numbers, until_ms, waits)

    def end_waiting(self, rows: SignedRows, until_ms: Int64s) -> None:
        """Stored rows have met a partner."""
        if len(rows):
            self._put(rows, rows.numbers, until_ms, np.zeros(len(rows), dtype=np.bool_))

    def _put(self, rows: SignedRows, numbers: Int64s, until_ms: Int64s, waits: Bools) -> None:
        due, expires = np.where(waits, until_ms, NEVER_MS), np.where(waits, NEVER_MS, until_ms)
        self.table.changes.put(rows.keys, rows.contents, subs=pa.array(numbers), due_ms=due, expires_ms=expires)

    def take_due(self, through_ms: int) -> tuple[SignedRows, Int64s]:
        """The rows that have waited in vain, with their times; they are let go of. What was put before is seen."""
        self.table.settle()
        rows, due = self.due_through(through_ms)
        self.remove(rows)
        return rows, due

    def earliest_due(self) -> int | None:
        """When the first row that waits is due; None where none waits."""
        self.table.settle()
        return self.table.view.min_due()
