"""What is left of the histories of values that come and go, so that it can be continued.

A history is cut into batches, partials and epochs, anywhere; what comes of it must not show where. So what is left of
a piece is not its net effect, unless that is all that is asked for (`net`: counts, sums, MIN and MAX). Where the order
tells, a value that goes and comes again is at another place than one that stayed, and whether it was away depends on
how often it was there before, which the piece does not know:

    by_stay       A value is where its stay began: at the first arrival since it was away for the last time. Of a
                  piece it is left how far the value's count falls, and how far it rises from there: going so often and
                  then coming so often is the same to whatever was before. Where it begins to rise is its place.
    by_arrival    A value is where it came last, as long as it is there. What is left is how often more or less it is
                  there; and where it has come at all, that it comes at that place, though it goes as often.

Each gives at most two rows of a value: one that goes, then one that comes. What they give of pieces of which some were
treated before is what they give of the whole.
"""

from __future__ import annotations

import numpy as np

from millstream.aggregation.aggregate_columns import totals_of
from millstream.aggregation.groups import Groups
from millstream.state.keys.hashing import Int64s

__all__ = ["History", "by_arrival", "by_stay", "net"]

History = tuple[Int64s, Int64s]
"""Rows, at whose places values come or go; and how often each does (below zero: it goes). Of one place, what goes is
before what comes."""


def net(times: Int64s, values: Groups) -> History:
    """How often more or less each value is there, at its first row. `times`: how often the value of each row comes, or
    goes; `values`: which rows have one value. A value may have no row.

    >>> [each.tolist() for each in net(np.array([1, 2, -1]), Groups(np.array([0, 1, 0]), 2))]
    [[1], [2]]
    """
    totals = totals_of(times, values)
    left = np.flatnonzero(totals)
    return values.firsts()[left], totals[left]


def by_stay(times: Int64s, values: Groups) -> History:
    """What is left of values that are where their stay began.

    >>> [each.tolist() for each in by_stay(np.array([1, -2, 1, 2]), Groups(np.array([0, 0, 0, 0]), 1))]
    [[2, 2], [-1, 3]]
    """
    goes = np.zeros(values.count, dtype=np.bool_)
    goes[values.codes[times < 0]] = True
    if not goes.any():
        return net(times, values)
    chosen = np.flatnonzero(goes[values.codes])
    rows = chosen[np.argsort(values.codes[chosen], kind="stable")]
    codes, steps = values.codes[rows], times[rows]
    sizes = values.sizes[goes]
    ends = np.cumsum(sizes)
    starts = ends - sizes
    counts = np.cumsum(steps)
    counts -= np.repeat(counts[starts] - steps[starts], sizes)  # how often each value is there more, after each row
    lows = np.minimum(np.minimum.reduceat(counts, starts), 0)
    rises = counts[ends - 1] - lows
    # From the last row of the lowest count on it rises; if it never falls, from the first row on.
    lowest = np.full(values.count, -1, dtype=np.int64)
    lowest[goes] = starts - 1
    at_low = np.flatnonzero(counts == np.repeat(lows, sizes))
    lowest[codes[at_low]] = at_low  # of assignments to one place the last one stays
    turns = lowest[goes]
    begins = rows[np.where(rises > 0, turns + 1, ends - 1)]
    falls = lows < 0
    only_comes = np.flatnonzero(~goes & (values.sizes > 0))
    at = np.concatenate([values.firsts()[only_comes], begins[falls], begins[rises > 0]])
    return at, np.concatenate([totals_of(times, values)[only_comes], lows[falls], rises[rises > 0]])


def by_arrival(times: Int64s, values: Groups) -> History:
    """What is left of values that are where they came last.

    >>> [each.tolist() for each in by_arrival(np.array([1, -2, 1, -1]), Groups(np.array([0, 0, 0, 0]), 1))]
    [[2, 2], [-2, 1]]
    """
    totals = totals_of(times, values)
    came = np.full(values.count, -1, dtype=np.int64)
    added = np.flatnonzero(times > 0)
    came[values.codes[added]] = added  # of assignments to one place the last one stays
    comes = came >= 0
    places = np.where(comes, came, values.firsts())
    gains = np.where(comes, np.maximum(totals, 1), 0)
    losses = totals - gains
    return (
        np.concatenate([places[losses < 0], places[comes]]),
        np.concatenate([losses[losses < 0], gains[comes]]),
    )
