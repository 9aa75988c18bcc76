"""Row numbers within partitions, vectorised: ROW_NUMBER, RANK and DENSE_RANK.

Rows are sorted by partition, then by the order's keys, then by position (or latest first). Each key specifies where
NULLs sort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millstream.aggregation.rolling_columns import order_numbers
from millstream.graph.table_nodes import OrderKey
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools

__all__ = ["ranks_of", "sorted_rows"]

_ROOM_MAX = 1 << 63


def ranks_of(
    kind: str,
    partitions: Int64s,
    columns: Sequence[pa.Array] | Mapping[int, pa.Array],
    order: Sequence[OrderKey],
    *,
    latest_first: bool = False,
) -> tuple[Int64s, Int64s]:
    """The number of every row in its partition, from 1; and the row positions in sorted order.

    >>> ranks_of("ROW_NUMBER", np.array([0, 0, 1]), [pa.array([5, 3, 9])], [OrderKey(0)])[0].tolist()
    [2, 1, 1]
    """
    arrival = np.arange(len(partitions))
    keys = [_sortable(columns[key.column], key) for key in order]
    rows = sorted_rows([partitions, *(part for pair in keys for part in pair)], latest_first=latest_first)
    starts = _firsts([partitions[rows]])
    begin: Int64s = np.maximum.accumulate(np.where(starts, arrival, 0))
    places: Int64s = arrival - begin + 1
    if kind != "ROW_NUMBER":
        differs = _firsts([partitions[rows], *(part[rows] for pair in keys for part in pair)])
        if kind == "RANK":
            first: Int64s = np.maximum.accumulate(np.where(differs, arrival, 0))
            places = first - begin + 1
        else:
            steps: Int64s = np.cumsum(differs, dtype=np.int64)
            places = steps - steps[begin] + 1
    ranks = np.empty(len(arrival), dtype=np.int64)
    ranks[rows] = places
    return ranks, rows


def sorted_rows(keys: Sequence[Int64s], *, latest_first: bool = False) -> Int64s:
    """The row positions sorted by all keys, the first key being most significant; ties by position, or latest first.

    Keys with small ranges are combined with the position into one integer, which sorts many times faster.

    >>> sorted_rows([np.array([1, 0, 1, 0]), np.array([5, 7, 5, 6])]).tolist()
    [3, 1, 0, 2]
    """
    count = len(keys[0])
    whole, room = np.zeros(count, dtype=np.int64), 1
    for key in (*keys, np.arange(count - 1, -1, -1) if latest_first else np.arange(count)):
        low, high = (int(key.min()), int(key.max())) if count else (0, 0)
        room *= high - low + 1
        if room >= _ROOM_MAX:
            return _sorted_by_each(keys, latest_first=latest_first)
        whole *= high - low + 1
        whole += key - low
    whole.sort()
    rows: Int64s = whole % max(count, 1)
    return count - 1 - rows if latest_first else rows


def _sorted_by_each(keys: Sequence[Int64s], *, latest_first: bool) -> Int64s:
    """The same, key by key."""
    if not latest_first:
        return np.lexsort(tuple(reversed(keys)))
    return len(keys[0]) - 1 - np.lexsort(tuple(key[::-1] for key in reversed(keys)))


def _firsts(columns: Sequence[Int64s]) -> Bools:
    """Mask of the rows that differ from the previous row in any column."""
    differs = np.zeros(len(columns[0]), dtype=np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def _sortable(column: pa.Array, key: OrderKey) -> list[Int64s]:
    """Integers that sort as the key requires; for a nullable column preceded by a flag for NULL."""
    numbers = order_numbers(column)
    if not column.null_count:
        return [~numbers if key.descending else numbers]
    valid = np.asarray(column.is_valid())
    numbers = np.where(valid, numbers, 0)
    return [np.where(valid, 0, -1 if key.nulls_first else 1), ~numbers if key.descending else numbers]
