"""Matches rows of two sides, vectorised: keys are equal, and the time of one row is within a range around the other's.

Keys are numbers: `key_numbers` assigns equal keys of both sides the same number. One side is sorted by key and time,
encoded as ascending integers, so that the matches of a row of the other side are one run, found by two binary searches.
Runs are expanded to pairs in pieces: however many pairs there are, only a piece of them is in memory.

If times do not matter and keys of the smaller side are unique, a hash table finds the match of each row of the larger
side, several times faster (`pairs_of_unique`).

Order: `pairs` are ordered by left row, then by the time of the right row, then by right row; `pairs_of_unique` by the
rows of the larger side. Both agree on the pairs of one row. The order is deterministic, so a repeated epoch yields the
same pairs in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.groups import can_be_grouped, groups_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import normalised
from millstream.state.segments.lookup import expanded

__all__ = ["PAIRS_MAX", "key_numbers", "pairs", "pairs_of_unique"]

PAIRS_MAX = 65_536
"""The default number of pairs produced at a time."""

_FAR_MS = 1 << 61
_ROOM = 1 << 62


def key_numbers(keys: Sequence[pa.Array]) -> list[Int64s]:
    """Numbers for the keys of several columns of one type; equal keys have the same number across columns.

    >>> [codes.tolist() for codes in key_numbers([pa.array(["a", "b"]), pa.array(["b", "c", "a"])])]
    [[0, 1], [1, 2, 0]]
    """
    whole = keys[0] if len(keys) == 1 else pa.concat_arrays(keys)
    if not can_be_grouped(whole.type):
        # Arrow has no dictionary encoding for lists; their repr distinguishes them.
        whole = pa.array(map(repr, normalised(whole).to_pylist()), pa.string(), size=len(whole))
    codes = groups_of(whole).codes
    return np.split(codes, np.cumsum([len(column) for column in keys[:-1]]))


def pairs_of_unique(
    left: pa.Array, right: pa.Array, *, pairs_max: int = PAIRS_MAX
) -> Iterator[tuple[Int64s, Int64s]] | None:
    """Pairs of rows with equal non-NULL keys: their left and their right rows. None if keys of the smaller side repeat,
    or if equal values of their type may have different bytes.

    >>> matches = pairs_of_unique(pa.array([7, 8, 7, None]), pa.array([8, 7]))
    >>> [(a.tolist(), b.tolist()) for a, b in matches]
    [([0, 1, 2], [1, 0, 1])]
    >>> pairs_of_unique(pa.array([7, 8, 7]), pa.array([7, 7])) is None
    True
    """
    kind, is_left_larger = left.type, len(left) >= len(right)
    larger, smaller = (left, right) if is_left_larger else (right, left)
    is_plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_timestamp(kind)
    if not is_plain or right.type != kind or len(smaller.unique()) < len(smaller):
        return None
    places = pc.index_in(larger, value_set=smaller, skip_nulls=True)
    rows = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    match_rows = places.drop_null().to_numpy().astype(np.int64)
    matches = (rows, match_rows) if is_left_larger else (match_rows, rows)
    return ((matches[0][at : at + pairs_max], matches[1][at : at + pairs_max]) for at in range(0, len(rows), pairs_max))


def pairs(
    left_codes: Int64s,
    left_first_ms: Int64s,
    left_last_ms: Int64s,
    right_codes: Int64s,
    right_ms: Int64s,
    *,
    pairs_max: int = PAIRS_MAX,
) -> Iterator[tuple[Int64s, Int64s]]:
    """Pairs of rows with equal codes and `left_first_ms <= right_ms <= left_last_ms`: their left and their right rows.

    >>> left, first, last = np.array([7, 8]), np.array([0, 0]), np.array([5, 5])
    >>> right, times = np.array([8, 7, 7, 7]), np.array([0, 5, 1, 6])
    >>> [(a.tolist(), b.tolist()) for a, b in pairs(left, first, last, right, times)]
    [([0, 0, 1], [2, 1, 0])]
    """
    if not len(left_codes) or not len(right_codes):
        return
    rows_in_all = len(left_codes) + len(right_codes)
    span, times, first, last = _scaled_times(right_ms, left_first_ms, left_last_ms, rows_in_all)
    if int(max(left_codes.max(), right_codes.max())) >= _ROOM // span:
        left_codes, right_codes = np.split(
            groups_of(pa.array(np.append(left_codes, right_codes))).codes, [len(left_codes)]
        )
    order, places = _sorted_rows(right_codes * span + times)
    offsets = left_codes * span
    starts, stops = _runs(places, offsets + first, offsets + last)
    rows = np.flatnonzero(stops > starts)
    for run, match in _pieces(starts[rows], stops[rows], pairs_max):
        yield rows[run], order[match]


def _scaled_times(times: Int64s, first: Int64s, last: Int64s, keys_max: int) -> tuple[int, Int64s, Int64s, Int64s]:
    """Times as small integers from 0 up to an exclusive bound. Returns the bound, the times, the starts of the ranges,
    and their exclusive ends. Bounds beyond all times are clamped."""
    lowest, highest = int(times.min()), int(times.max())
    if lowest > -_FAR_MS and highest < _FAR_MS and (highest - lowest + 2) * keys_max < _FAR_MS:
        first = np.clip(first, lowest, highest + 1) - lowest
        return highest - lowest + 2, times - lowest, first, np.clip(last, lowest - 1, highest) + 1 - lowest
    # Times too far apart to be encoded with keys: use their ranks.
    ranked, ranks = np.unique(times, return_inverse=True)
    return len(ranked) + 1, ranks, np.searchsorted(ranked, first), np.searchsorted(ranked, last, side="right")


def _sorted_rows(places: Int64s) -> tuple[Int64s, Int64s]:
    """The stable order of rows by encoded (key, time), and the sorted codes."""
    bits = len(places).bit_length()
    if int(places.max()) < _ROOM >> bits:
        # Pack the row number into the low bits: sorting plain numbers is several times faster than argsort.
        packed = np.sort((places << bits) | np.arange(len(places)))
        return packed & ((1 << bits) - 1), packed >> bits
    order = np.argsort(places, kind="stable")
    return order, places[order]


def _runs(places: Int64s, first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """For each range of codes, its run in the sorted codes; the end is exclusive."""
    # Searching in ascending order mostly hits the cache: four times faster, including the sort.
    order, ascending = _sorted_rows(first)
    starts, stops = np.empty_like(first), np.empty_like(first)
    starts[order] = np.searchsorted(places, ascending)
    stops[order] = np.searchsorted(places, last[order])
    return starts, stops


def _pieces(starts: Int64s, stops: Int64s, most: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yields the rows of all runs, each with its run, at most `most` at a time; a long run is split between pieces."""
    ends = np.cumsum(stops - starts)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, most):
        end = min(begin + most, total)
        a, b = int(np.searchsorted(ends, begin, side="right")), int(np.searchsorted(ends, end)) + 1
        piece_starts, piece_stops = starts[a:b].copy(), stops[a:b].copy()
        piece_starts[0] = stops[a] - (int(ends[a]) - begin)
        piece_stops[-1] -= int(ends[b - 1]) - end
        rows, run = expanded(piece_starts, piece_stops)
        yield run + a, rows
