"""Resolution of changes: the newest change of every row, in the order of a segment.

Writing an epoch, scanning and compacting share this step: given changes, oldest first, select the surviving rows and
sort them. `surviving_rows` does this over whole columns:

1. sort by (order, rest), preserving the order of changes within a hash;
2. group each key's changes if two keys have the same hash;
3. drop changes before their key's last CLEAR;
4. sort each key's changes by sub, group each sub's changes, and retain the last.

DELETEs and CLEARs survive like any change; a caller may drop them if no older segment has rows of the key. Invariant:
the selected rows are sorted as `layout` defines, with at most one per (key, sub) and one CLEAR per key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, plain_view, same
from millstream.state.segments.sorting import ascending
from millstream.state.tables.layout import CLEAR, TableLayout, kinds_of, orders_in, sub_orders_in

__all__ = ["newest_of_each", "surviving_rows"]


def surviving_rows(changes: pa.RecordBatch, layout: TableLayout) -> Int64s:
    """The positions, in sorted order, of the surviving changes; `changes` are oldest first.

    >>> layout = TableLayout("total", pa.int64(), value_type=pa.int64())
    >>> columns = [[7, 3, 7], [0, 0, 0], [1, 2, 1], [0, 0, 0], [10, 20, 30]]
    >>> arrays = [pa.array(column, field.type) for column, field in zip(columns, layout.schema)]
    >>> batch = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
    >>> surviving_rows(batch, layout).tolist()
    [1, 2]
    """
    sorted_rows = _by_key(changes)
    if layout.sub_type is None:
        return _last_of_each(sorted_rows)
    return _last_of_each(_by_sub(changes, layout, sorted_rows))


@dataclass(frozen=True)
class _SortedRows:
    """Positions in sorted order; `is_joined[i]` marks that i and i + 1 belong together."""

    rows: Int64s
    is_joined: Bools


def _last_of_each(sorted_rows: _SortedRows) -> Int64s:
    """The last, hence newest, position of each joined group."""
    if not sorted_rows.is_joined.any():
        return sorted_rows.rows
    last: Int64s = sorted_rows.rows[np.append(~sorted_rows.is_joined, True)]
    return last


def _by_key(changes: pa.RecordBatch) -> _SortedRows:
    orders = orders_in(changes)
    if (orders[1:] > orders[:-1]).all():
        return _SortedRows(np.arange(len(orders)), np.zeros(max(len(orders) - 1, 0), dtype=np.bool_))
    rows = ascending(orders)
    by_order = orders[rows]
    is_tied = by_order[1:] == by_order[:-1]
    if not is_tied.any():
        return _SortedRows(rows, is_tied)
    rests = plain_view(changes.column("rest")).view(np.uint16)
    by_rest = rests[rows]
    if (is_tied & (by_rest[1:] != by_rest[:-1])).any():
        rows = np.lexsort((rests, orders))
        by_rest = rests[rows]
        is_tied &= by_rest[1:] == by_rest[:-1]
    return _brought_together(changes.column("key"), rows, is_tied)


def _by_sub(changes: pa.RecordBatch, layout: TableLayout, keys: _SortedRows) -> _SortedRows:
    key_ids = np.zeros(len(keys.rows), dtype=np.int64)
    np.cumsum(~keys.is_joined, out=key_ids[1:])
    kinds = kinds_of(changes)
    rows = keys.rows
    is_clear = kinds[rows] == CLEAR
    if is_clear.any():
        last_clear = np.full(key_ids[-1] + 1, -1, dtype=np.int64)
        np.maximum.at(last_clear, key_ids[is_clear], rows[is_clear])
        is_left = rows >= last_clear[key_ids]
        rows, key_ids = rows[is_left], key_ids[is_left]
    return _sorted_subs(changes, layout, rows, key_ids)


def _sorted_subs(changes: pa.RecordBatch, layout: TableLayout, rows: Int64s, key_ids: Int64s) -> _SortedRows:
    """`rows`, grouped by key, sorted by sub within each key; rows of one key and sub are joined."""
    sub_orders = sub_orders_in(changes, layout)[rows]
    same_key = key_ids[1:] == key_ids[:-1]
    if (same_key & (sub_orders[1:] < sub_orders[:-1])).any():
        by_sub = np.lexsort((sub_orders, key_ids))
        rows, sub_orders = rows[by_sub], sub_orders[by_sub]
        # Rows are still grouped by key, so `same_key` is unchanged.
    is_tied = same_key & (sub_orders[1:] == sub_orders[:-1])
    if is_tied.any():
        # A CLEAR has the order of the first sub, but is never the same row.
        is_clear = kinds_of(changes)[rows] == CLEAR
        is_tied &= ~is_clear[:-1]
    if layout.has_ordered_sub or not is_tied.any():
        return _SortedRows(rows, is_tied)
    return _brought_together(changes.column("sub"), rows, is_tied)


def newest_of_each(changes: pa.RecordBatch, layout: TableLayout, key_ids: Int64s) -> Int64s:
    """As `surviving_rows`, for changes without CLEARs and with numbered keys: the newest per number and sub."""
    rows = np.argsort(key_ids, kind="stable")
    by_key = key_ids[rows]
    if layout.sub_type is None:
        return _last_of_each(_SortedRows(rows, by_key[1:] == by_key[:-1]))
    return _last_of_each(_sorted_subs(changes, layout, rows, by_key))


def _brought_together(values: pa.Array, rows: Int64s, is_tied: Bools) -> _SortedRows:
    """`rows` with equal values next to each other; `is_tied` marks neighbours with the same hash.

    Equal hashes mean equal values except for rare collisions, so that is checked first.
    """
    at = np.flatnonzero(is_tied)
    equal = same(values.take(pa.array(rows[at])), values.take(pa.array(rows[at + 1])))
    is_joined = is_tied.copy()
    is_joined[at] = equal
    if equal.all():
        return _SortedRows(rows, is_joined)
    rows = rows.copy()
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_tied, [False])).astype(np.int8)))
    for start, stop in edges.reshape(-1, 2).tolist():
        if is_joined[start:stop].all():
            continue
        run = rows[start : stop + 1]
        ranks = _ranks(values.take(pa.array(run)))
        by_rank = np.argsort(ranks, kind="stable")
        rows[start : stop + 1] = run[by_rank]
        is_joined[start:stop] = np.diff(ranks[by_rank]) == 0
    return _SortedRows(rows, is_joined)


def _ranks(values: pa.Array) -> Int64s:
    """A number per distinct value, in order of appearance; takes one pass per distinct value, so runs must be short."""
    ranks = np.full(len(values), -1, dtype=np.int64)
    rank = 0
    while (ranks < 0).any():
        first = int(np.argmax(ranks < 0))
        alike = same(values, values.take(pa.array(np.full(len(values), first))))
        ranks[alike] = rank
        rank += 1
    return ranks
