"""Numbers of rows in an order, within partitions: ROW_NUMBER, RANK and DENSE_RANK, in columns.

Rows are sorted by partition, then by the keys of the order, then as they stand (or the latest first). NULLs stand where
each key says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.aggregation.rolling_columns import order_numbers
from millstream.graph.table_nodes import OrderKey
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools

__all__ = ["ranks_of"]


def ranks_of(
    kind: str, partitions: Int64s, columns: Sequence[pa.Array], order: Sequence[OrderKey], *, latest_first: bool = False
) -> tuple[Int64s, Int64s]:
    """The number of every row in its partition, from 1; and the rows in their order.

    >>> ranks_of("ROW_NUMBER", np.array([0, 0, 1]), [pa.array([5, 3, 9])], [OrderKey(0)])[0].tolist()
    [2, 1, 1]
    """
    arrival = np.arange(len(partitions))
    keys = [_sortable(columns[key.column], key) for key in order]
    sorted_by = [-arrival if latest_first else arrival]
    for value, absent in reversed(keys):
        sorted_by += [value, absent]
    rows = np.lexsort((*sorted_by, partitions))
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


def _firsts(columns: Sequence[Int64s]) -> Bools:
    """Which rows differ from the one before in any column."""
    differs = np.zeros(len(columns[0]), dtype=np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def _sortable(column: pa.Array, key: OrderKey) -> tuple[Int64s, Int64s]:
    """Numbers that sort as the key wants, and before them whether the value is there."""
    valid = np.asarray(column.is_valid())
    numbers = np.where(valid, order_numbers(column), 0)
    absent = np.where(valid, 0, -1 if key.nulls_first else 1)
    return (~numbers if key.descending else numbers), absent
