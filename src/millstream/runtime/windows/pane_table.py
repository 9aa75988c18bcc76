"""Stored panes: rows (key, start of the pane) → accumulators, due at their end; they expire with the last window that
needs them.

Time is the windows' time: event time or processing time. A pane that no window needs any more is never read again:
compaction drops it, and a segment that holds only such panes is no longer referenced. Nothing is written to remove
them, so closing a million windows writes nothing.

Invariant: within an epoch, reads see the table as of the epoch's start; changes are applied once, at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.aggregation.groups import groups_of_pairs
from millstream.aggregation.pane_rows import Accumulators, PaneRows
from millstream.common.typeinfo import TypeInformation
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn, key_column_of_arrow
from millstream.state.segments.sorting import ascending
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.layout import NEVER_MS, orders_of
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["PaneHandle", "PaneTable"]


class PaneTable(StateTable):
    """The table, read at `time_ms` of the windows' own time."""

    def __init__(
        self, name: str, key_type: TypeInformation, max_parallelism: int, value: StateCodec, windows: PaneWindows
    ) -> None:
        super().__init__(
            name, key_type, max_parallelism, value, sub_type=pa.int64(), has_due=True, ttl_ms=0, evolves=False
        )
        self.time_ms = -NEVER_MS
        self._windows = windows

    def begin(self, setting: TableSetting, refs: Sequence[SegmentRef]) -> None:
        setting = replace(setting, now_ms=self.time_ms)
        super().begin(setting, refs)
        needed = [ref for ref, (_, latest) in zip(self.view.refs, self.ends(), strict=True) if self._is_needed(latest)]
        if len(needed) < len(self.view.refs):
            super().begin(setting, needed)

    def ends(self) -> list[tuple[int, int]]:
        """For every segment, the end times of its earliest and latest panes."""
        segments = [layer.segment.entries for layer in self.view.layers]
        return [(min(c.due_min_ms for c in chunks), max(c.due_max_ms for c in chunks)) for chunks in segments]

    def _is_needed(self, latest_end_ms: int) -> bool:
        """Whether a pane with this end (and so any later pane) is still needed."""
        return int(self._windows.expiry_ms(np.array([latest_end_ms - self._windows.pane_ms]))[0]) > self.time_ms


class PaneHandle(StateHandle):
    """The panes of one operator in one subtask, as rows. Changes go to the table at once."""

    table: PaneTable

    def __init__(self, table: PaneTable, scope: Scope, windows: PaneWindows, accumulators: Accumulators) -> None:
        super().__init__(table, scope)
        self._windows = windows
        self._accumulators = accumulators

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored."""
        return self.table.view.is_empty

    def ending(self, after_ms: int, through_ms: int) -> PaneRows:
        """The panes that end after `after_ms` and not after `through_ms`, unordered."""
        batches = self.table.view.scan_due_changes(_within(through_ms), after_ms=_within(after_ms))
        pieces = [self._rows(KeyColumn(rows.column("hash").to_numpy(), rows.column("key")), rows) for rows in batches]
        if not pieces:
            return self.of_keys(key_column_of_arrow(pa.nulls(0, self.table.layout.stored_key_type)))
        rows = PaneRows.concat(pieces)
        if len(pieces) == 1:
            return rows
        # The start of a pane determines its end, so all versions of a pane are in this range: the last counts.
        groups = groups_of_pairs(rows.keys.array, pa.array(rows.panes))
        if groups.count == len(rows):
            return rows
        is_newest = np.zeros(len(rows), dtype=np.bool_)
        is_newest[groups.lasts()] = True
        return rows.take(np.flatnonzero(is_newest))

    @property
    def rows_stored(self) -> int:
        """An upper bound of the number of rows."""
        return sum(ref.rows for ref in self.table.view.refs)

    def of_keys(self, keys: KeyColumn) -> PaneRows:
        """All panes of these keys."""
        rows = self.table.view.scan_keys(keys)
        return self._rows(KeyColumn(rows.column("hash").to_numpy(), rows.column("key")), rows)

    def of_pairs(self, keys: KeyColumn, panes: Int64s) -> PaneRows:
        """The panes among these that are stored."""
        # Panes that start in this epoch are later than all stored panes and need no search.
        stored = self.table.ends()
        earliest = min((first for first, _ in stored), default=NEVER_MS) - self._windows.pane_ms
        latest = max((last for _, last in stored), default=-NEVER_MS) - self._windows.pane_ms
        near = np.flatnonzero((panes >= earliest) & (panes <= latest))
        if len(near) < len(panes):
            keys, panes = keys.take(near), panes[near]
        lookup = self.table.view.get_pairs(keys, pa.array(panes))
        assert lookup.values is not None
        at = np.flatnonzero(lookup.mask)
        return PaneRows(keys.take(at), panes[at], self._accumulators.read(lookup.values))

    def _rows(self, keys: KeyColumn, rows: pa.RecordBatch) -> PaneRows:
        return PaneRows(keys, rows.column("sub").to_numpy(), self._accumulators.read(rows.column("value")))

    def put(self, rows: PaneRows, at: Int64s) -> None:
        """Store the panes at these positions of the rows."""
        hashes = (rows.keys if len(at) == len(rows) else rows.keys.take(at)).hashes
        # Sort in segment order first, so that rows are copied only once.
        order = ascending(orders_of(hashes, self.table.layout.max_parallelism))
        rows = rows.take(at[order])
        self.table.changes.put(
            KeyColumn(hashes[order], rows.keys.array),
            self._accumulators.stored(rows.parts),
            subs=pa.array(rows.panes),
            due_ms=rows.panes + self._windows.pane_ms,
            expires_ms=self._windows.expiry_ms(rows.panes),
        )

    def earliest_end(self, after_ms: int) -> int | None:
        """The earliest end of a stored pane after this time."""
        return None if self.is_empty else self.table.view.min_due(after_ms=_within(after_ms))


def _within(time_ms: int) -> int:
    """The time clamped to the range that the store holds, excluding NEVER."""
    return max(-NEVER_MS, min(NEVER_MS - 1, time_ms))
