"""Reduces a group's history of inserted and deleted values to a form that can be continued.

A history may be divided into batches, partials and epochs at any point, which must not affect the result. `net` reduces
a piece to its net effect, enough for counts, sums, MIN and MAX. Where order matters, a value deleted and inserted again
is ordered differently from one that stayed, and whether it was absent depends on its earlier multiplicity, which is
unknown here:

    by_stay       A value is ordered by when it became present: its first arrival since it was last absent. A
                  piece is reduced to how far the value's count falls, and how far it rises from there: that many
                  deletes and then that many inserts have the same effect on any earlier history. The row where
                  it begins to rise is its place.
    by_arrival    A value is ordered by its last arrival, while present. A piece is reduced to the change of its
                  multiplicity; and if the value arrived at all, to an insert at that place, even if as many
                  deletes follow.

Each yields at most two rows per value: a delete, then an insert. Reducing pieces that are already reduced yields the
same result as reducing the whole history.
"""

from __future__ import annotations

import numpy as np

from millstream.aggregation.aggregate_columns import totals_of
from millstream.aggregation.groups import Groups
from millstream.state.keys.hashing import Int64s

__all__ = ["History", "by_arrival", "by_stay", "net"]

History = tuple[Int64s, Int64s]
"""Rows of the inserts and deletes, and the multiplicity of each (negative: a delete). For one row, the delete precedes
the insert."""


def net(times: Int64s, values: Groups) -> History:
    """The change of each value's multiplicity, at its first row. `times`: the multiplicity of each row's insert or
    delete; `values`: groups rows by value. A value may have no row.

    >>> [each.tolist() for each in net(np.array([1, 2, -1]), Groups(np.array([0, 1, 0]), 2))]
    [[1], [2]]
    """
    totals = totals_of(times, values)
    left = np.flatnonzero(totals)
    return values.firsts()[left], totals[left]


def by_stay(times: Int64s, values: Groups) -> History:
    """The history of values ordered by when they became present.

    >>> [each.tolist() for each in by_stay(np.array([1, -2, 1, 2]), Groups(np.array([0, 0, 0, 0]), 1))]
    [[2, 2], [-1, 3]]
    """
    has_deletes = np.zeros(values.count, dtype=np.bool_)
    has_deletes[values.codes[times < 0]] = True
    if not has_deletes.any():
        return net(times, values)
    chosen = np.flatnonzero(has_deletes[values.codes])
    rows = chosen[np.argsort(values.codes[chosen], kind="stable")]
    codes, steps = values.codes[rows], times[rows]
    sizes = values.sizes[has_deletes]
    ends = np.cumsum(sizes)
    starts = ends - sizes
    counts = np.cumsum(steps)
    counts -= np.repeat(counts[starts] - steps[starts], sizes)  # the change of each value's count after each row
    lows = np.minimum(np.minimum.reduceat(counts, starts), 0)
    rises = counts[ends - 1] - lows
    # The count rises after the last row of its minimum; if it never falls, from the first row on.
    lowest = np.full(values.count, -1, dtype=np.int64)
    lowest[has_deletes] = starts - 1
    at_low = np.flatnonzero(counts == np.repeat(lows, sizes))
    lowest[codes[at_low]] = at_low  # the last assignment to a place wins
    turns = lowest[has_deletes]
    begins = rows[np.where(rises > 0, turns + 1, ends - 1)]
    falls = lows < 0
    only_inserts = np.flatnonzero(~has_deletes & (values.sizes > 0))
    at = np.concatenate([values.firsts()[only_inserts], begins[falls], begins[rises > 0]])
    return at, np.concatenate([totals_of(times, values)[only_inserts], lows[falls], rises[rises > 0]])


def by_arrival(times: Int64s, values: Groups) -> History:
    """The history of values ordered by their last arrival.

    >>> [each.tolist() for each in by_arrival(np.array([1, -2, 1, -1]), Groups(np.array([0, 0, 0, 0]), 1))]
    [[2, 2], [-2, 1]]
    """
    totals = totals_of(times, values)
    last_arrival = np.full(values.count, -1, dtype=np.int64)
    added = np.flatnonzero(times > 0)
    last_arrival[values.codes[added]] = added  # the last assignment to a place wins
    has_arrived = last_arrival >= 0
    places = np.where(has_arrived, last_arrival, values.firsts())
    gains = np.where(has_arrived, np.maximum(totals, 1), 0)
    losses = totals - gains
    return (
        np.concatenate([places[losses < 0], places[has_arrived]]),
        np.concatenate([losses[losses < 0], gains[has_arrived]]),
    )
