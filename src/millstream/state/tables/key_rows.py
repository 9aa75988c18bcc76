"""The rows of one key, however many: single rows by sub, or all rows in pieces.

A key's rows are contiguous, so each layer has one *run* of them. The runs are located once; after that a row costs one
binary search per layer, without arrays, and a piece costs only its rows. Costs do not grow with the size of the key.

Invariant: `find` returns the same row as `TableView.get_pairs`, and the pieces together equal `TableView.scan_keys`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.state.keys.key_columns import KeyColumn, same
from millstream.state.segments.lookup import Layer, Probe, find_runs
from millstream.state.segments.merging import live_rows
from millstream.state.segments.resolution import newest_of_each
from millstream.state.segments.segment import Chunk
from millstream.state.tables.layout import PUT, TableLayout

__all__ = ["KeyRows"]


@dataclass(frozen=True)
class _Run:
    """The rows [start, stop) of a chunk; `orders` are the sub orders of all its rows, as Python integers."""

    chunk: Chunk
    orders: Any
    start: int
    stop: int


class KeyRows:
    """The rows of the one key in `key`, in a table with subs."""

    def __init__(self, layers: Sequence[Layer], layout: TableLayout, key: KeyColumn, now_ms: int) -> None:
        self._layout, self._now_ms = layout, now_ms
        self._runs = list(_runs_of(layers, Probe.of(key, layout)))  # newest first

    @property
    def has_ordered_sub(self) -> bool:
        """Whether subs are their own orders."""
        return self._layout.has_ordered_sub

    def find(self, sub_order: int, stored_sub: Any) -> tuple[Chunk, int] | None:
        """The chunk and row of a sub, passed as a Python value; None if it has no live row."""
        if self.has_ordered_sub:
            return self._find(sub_order, lambda chunk, row: True)
        return self._find(sub_order, lambda chunk, row: bool(chunk.batch.column("sub")[row].as_py() == stored_sub))

    def find_encoded(self, sub: pa.Array) -> tuple[Chunk, int] | None:
        """As `find`, for the sub in a column of one row."""
        sub_order = self._layout.sub_orders(sub).item(0)
        return self._find(sub_order, lambda chunk, row: same(chunk.batch.column("sub").slice(row, 1), sub).item(0))

    def _find(self, sub_order: int, has_sub: Callable[[Chunk, int], bool]) -> tuple[Chunk, int] | None:
        for run in self._runs:
            row = bisect_left(run.orders, sub_order, run.start, run.stop)
            while row < run.stop and run.orders[row] == sub_order:
                if has_sub(run.chunk, row):
                    return self._live(run.chunk, row)
                row += 1
        return None

    def _live(self, chunk: Chunk, row: int) -> tuple[Chunk, int] | None:
        """The newest change of a sub, if it is live."""
        is_expired = chunk.expires_ms is not None and chunk.expires_ms.item(row) <= self._now_ms
        return None if is_expired or chunk.kinds.item(row) != PUT else (chunk, row)

    def pieces(self, rows_max: int) -> Iterator[pa.RecordBatch]:
        """All live rows in the order of subs, in pieces of about `rows_max` rows per layer."""
        places = [run.start for run in self._runs]
        while pending := [at for at, run in enumerate(self._runs) if places[at] < run.stop]:
            # This piece has all rows of all layers up to the horizon.
            horizon = min(self._runs[at].orders[min(places[at] + rows_max, self._runs[at].stop) - 1] for at in pending)
            slices = []
            for at in reversed(pending):  # oldest first, as resolution requires
                run, start = self._runs[at], places[at]
                places[at] = bisect_right(run.orders, horizon, start, run.stop)
                slices.append(run.chunk.batch.slice(start, places[at] - start))
            yield self._newest_live([rows for rows in slices if rows.num_rows])

    def _newest_live(self, slices: list[pa.RecordBatch]) -> pa.RecordBatch:
        rows = slices[0]
        if len(slices) > 1:
            rows = pa.concat_batches(slices)
            rows = rows.take(pa.array(newest_of_each(rows, self._layout, np.zeros(rows.num_rows, dtype=np.int64))))
        live = live_rows(rows, self._layout, self._now_ms)
        return rows if live.all() else rows.filter(pa.array(live))


def _runs_of(layers: Sequence[Layer], probe: Probe) -> Iterator[_Run]:
    """The key's run in each layer, newest first, down to the key's last CLEAR."""
    for layer in reversed(layers):
        span = layer.among(probe.orders)
        for runs in find_runs(layer.segment, probe, np.arange(span.start, span.stop)) if span.stop > span.start else ():
            assert runs.chunk.sub_orders is not None
            yield _Run(runs.chunk, runs.chunk.sub_orders.data, runs.starts.item(0), runs.stops.item(0))
            if runs.is_cleared.item(0):
                return
