"""The order of rows by their hashes, or by numbers below a bound, quicker than a sort that knows nothing of them.

Orders are hashes, and hashes are spread evenly: their upper 16 bits alone bring rows almost into order. numpy sorts
16-bit numbers by radix, in two passes over them; what is left to a sort by comparison are runs of some rows that lie
next to each other. Both steps keep rows of one order as they stood, so the whole does, whatever the numbers are; if
they are not spread, it is slow and not wrong.

Numbers that a bound is known of are sorted by radix alone, 16 bits at a time from the lowest: most need two passes.
"""

from __future__ import annotations

import numpy as np

from millstream.state.keys.hashing import Int64s, UInt64s

__all__ = ["ascending", "ascending_below"]

_UPPER_BITS = 16
# Below this the steps cost more than they save.
_SPREAD_ROWS_MIN = 2_048
# So many sorted runs at the most, as the segments of a merge are, a stable sort merges by itself in next to no time.
_RUNS_MAX = 64


def ascending(orders: UInt64s) -> Int64s:
    """The rows by their orders, those of one order as they stand: what a stable `argsort` gives.

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
    """The rows by their numbers, which are whole and below the bound; those of one number as they stand.

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
