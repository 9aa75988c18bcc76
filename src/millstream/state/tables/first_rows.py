"""The first rows of keys by sub order, without reading the others.

A key may have a million rows. Each layer contributes a few, from the start of the search; the **horizon** of a key is
the sub up to which all layers were read, so no row is missing below it. If all rows below it are deleted, the search
continues after the horizon, with more rows at a time.

Invariant: the result is a prefix of each key's live rows, as returned by a scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.segments.lookup import Layer, Probe, expanded, find_runs, first_not_below
from millstream.state.segments.merging import live_rows, presented
from millstream.state.segments.resolution import newest_of_each
from millstream.state.tables.layout import TableLayout, sub_orders_in

__all__ = ["first_rows"]

_END = 2**63 - 1


def first_rows(
    layers: Sequence[Layer], layout: TableLayout, keys: KeyColumn, begins: Int64s, count: int, now_ms: int
) -> pa.RecordBatch:
    """The first `count` live rows of each key whose sub is not below its `begins`, with the `position` of the key in
    `keys`, sorted by (position, sub). Requires subs that are their own sort order."""
    probe = Probe.of(keys, layout)
    begins, missing = begins[probe.positions], np.full(len(probe), count)
    pieces, owners = [pa.RecordBatch.from_pylist([], schema=layout.schema)], [np.empty(0, dtype=np.int64)]
    pending, step = np.arange(len(probe)), count
    while pending.size:
        rows, of_key, horizons = _seen(layers, layout, probe, pending, begins, step)
        live = live_rows(rows, layout, now_ms) & (sub_orders_in(rows, layout) <= horizons[of_key])
        rows, of_key = rows.filter(pa.array(live)), of_key[live]
        sizes = np.bincount(of_key, minlength=len(probe))
        place = np.arange(len(of_key)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        wanted = place < missing[of_key]
        pieces.append(rows.filter(pa.array(wanted)))
        owners.append(of_key[wanted])
        missing -= np.minimum(sizes, missing)
        pending = pending[(missing[pending] > 0) & (horizons[pending] < _END)]
        begins[pending] = horizons[pending] + 1
        step *= 2
    positions = probe.positions[np.concatenate(owners)]
    order = np.argsort(positions, kind="stable")
    return presented(pa.concat_batches(pieces).take(pa.array(order)), layout, positions[order])


def _seen(
    layers: Sequence[Layer], layout: TableLayout, probe: Probe, pending: Int64s, begins: Int64s, step: int
) -> tuple[pa.RecordBatch, Int64s, Int64s]:
    """The newest change of every row among the first `step` rows of each layer, by key and sub; the key of each; and
    for every key the sub up to which no row is missing."""
    is_open = np.zeros(len(probe), dtype=np.bool_)
    is_open[pending] = True
    horizons = np.full(len(probe), _END)
    pieces, owners = [], []
    for layer in reversed(layers):
        span = layer.among(probe.orders)
        open_at = span.start + is_open[span].nonzero()[0]
        for runs in find_runs(layer.segment, probe, open_at) if open_at.size else ():
            is_open[runs.at[runs.is_cleared]] = False
            orders = runs.chunk.sub_orders
            assert orders is not None
            starts = first_not_below(orders, begins[runs.at], runs.starts, runs.stops)
            stops = np.minimum(starts + step, runs.stops)
            cut = np.flatnonzero(stops < runs.stops)
            np.minimum.at(horizons, runs.at[cut], orders[stops[cut] - 1])
            rows, run = expanded(starts, stops)
            pieces.append(runs.chunk.batch.take(pa.array(rows)))
            owners.append(runs.at[run])
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=layout.schema), np.empty(0, dtype=np.int64), horizons
    changes, of_key = pa.concat_batches(pieces[::-1]), np.concatenate(owners[::-1])
    newest = newest_of_each(changes, layout, of_key)
    return changes.take(pa.array(newest)), of_key[newest], horizons
