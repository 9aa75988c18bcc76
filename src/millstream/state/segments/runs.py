"""Runs of consecutive rows, many at once."""

from __future__ import annotations

import numpy as np

from millstream.state.keys.hashing import Int64s

__all__ = ["expanded"]


def expanded(starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
    """All rows of all runs, one run after another, and which run each is of.

    >>> [part.tolist() for part in expanded(np.array([5, 1]), np.array([7, 2]))]
    [[5, 6, 1], [0, 0, 1]]
    """
    lengths = stops - starts
    ends = np.cumsum(lengths)
    run = np.repeat(np.arange(len(starts)), lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths), run
