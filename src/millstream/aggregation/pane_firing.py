"""Fires windows from panes, vectorised: computes which windows of which keys have results, and the rows of each.

Rows are sorted by key and time. The windows of a row are a range of numbers, and within a key both ends of the range
are monotonic, so each row adds the windows that the previous row is not in. A window is then a run of rows, found by
two binary searches. There is no Python step per record, key or window, and a window without rows has no result.

Memory is bounded: windows are produced in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.groups import groups_of
from millstream.aggregation.pane_rows import Accumulators, PaneRows
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.segments.lookup import expanded
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["FiredWindows", "WindowRange", "fired_windows"]

_BLOCK_WINDOWS = 1 << 17
_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True)
class WindowRange:
    """The windows numbered after `after` up to and including `through`."""

    after: int
    through: int

    def __bool__(self) -> bool:
        return self.through > self.after


@dataclass(frozen=True)
class FiredWindows:
    """Windows with results: the key, number and accumulators of each."""

    keys: pa.Array
    windows: Int64s
    parts: Parts


def fired_windows(
    rows: PaneRows, windows: PaneWindows, range_: WindowRange, accumulators: Accumulators, seeds: Bools | None = None
) -> Iterator[FiredWindows]:
    """The windows of the range that contain a row (of `seeds`, if not None), with all their rows; no two rows may have
    the same key and pane. A key's windows are ordered by their ends."""
    if not len(rows) or not range_:
        return
    if windows.is_tumbling:
        yield from _tumbling(rows, windows, range_, seeds)
    else:
        yield from _overlapping(rows, windows, range_, accumulators, seeds)


def _tumbling(rows: PaneRows, windows: PaneWindows, range_: WindowRange, seeds: Bools | None) -> Iterator[FiredWindows]:
    numbers = windows.last_window(rows.panes)
    in_range = (numbers > range_.after) & (numbers <= range_.through)
    at = np.flatnonzero(in_range if seeds is None else in_range & seeds)
    at = at[_stable_order(numbers[at])]
    for start in range(0, len(at), _BLOCK_WINDOWS):
        block = at[start : start + _BLOCK_WINDOWS]
        fired = pa.array(block)
        yield FiredWindows(rows.keys.array.take(fired), numbers[block], [part.take(fired) for part in rows.parts])


def _stable_order(numbers: Int64s) -> Int64s:
    """The order that sorts window numbers, stable."""
    if len(numbers):
        numbers = numbers - numbers.min()
        # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
        numbers = numbers.astype(np.uint16) if numbers.max() < 1 << 16 else numbers
    return np.argsort(numbers, kind="stable")


def _overlapping(
    rows: PaneRows, windows: PaneWindows, range_: WindowRange, accumulators: Accumulators, seeds: Bools | None
) -> Iterator[FiredWindows]:
    keys = groups_of(rows.keys.array)
    order = np.lexsort((rows.panes, keys.codes))
    rows, codes = rows.take(order), keys.codes[order]
    runs = _Runs(rows.panes, codes)
    ranged = accumulators.ranged(rows.parts)
    seed_rows = np.arange(len(rows)) if seeds is None else np.flatnonzero(seeds[order])
    first, last = _fresh_windows(rows.panes[seed_rows], codes[seed_rows], windows, range_)
    counts = last - first + 1
    block = _BLOCK_WINDOWS
    if not accumulators.ranges_are_cheap:
        block = max(1, _BLOCK_ROWS // (windows.size_ms // windows.pane_ms))
    for start, stop in _blocks(counts, block):
        numbers, seed = expanded(first[start:stop], last[start:stop] + 1)
        if len(numbers):
            key = codes[seed_rows[start:stop]][seed]
            starts = runs.find(key, windows.starts(numbers))
            stops = runs.find(key, windows.ends(numbers))
            yield FiredWindows(rows.keys.array.take(pa.array(starts)), numbers, ranged(starts, stops))


def _fresh_windows(panes: Int64s, codes: Int64s, windows: PaneWindows, range_: WindowRange) -> tuple[Int64s, Int64s]:
    """For each row the first and last window of the range that does not contain the previous row of its key; first is
    last + 1 if there is no new window."""
    first = np.maximum(windows.first_window(panes), range_.after + 1)
    last = np.minimum(windows.last_window(panes), range_.through)
    same_key = codes[1:] == codes[:-1]
    first[1:] = np.where(same_key, np.maximum(first[1:], last[:-1] + 1), first[1:])
    return first, np.maximum(last, first - 1)


class _Runs:
    """Rows sorted by key and pane, encoded as ascending integers, so that one search finds a key and a time."""

    def __init__(self, panes: Int64s, codes: Int64s) -> None:
        self._times, ranks = np.unique(panes, return_inverse=True)
        self._places = codes * len(self._times) + ranks

    def find(self, codes: Int64s, times: Int64s) -> Int64s:
        """For each key and time the first row of the key at or after the time, or else the first row of the next
        key."""
        return np.searchsorted(self._places, codes * len(self._times) + np.searchsorted(self._times, times))


def _blocks(counts: Int64s, count_max: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose counts add up to about `count_max`."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + count_max, side="right")))
        yield start, stop
        start = stop
