"""The changes a task makes to a table in one epoch, collected in bulk and written as one segment.

Puts, deletes and clears arrive as whole columns, in order. Sorting is deferred: `rows` resolves them, once, to the
surviving changes (the last change of every row, except changes voided by a later clear) in the order of a segment, and
`write` writes these to the store. Columns whose type differs from the layout's are rejected; the previous content of
the table is never read.

Changes are held in memory, so their collector may pass a callback (`overflow`) that is called when they exceed a number
of bytes, to write them and start over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.errors import TypeMismatchError
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.segments.resolution import surviving_rows
from millstream.state.segments.segment_writer import CHUNK_ROWS, chunk_cuts, write_segment
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import (
    CLEAR,
    DELETE,
    FIRST_SUB,
    NEVER_MS,
    PUT,
    TableLayout,
    orders_in,
    orders_of,
    rests_of,
)
from millstream.storage.store import Store

__all__ = ["CHANGED_BYTES_MAX", "TableChanges"]

CHANGED_BYTES_MAX = 96 << 20
"""The bound of changes in memory, in bytes; sorting and writing needs as much again."""

_FILE_BYTES = 2_300
"""The approximate overhead of a segment: schema, footers, padding."""


class TableChanges:
    """Changes to one table, oldest first.

    >>> from millstream.state.keys.key_columns import key_column
    >>> changes = TableChanges(TableLayout("total", None, value_type=pa.int64()))
    >>> changes.put(key_column(["a", "b"], None), pa.array([1, 2]))
    >>> changes.delete(key_column(["a"], None))
    >>> sorted(zip(changes.rows().column("kind").to_pylist(), changes.rows().column("value").to_pylist()))
    [(0, 2), (1, None)]
    """

    def __init__(self, layout: TableLayout, overflow: Callable[[], None] | None = None) -> None:
        self.layout = layout
        self._overflow = overflow
        self._held_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._sorted_count = 0  # the number of leading batches that are sorted and unique
        self._rows: pa.RecordBatch | None = None

    def __bool__(self) -> bool:
        return bool(self._batches)

    def put(
        self,
        keys: KeyColumn,
        values: pa.Array | None = None,
        *,
        subs: pa.Array | None = None,
        due_ms: NDArray[np.int64] | None = None,
        expires_ms: NDArray[np.int64] | None = None,
    ) -> None:
        """Set the row of every key (and sub). A row without due or expiry time is never due and never expires."""
        columns: dict[str, Any] = {"value": values, "due_ms": due_ms, "expires_ms": expires_ms}
        self._add(PUT, keys, subs, columns)

    def delete(self, keys: KeyColumn, *, subs: pa.Array | None = None) -> None:
        """Remove the row of every key (and sub), whether it exists or not."""
        self._add(DELETE, keys, subs, {})

    def clear(self, keys: KeyColumn) -> None:
        """Remove all rows of every key, of any sub."""
        if self.layout.sub_type is None:
            self._add(DELETE, keys, None, {})
        else:
            self._add(CLEAR, keys, None, {})

    def rows(self) -> pa.RecordBatch:
        """The surviving changes, sorted as in a segment."""
        if self._rows is None:
            whole = self._whole()
            self._rows = _take(whole, surviving_rows(whole, self.layout))
        return self._rows

    def settle(self) -> pa.RecordBatch | None:
        """The surviving changes since the last call, sorted as in a segment; None without changes."""
        fresh = self._batches[self._sorted_count :]
        if not fresh:
            return None
        whole = pa.concat_batches(fresh) if len(fresh) > 1 else fresh[0]
        rows = _take(whole, surviving_rows(whole, self.layout))
        self._batches[self._sorted_count :] = [rows]
        self._sorted_count += 1
        return rows

    def unwritten_ref(self, name: str, epoch: int, groups: range) -> SegmentRef:
        """An estimate of the ref that `write` would return, counting all changes, superseded ones included."""
        rows = sum(batch.num_rows for batch in self._batches)
        edges = (groups.start, groups.stop)
        return SegmentRef(name, epoch, *edges, *edges, rows, self._held_bytes + _FILE_BYTES)

    def write(
        self, store: Store, name: str, epoch: int, groups: range, *, chunk_rows: int = CHUNK_ROWS
    ) -> SegmentRef | None:
        """Write the surviving changes as the segment `name` of `epoch`, durably; None without changes."""
        if not self._batches:
            return None
        if self._rows is not None:
            whole, survivors = self._rows, np.arange(self._rows.num_rows)
        else:
            whole = self._whole()
            survivors = surviving_rows(whole, self.layout)
        cuts = chunk_cuts(orders_in(whole)[survivors], chunk_rows)
        # One chunk at a time: a sorted copy of everything would be as large as the changes.
        chunks = (_take(whole, survivors[a:b]) for a, b in itertools.pairwise(cuts))
        return write_segment(store, name, self.layout, epoch, groups, chunks, chunks_max=len(cuts))

    def _whole(self) -> pa.RecordBatch:
        if not self._batches:
            return pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        if len(self._batches) > 1:
            self._batches, self._sorted_count = [pa.concat_batches(self._batches)], 0
        return self._batches[0]

    def _add(self, kind: int, keys: KeyColumn, subs: pa.Array | None, values_by_column: dict[str, Any]) -> None:
        if not len(keys):
            return
        layout, count = self.layout, len(keys)
        columns: dict[str, Any] = {
            "order": pa.array(orders_of(keys.hashes, layout.max_parallelism)),
            "rest": pa.array(rests_of(keys.hashes)),
            "key": self._of_type("keys", keys.array, layout.stored_key_type),
            "kind": pa.array(np.full(count, kind, dtype=np.uint8)),
        }
        if layout.sub_type is not None:
            columns.update(self._sub_columns(kind, subs, count))
        elif subs is not None:
            raise ValueError(f"state {layout.state!r} has no subs")
        for name, has, absent in (
            ("due_ms", layout.has_due, NEVER_MS),
            ("expires_ms", layout.has_ttl, NEVER_MS),
        ):
            times = values_by_column.get(name)
            if times is not None and not has:
                raise ValueError(f"state {layout.state!r} has no column {name}")
            columns[name] = pa.array(np.full(count, absent) if times is None else times, pa.int64())
        if layout.value_type is not None:
            values = values_by_column.get("value")
            if kind == PUT and values is None:
                raise ValueError(f"state {layout.state!r}: a put without values")
            absent_values = pa.nulls(count, layout.value_type) if values is None else values
            columns["value"] = self._of_type("values", absent_values, layout.value_type)
        arrays = [columns[name] for name in layout.schema.names]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=layout.schema))
        self._rows = None
        self._held_bytes += self._batches[-1].nbytes
        if self._overflow is not None and self._held_bytes > CHANGED_BYTES_MAX:
            self._overflow()

    def _sub_columns(self, kind: int, subs: pa.Array | None, count: int) -> dict[str, Any]:
        layout = self.layout
        if kind == CLEAR:
            first = np.full(count, FIRST_SUB, dtype=np.int64)
            if layout.has_ordered_sub:
                return {"sub": pa.array(first).view(layout.sub_type)}
            return {"sub": pa.nulls(count, layout.sub_type), "sub_order": pa.array(first)}
        if subs is None:
            raise ValueError(f"state {layout.state!r} needs a sub for every row")
        subs = self._of_type("subs", subs, layout.sub_type)
        return {"sub": subs, "sub_order": pa.array(layout.sub_orders(subs))}

    def _of_type(self, part: str, array: pa.Array | pa.ChunkedArray, expected_type: pa.DataType | None) -> pa.Array:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if array.type == expected_type:
            return array
        raise TypeMismatchError(
            f"state {self.layout.state!r} has {part} of {expected_type}, found {array.type}. Cast them, or declare the "
            "state anew.",
            value=array,
        )


def _take(batch: pa.RecordBatch, rows: Int64s) -> pa.RecordBatch:
    """The rows, without a copy if they are already in order."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows) and (np.diff(rows) == 1).all():
        return batch.slice(int(rows[0]), len(rows))
    return batch.take(pa.array(rows))
