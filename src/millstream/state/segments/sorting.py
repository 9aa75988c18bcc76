"""Sorts rows by hash, or by bounded numbers, faster than a general sort.

Orders are evenly distributed hashes: sorting by their upper 16 bits almost sorts the rows. numpy sorts 16-bit numbers
by radix, in two passes; a comparison sort then orders the remaining short runs. Both steps are stable, so the result is
stable for any numbers; if they are not evenly distributed, the sort is slow but correct.

Numbers with a known bound are sorted by radix alone, 16 bits at a time from the lowest; this mostly takes two passes.
"""

from __future__ import annotations

import numpy as np

from millstream.state.keys.hashing import Int64s, UInt64s

__all__ = ["ascending", "ascending_below"]

_UPPER_BITS = 16
# Below this number of rows the steps cost more than they save.
_SPREAD_ROWS_MIN = 2_048
# Up to this number of sorted runs, such as the segments of a merge, a stable sort merges cheaply by itself.
_RUNS_MAX = 64


def ascending(orders: UInt64s) -> Int64s:
    """The positions of the rows by order, like a stable `argsort`.

    >>> ascending(np.array([7, 3, 7, 1], dtype=np.uint64)).tolist()
    [3, 1, 0, 2]
    """
    if len(orders) < _SPREAD_ROWS_MIN or np.count_nonzero(orders[1:] < orders[:-1]) < _RUNS_MAX:
        return np.argsort(orders, kind="stable")
    low = orders.min()
    shift = max(0, int(orders.max() - low).bit_length() - _UPPER_BITS)
    uppers = ((orders - low) >> np.uint64(shift)).astype(np.uint16)
    by_upper = np.argsort(uppers, kind="stable")
    return by_upper[np.argsort(orders[by_upper], kind="stable")]


def ascending_below(bound: int, numbers: Int64s) -> Int64s:
    """The positions of rows by their numbers, integers below the bound; stable.

    >>> ascending_below(8, np.array([7, 3, 7, 1])).tolist()
    [3, 1, 0, 2]
    """
    if np.count_nonzero(numbers[1:] < numbers[:-1]) < _RUNS_MAX:
        return np.argsort(numbers, kind="stable")
    rows = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(_UPPER_BITS, (bound - 1).bit_length(), _UPPER_BITS):
        digits = (numbers[rows] >> shift).astype(np.uint16)
        rows = rows[np.argsort(digits, kind="stable")]
    return rows
