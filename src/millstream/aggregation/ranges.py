"""Aggregates over many runs of rows at once: what sliding windows need of their panes.

A sliding window is a run of consecutive rows, and neighbouring windows share most of them. What can be subtracted
(whole numbers) is a difference of two running sums. What cannot is put together from blocks of 1, 2, 4, … rows, each
block made once for all runs: a run of k rows takes as many steps as k has bits, left to right, and no row is in it
twice. Both cost next to nothing per window, however long it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.state.keys.hashing import Int64s

__all__ = ["Combine", "block_ranges", "running_ranges"]

Numbers = NDArray[Any]
Combine = Callable[[Numbers, Numbers], Numbers]
Ranged = Callable[[Int64s, Int64s], Numbers]


def running_ranges(values: Numbers) -> Ranged:
    """Sums of runs of whole numbers; they wrap around as the numbers do.

    >>> running_ranges(np.array([1, 2, 4, 8]))(np.array([0, 1]), np.array([4, 3])).tolist()
    [15, 6]
    """
    totals = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=totals[1:])
    return lambda starts, stops: totals[stops] - totals[starts]


def block_ranges(values: Numbers, combine: Combine, nothing: Any) -> Ranged:
    """Combinations of runs by any associative function; of no rows, `nothing`. Every row of a run is used once, in
    order.

    >>> block_ranges(np.array([3, 1, 2]), np.minimum, 9)(np.array([0, 2, 1]), np.array([2, 3, 1])).tolist()
    [1, 2, 9]
    """
    levels = [values]

    def level(number: int) -> Numbers:
        while len(levels) <= number:
            last, half = levels[-1], 1 << (len(levels) - 1)
            levels.append(combine(last[:-half], last[half:]))
        return levels[number]

    def ranged(starts: Int64s, stops: Int64s) -> Numbers:
        result = np.full(len(starts), nothing, dtype=values.dtype)
        at, lengths = starts.copy(), stops - starts
        for number in range(int(lengths.max(initial=0)).bit_length()):
            rows = np.flatnonzero(lengths >> number & 1)
            if len(rows):
                result[rows] = combine(result[rows], level(number)[at[rows]])
                at[rows] += 1 << number
        return result

    return ranged
