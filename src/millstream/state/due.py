"""Rows that are due: timers to fire, windows to close.

A due time is a column, and the footer knows the earliest and latest of every chunk, so an epoch in which nothing
is due looks at footers only. A row that is due in one segment counts only if no newer segment changed it: due
candidates are found by time and then held against the newer layers, like any lookup. Rows that were fired and
deleted stay in their segment until compaction; a caller who knows that all up to some time are gone says so
(`after_ms`), and they cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.state.equality import plain_view
from millstream.state.layout import NEVER_MS, PUT, TableLayout
from millstream.state.lookup import Layer, Probe, find_rows
from millstream.state.merging import live_rows
from millstream.state.resolution import orders_in, sub_orders_in
from millstream.state.segment import Chunk
from millstream.state.xxh64 import Int64s

__all__ = ["due_rows", "earliest_due"]

_EARLIEST_TRIED = 1_024
"""How many of the earliest rows are held against newer layers at a time."""

_BEFORE_ALL_MS = -NEVER_MS - 1


def due_rows(
    layers: Sequence[Layer], layout: TableLayout, now_ms: int, through_ms: int, after_ms: int | None
) -> pa.RecordBatch:
    """The live rows with after_ms < due_ms <= through_ms, sorted by due time."""
    _check_has_due(layout)
    pieces = []
    after = _BEFORE_ALL_MS if after_ms is None else after_ms
    for number, layer in enumerate(layers):
        found = []
        for entry_number, entry in enumerate(layer.segment.entries):
            if entry.due_min_ms <= through_ms and entry.due_max_ms > after:
                chunk = layer.segment.chunk(entry_number)
                rows = _due_in(chunk, layer, after, through_ms)
                if rows.size:
                    found.append(chunk.batch.take(pa.array(rows)))
        if found:
            pieces.append(_not_superseded(pa.concat_batches(found), layers[number + 1 :], layout, now_ms))
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=layout.schema)
    return _by_due(pa.concat_batches(pieces), layout)


def earliest_due(layers: Sequence[Layer], layout: TableLayout, now_ms: int, after_ms: int | None) -> int | None:
    """The smallest due time of a live row, above after_ms.

    The earliest rows of each layer are tried first; most often the first of them is live, and that ends it.
    """
    _check_has_due(layout)
    best = NEVER_MS
    for number, layer in enumerate(layers):
        after = _BEFORE_ALL_MS if after_ms is None else after_ms
        while True:
            rows = _earliest_rows(layer, after, best)
            if rows is None:
                break
            live = _not_superseded(rows, layers[number + 1 :], layout, now_ms)
            if live.num_rows:
                best = int(plain_view(live.column("due_ms")).min())
                break
            after = int(plain_view(rows.column("due_ms")).max())
    return None if best == NEVER_MS else best


def _check_has_due(layout: TableLayout) -> None:
    if not layout.has_due:
        raise ValueError(f"state {layout.state!r} has no due times")


def _earliest_rows(layer: Layer, after_ms: int, before_ms: int) -> pa.RecordBatch | None:
    """The rows with the smallest due times between the two: all of some time, or none of it."""
    pieces = []
    for number, entry in enumerate(layer.segment.entries):
        if entry.due_min_ms < before_ms and entry.due_max_ms > after_ms:
            chunk = layer.segment.chunk(number)
            rows = _due_in(chunk, layer, after_ms, before_ms - 1)
            if rows.size:
                assert chunk.due_ms is not None
                rows = np.sort(_earliest(rows, chunk.due_ms[rows]))
                pieces.append(chunk.batch.take(pa.array(rows)))
    if not pieces:
        return None
    found = pa.concat_batches(pieces)
    return found.take(pa.array(np.sort(_earliest(np.arange(found.num_rows), plain_view(found.column("due_ms"))))))


def _earliest(rows: Int64s, due_ms: Int64s) -> Int64s:
    if rows.size <= _EARLIEST_TRIED:
        return rows
    earliest: Int64s = rows[due_ms <= np.partition(due_ms, _EARLIEST_TRIED)[_EARLIEST_TRIED]]
    return earliest


def _due_in(chunk: Chunk, layer: Layer, after_ms: int, through_ms: int) -> Int64s:
    """The chunk's rows of the layer's range that are due between the two."""
    assert chunk.due_ms is not None
    span = layer.among(chunk.orders)
    due = chunk.due_ms[span]
    wanted = (due <= through_ms) & (due > after_ms) & (chunk.kinds[span] == PUT)
    rows: Int64s = np.flatnonzero(wanted) + span.start
    return rows


def _not_superseded(rows: pa.RecordBatch, newer: Sequence[Layer], layout: TableLayout, now_ms: int) -> pa.RecordBatch:
    """The sorted rows that are live and that no newer layer has changed."""
    standing = live_rows(rows, layout, now_ms)
    probe = Probe.of_rows(rows, layout)
    for layer in newer:
        span = layer.among(probe.orders)
        asked = span.start + np.flatnonzero(standing[span])
        for hits in find_rows(layer.segment, probe, asked) if asked.size else ():
            standing[hits.at] = False
            standing[hits.cleared] = False
    return rows if standing.all() else rows.filter(pa.array(standing))


def _by_due(rows: pa.RecordBatch, layout: TableLayout) -> pa.RecordBatch:
    keys: list[np.ndarray[tuple[int], np.dtype[np.generic]]] = [
        plain_view(rows.column("rest")).view(np.uint16),
        orders_in(rows),
        plain_view(rows.column("due_ms")),
    ]
    if layout.sub_type is not None:
        keys.insert(0, sub_orders_in(rows, layout))
    return rows.take(pa.array(np.lexsort(keys)))
