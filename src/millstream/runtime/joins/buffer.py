"""Stored rows of one side of a join that the other side may still match, by key and time.

A row is a record with its key and timestamp. Rows are only added, and expire by time: each has the time from which no
row can match it, and is not read afterwards. Compaction drops such rows, and a segment with only expired rows is no
longer referenced, so expiring a million rows writes nothing.

Time here is event time: the watermark at the epoch's start. Invariant: within an epoch, reads see the buffer as of the
epoch's start; additions are visible in the next epoch. The rows of a key are in insertion order, regardless of
compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn, plain_view
from millstream.state.segments.lookup import Layer, Probe, expanded, find_runs
from millstream.state.segments.segment import Chunk
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.layout import NEVER_MS, hashes_of, orders_in
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.state.tables.table import TableView

__all__ = ["RowBuffer", "RowTable", "SideRows", "moved_times"]

# Looking up a key costs about as much as scanning this many rows.
_ROWS_PER_LOOKUP = 8


@dataclass(frozen=True)
class SideRows:
    """Rows of one side. `contents` has the records as one column: structs, plain values, or pickles."""

    keys: KeyColumn
    times: Int64s
    contents: pa.Array

    @classmethod
    def concat(cls, pieces: Sequence[SideRows]) -> SideRows:
        """All rows, concatenated."""
        if len(pieces) == 1:
            return pieces[0]
        return cls(
            KeyColumn.concat([rows.keys for rows in pieces]),
            np.concatenate([rows.times for rows in pieces]),
            pa.concat_arrays([rows.contents for rows in pieces]),
        )

    def take(self, rows: Int64s) -> SideRows:
        """The rows at these positions."""
        return SideRows(self.keys.take(rows), self.times[rows], self.contents.take(pa.array(rows)))

    def __len__(self) -> int:
        return len(self.times)


class RowTable(StateTable):
    """Rows (key, number) → record, due at their timestamp; read at `time_ms` of event time."""

    def __init__(
        self,
        name: str,
        key_type: TypeInformation | None,
        max_parallelism: int,
        value: StateCodec,
        *,
        evolves: bool = True,
    ) -> None:
        super().__init__(
            name, key_type, max_parallelism, value, sub_type=pa.int64(), has_due=True, ttl_ms=0, evolves=evolves
        )
        self.time_ms = -NEVER_MS

    def begin(self, setting: TableSetting, refs: Sequence[SegmentRef]) -> None:
        super().begin(replace(setting, now_ms=self.time_ms), refs)
        self._drop_expired()

    def end(self) -> tuple[SegmentRef, ...]:
        """End like any table, after dropping rows that expired during the epoch: `time_ms` has advanced."""
        self._setting = replace(self._setting, now_ms=self.time_ms)
        self._drop_expired()
        return super().end()

    def _drop_expired(self) -> None:
        """Stop referencing segments in which every row has expired."""
        view = self.view
        layers = zip(view.refs, view.layers, strict=False)  # unwritten changes are not a segment
        needed = [ref for ref, layer in layers if self._is_needed(layer)]
        if len(needed) < len(view.refs):
            self.view = TableView(self._setting.segments, self.layout, needed, self._setting.groups, self.time_ms)

    def _is_needed(self, layer: Layer) -> bool:
        return any(entry.expires_max_ms > self.time_ms for entry in layer.segment.entries)


class RowBuffer(StateHandle):
    """The rows of one side in one subtask. Rows are numbered as they are added, so that numbers are unique within a key
    and follow insertion order."""

    table: RowTable
    next_number: int
    numbers_rows = True

    def __init__(self, table: RowTable, scope: Scope) -> None:
        super().__init__(table, scope)

    def begin(self) -> None:
        """Reset to the next number, the only state here: added rows are passed to the table at once."""
        self.next_number = self.table.rows_numbered

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored."""
        return self.table.view.is_empty

    def add(self, rows: SideRows, expires_ms: Int64s) -> None:
        """Store rows for later epochs, until event time reaches their expiry."""
        if not len(rows):
            return
        numbers = self.next_number + np.arange(len(rows))
        self.next_number += len(rows)
        self.table.changes.put(
            rows.keys, rows.contents, subs=pa.array(numbers), due_ms=rows.times, expires_ms=expires_ms
        )

    def candidates(self, keys: KeyColumn, first_ms: int, last_ms: int) -> SideRows:
        """Rows with these times: at least all rows of the given keys, which may repeat. Looks up the keys or scans,
        whichever is cheaper."""
        stored = sum(ref.rows for ref in self.table.view.refs)
        if stored <= _ROWS_PER_LOOKUP * len(keys):
            return self.between(first_ms, last_ms)
        return self.of_keys(keys, first_ms, last_ms)

    def of_keys(self, keys: KeyColumn, first_ms: int, last_ms: int) -> SideRows:
        """The rows with these keys, which may repeat, and times."""
        distinct = np.unique(key_numbers([keys.array])[0], return_index=True)[1]
        probe = Probe.of(keys.take(distinct), self.table.layout)
        pieces = (
            (runs.chunk, expanded(runs.starts, runs.stops)[0])
            for layer in self.table.view.layers
            for runs in find_runs(layer.segment, probe, np.arange(len(probe))[layer.among(probe.orders)])
        )
        return self._rows(pieces, first_ms, last_ms)

    def between(self, first_ms: int, last_ms: int) -> SideRows:
        """All rows with these times, both bounds inclusive."""
        return self._rows(self._chunks(first_ms, last_ms), first_ms, last_ms)

    def _chunks(self, first_ms: int, last_ms: int) -> Iterator[tuple[Chunk, Int64s]]:
        for layer in self.table.view.layers:
            for number, entry in enumerate(layer.segment.entries):
                if entry.due_min_ms <= last_ms and entry.due_max_ms >= first_ms:
                    chunk = layer.segment.chunk(number)
                    yield chunk, np.arange(chunk.rows)[layer.among(chunk.orders)]

    def _rows(self, pieces: Iterable[tuple[Chunk, Int64s]], first_ms: int, last_ms: int) -> SideRows:
        """The live rows of chunks within these times. Rows are never changed, so newer versions need not be looked
        up."""
        sides = []
        for chunk, rows in pieces:
            assert chunk.due_ms is not None and chunk.values is not None
            due = chunk.due_ms[rows]
            rows = rows[chunk.are_live(rows, self.table.view.now_ms) & (due >= first_ms) & (due <= last_ms)]
            if len(rows):
                sides.append(_side_rows(chunk, rows))
        return SideRows.concat(sides) if sides else self.no_rows()

    def no_rows(self) -> SideRows:
        """No rows, with the buffer's types."""
        none, layout = np.empty(0, dtype=np.int64), self.table.layout
        return SideRows(KeyColumn(none, pa.nulls(0, layout.stored_key_type)), none, pa.nulls(0, layout.value_type))


def _side_rows(chunk: Chunk, rows: Int64s) -> SideRows:
    """Rows of a chunk, in ascending order; a complete chunk is not copied."""
    batch = chunk.batch if len(rows) == chunk.rows else chunk.batch.take(pa.array(rows))
    hashes = hashes_of(orders_in(batch), plain_view(batch.column("rest")).view(np.uint16))
    return SideRows(KeyColumn(hashes, batch.column("key")), plain_view(batch.column("due_ms")), batch.column("value"))


def moved_times(times: Int64s, by_ms: int) -> Int64s:
    """Times moved by `by_ms`, clamped to the range of times.

    >>> moved_times(np.array([5, 2**63 - 2]), 3).tolist() == [8, 2**63 - 1]
    True
    """
    lowest, highest = -(2**63), 2**63 - 1
    if by_ms > 0:
        return np.minimum(times, highest - by_ms) + by_ms
    return np.maximum(times, lowest - by_ms) + by_ms
