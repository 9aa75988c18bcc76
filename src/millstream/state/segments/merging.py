"""Merges segments into a stream of sorted blocks, with only the newest change of every row.

Scans and compaction read several segments at once. Each step takes from every layer the rows below a common order, few
enough that a block stays small (in rows and in bytes: an Arrow column is limited to 2 GiB), and resolves them together.
No order is split, so a block is complete for its keys. Memory is bounded by the block and by the rows of the largest
single key; mapped bytes are not held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, plain_view
from millstream.state.segments.lookup import Layer
from millstream.state.segments.resolution import surviving_rows
from millstream.state.segments.segment import Chunk
from millstream.state.tables.layout import PUT, TableLayout, hashes_of, kinds_of, orders_in

__all__ = ["BLOCK_BYTES", "BLOCK_ROWS", "live_rows", "merged_blocks", "presented"]

BLOCK_ROWS, BLOCK_BYTES = 65_536, 64 << 20
_LAYER_ROWS_MIN = 1_024


class _Cursor:
    """The read position in one layer: a chunk, and a row of it."""

    def __init__(self, layer: Layer, order_start: int, order_stop: int) -> None:
        self._segment = layer.segment
        self._stop = min(order_stop, layer.order_stop)
        start = max(order_start, layer.order_start)
        entries = self._segment.entries
        self._number = next((n for n, entry in enumerate(entries) if entry.last_order >= start), len(entries))
        self._row = 0
        if self._is_in_chunk():
            self._row = int(self._chunk.orders.searchsorted(np.uint64(start)))

    def _is_in_chunk(self) -> bool:
        """Whether another chunk begins within the range; needs only the footer."""
        entries = self._segment.entries
        return self._number < len(entries) and entries[self._number].first_order < self._stop

    @property
    def _chunk(self) -> Chunk:
        return self._segment.chunk(self._number)

    def is_done(self) -> bool:
        """Whether all rows of the range are consumed."""
        return not self._is_in_chunk() or int(self._chunk.orders[self._row]) >= self._stop

    def reach(self, rows_max: int, bytes_max: int) -> int:
        """An order with about `rows_max` more rows below it, or fewer with about `bytes_max`; all in the current
        chunk."""
        orders, entry = self._chunk.orders, self._segment.entries[self._number]
        # Unwritten rows have no known length and are small.
        rows = min(rows_max, max(bytes_max * entry.rows // entry.length, 1)) if entry.length else rows_max
        if self._row + rows >= len(orders):
            return min(int(orders[-1]) + 1, self._stop)
        reached = int(orders[self._row + rows])
        return min(max(reached, int(orders[self._row]) + 1), self._stop)

    def take_below(self, order: int) -> pa.RecordBatch:
        """Consume and return the remaining rows with smaller orders."""
        chunk, start = self._chunk, self._row
        # Rows before `start` may have smaller orders too: this layer is not live for them.
        stop = max(int(chunk.orders.searchsorted(np.uint64(order))), start)
        if stop == chunk.rows:
            self._number, self._row = self._number + 1, 0
        else:
            self._row = stop
        return chunk.batch.slice(start, stop - start)


def merged_blocks(
    layers: Sequence[Layer],
    layout: TableLayout,
    order_start: int,
    order_stop: int,
    block_rows: int = BLOCK_ROWS,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The newest changes of all layers (oldest first) together, for a range of orders."""
    cursors = [_Cursor(layer, order_start, order_stop) for layer in layers]
    while True:
        cursors = [cursor for cursor in cursors if not cursor.is_done()]
        if not cursors:
            return
        share = max(block_rows // len(cursors), min(_LAYER_ROWS_MIN, block_rows))
        below = min(cursor.reach(share, block_bytes // len(cursors)) for cursor in cursors)
        slices = [rows for rows in (cursor.take_below(below) for cursor in cursors) if rows.num_rows]
        if len(slices) == 1:
            yield slices[0]  # one segment alone is sorted and unique already
        elif slices:
            changes = pa.concat_batches(slices)
            yield changes.take(pa.array(surviving_rows(changes, layout)))


def live_rows(rows: pa.RecordBatch, layout: TableLayout, now_ms: int) -> Bools:
    """Mask of the rows with a value at this time: put, and not expired."""
    live: Bools = kinds_of(rows) == PUT
    if layout.has_ttl:
        live &= plain_view(rows.column("expires_ms")) > now_ms
    return live


def presented(rows: pa.RecordBatch, layout: TableLayout, positions: Int64s | None = None) -> pa.RecordBatch:
    """Rows as callers see them: the hash in one column, without columns that only sort."""
    rests = plain_view(rows.column("rest")).view(np.uint16)
    columns: dict[str, pa.Array] = {}
    if positions is not None:
        columns["position"] = pa.array(positions)
    columns["hash"] = pa.array(hashes_of(orders_in(rows), rests))
    for name in ("key", "sub", "value", "due_ms", "expires_ms"):
        if name in layout.schema.names:
            columns[name] = rows.column(name)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
