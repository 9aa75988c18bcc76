"""Due rows: timers to fire, windows to close.

The due time is a column, and the footer records the earliest and latest of every chunk, so an epoch without due rows
reads only footers. A due row of one segment counts only if no newer segment changed it: candidates are selected by time
and then looked up in the newer layers. Rows that were fired and deleted stay in their segment until compaction; a
caller that knows that no row remains up to some time passes this time (`after_ms`), and these rows cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import plain_view
from millstream.state.segments.lookup import Layer, Probe, find_rows
from millstream.state.segments.merging import live_rows
from millstream.state.segments.segment import Chunk
from millstream.state.tables.layout import NEVER_MS, PUT, TableLayout, orders_in, sub_orders_in

__all__ = ["due_changes", "due_rows", "earliest_due"]

_EARLIEST_TRIED = 1_024
"""The number of earliest rows looked up in newer layers at a time."""

_BEFORE_ALL_MS = -NEVER_MS - 1


def due_rows(
    layers: Sequence[Layer], layout: TableLayout, now_ms: int, through_ms: int, after_ms: int | None
) -> pa.RecordBatch:
    """The live rows with after_ms < due_ms <= through_ms, sorted by due time."""
    _check_has_due(layout)
    pieces = []
    for number, layer in enumerate(layers):
        newer = layers[number + 1 :]
        pieces += [_not_superseded(rows, newer, layout, now_ms) for rows in _due_pieces(layer, through_ms, after_ms)]
    return _by_due(_joined(pieces, layout), layout)


def due_changes(
    layers: Sequence[Layer], layout: TableLayout, now_ms: int, through_ms: int, after_ms: int | None
) -> list[pa.RecordBatch]:
    """As `due_rows`, by layer and oldest first, including rows changed in a newer layer, for callers that select the
    newest change themselves. Only for tables in which the due time of a row never changes and rows are removed by
    expiry alone: otherwise a change that is not due would hide a due one."""
    _check_has_due(layout)
    by_layer = []
    for layer in layers:
        rows = _joined(_due_pieces(layer, through_ms, after_ms), layout)
        is_live = live_rows(rows, layout, now_ms)
        by_layer.append(rows if is_live.all() else rows.filter(pa.array(is_live)))
    return [rows for rows in by_layer if rows.num_rows]


def _due_pieces(layer: Layer, through_ms: int, after_ms: int | None) -> list[pa.RecordBatch]:
    """The rows of each chunk of a layer that are due after `after_ms` and through `through_ms`."""
    lower_ms = _BEFORE_ALL_MS if after_ms is None else after_ms
    pieces = []
    for number, entry in enumerate(layer.segment.entries):
        if entry.due_min_ms <= through_ms and entry.due_max_ms > lower_ms:
            chunk = layer.segment.chunk(number)
            rows = _due_in(chunk, layer, lower_ms, through_ms)
            if rows.size:
                pieces.append(_rows_of(chunk, rows))
    return pieces


def _joined(pieces: list[pa.RecordBatch], layout: TableLayout) -> pa.RecordBatch:
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=layout.schema)
    return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0]


def earliest_due(layers: Sequence[Layer], layout: TableLayout, now_ms: int, after_ms: int | None) -> int | None:
    """The smallest due time of a live row, above after_ms.

    Chunks are tried in the order of their earliest possible time, until no chunk can have an earlier time than the
    minimum so far. Usually only the first row of one chunk is read.
    """
    _check_has_due(layout)
    lower_ms = _BEFORE_ALL_MS if after_ms is None else after_ms
    chunks = sorted(
        (max(entry.due_min_ms, lower_ms), layer_number, chunk_number)
        for layer_number, layer in enumerate(layers)
        for chunk_number, entry in enumerate(layer.segment.entries)
        if entry.due_max_ms > lower_ms
    )
    best_ms = NEVER_MS
    for bound_ms, layer_number, chunk_number in chunks:
        if bound_ms >= best_ms:
            break
        layer, newer = layers[layer_number], layers[layer_number + 1 :]
        due_ms = _earliest_in(layer.segment.chunk(chunk_number), layer, newer, layout, now_ms, (lower_ms, best_ms))
        best_ms = best_ms if due_ms is None else due_ms
    return None if best_ms == NEVER_MS else best_ms


def _check_has_due(layout: TableLayout) -> None:
    if not layout.has_due:
        raise ValueError(f"state {layout.state!r} has no due times")


def _earliest_in(
    chunk: Chunk, layer: Layer, newer: Sequence[Layer], layout: TableLayout, now_ms: int, between: tuple[int, int]
) -> int | None:
    """The smallest due time of a live row of the chunk within the bounds; the earliest rows are tried first."""
    assert chunk.due_ms is not None
    lower_ms, upper_ms = between
    while True:
        rows = _due_in(chunk, layer, lower_ms, upper_ms - 1)
        if not rows.size:
            return None
        due = chunk.due_ms[rows]
        tried_ms = int(np.partition(due, _EARLIEST_TRIED)[_EARLIEST_TRIED]) if rows.size > _EARLIEST_TRIED else upper_ms
        live = _not_superseded(_rows_of(chunk, rows[due <= tried_ms]), newer, layout, now_ms)
        if live.num_rows:
            return int(plain_view(live.column("due_ms")).min())
        lower_ms = tried_ms


def _due_in(chunk: Chunk, layer: Layer, after_ms: int, through_ms: int) -> Int64s:
    """The chunk's rows within the layer's range that are due within the bounds."""
    assert chunk.due_ms is not None
    span = layer.among(chunk.orders)
    due = chunk.due_ms[span]
    is_due = (due <= through_ms) & (due > after_ms) & (chunk.kinds[span] == PUT)
    rows: Int64s = np.flatnonzero(is_due) + span.start
    return rows


def _rows_of(chunk: Chunk, rows: Int64s) -> pa.RecordBatch:
    """Rows of a chunk, in order; a contiguous run is not copied. Usually all rows of a chunk are due together."""
    first, count = int(rows[0]), len(rows)
    return chunk.batch.slice(first, count) if rows[-1] == first + count - 1 else chunk.batch.take(pa.array(rows))


def _not_superseded(rows: pa.RecordBatch, newer: Sequence[Layer], layout: TableLayout, now_ms: int) -> pa.RecordBatch:
    """The sorted rows that are live and not superseded by a newer layer."""
    is_current = live_rows(rows, layout, now_ms)
    probe = Probe.of_rows(rows, layout)
    for layer in newer:
        span = layer.among(probe.orders)
        at = span.start + np.flatnonzero(is_current[span])
        for hits in find_rows(layer.segment, probe, at) if at.size else ():
            is_current[hits.at] = False
            is_current[hits.cleared_at] = False
    return rows if is_current.all() else rows.filter(pa.array(is_current))


def _by_due(rows: pa.RecordBatch, layout: TableLayout) -> pa.RecordBatch:
    keys: list[np.ndarray[tuple[int], np.dtype[np.generic]]] = [
        plain_view(rows.column("rest")).view(np.uint16),
        orders_in(rows),
        plain_view(rows.column("due_ms")),
    ]
    if layout.sub_type is not None:
        keys.insert(0, sub_orders_in(rows, layout))
    return rows.take(pa.array(np.lexsort(keys)))
