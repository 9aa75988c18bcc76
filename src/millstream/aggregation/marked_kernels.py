"""Distinct values shared by several aggregates: each value once per group, with a mark for each aggregate that counted
it.

Marks are the bits of a number, never 0. Repeated values unite their marks. The only work is making (group, value) pairs
unique, whatever the number of aggregates: by direct addressing if the range is small, else by sorting.
`united_reference` does the same a pair at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.groups import Groups, places_of_pairs
from millstream.aggregation.list_kernels import Listed, flat
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.segments.sorting import ascending_below

__all__ = ["MarkedPairs", "MarkedValues", "united", "united_reference"]

# Pairs are addressed directly if there are at most this many addresses per pair.
_PLACES_PER_PAIR = 4


@dataclass(frozen=True)
class MarkedPairs:
    """Values of groups: the group, the value, its marks."""

    codes: Int64s
    values: pa.Array
    marks: Int64s

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def concat(cls, pieces: Sequence[MarkedPairs]) -> MarkedPairs:
        """All pairs, concatenated."""
        return cls(
            np.concatenate([each.codes for each in pieces]),
            pa.concat_arrays([each.values for each in pieces]),
            np.concatenate([each.marks for each in pieces]),
        )

    def filtered(self, chosen: Bools) -> MarkedPairs:
        """The chosen pairs."""
        if chosen.all():
            return self
        return MarkedPairs(self.codes[chosen], self.values.filter(pa.array(chosen)), self.marks[chosen])

    def with_marks(self, marks: Int64s) -> MarkedPairs:
        """The pairs with new marks, without those whose marks are 0."""
        return MarkedPairs(self.codes, self.values, marks).filtered(marks != 0)


def united_reference(pairs: Iterable[tuple[int, Any, int]]) -> dict[tuple[int, Any], int]:
    """The marks of every group and value.

    >>> united_reference([(0, "a", 1), (1, "a", 1), (0, "a", 4)])
    {(0, 'a'): 5, (1, 'a'): 1}
    """
    united: dict[tuple[int, Any], int] = {}
    for code, value, marks in pairs:
        united[code, value] = united.get((code, value), 0) | marks
    return united


def united(pairs: MarkedPairs, count: int) -> MarkedPairs:
    """Each group and value once, by group. `count` is the number of groups.

    >>> pairs = MarkedPairs(np.array([0, 1, 0]), pa.array([7, 7, 7]), np.array([1, 1, 4]))
    >>> [part.tolist() for part in (united(pairs, 2).codes, united(pairs, 2).marks)]
    [[0, 1], [5, 1]]
    """
    if len(pairs) < 2:
        return pairs
    places, room = places_of_pairs(pairs.codes, pairs.values, count)
    if room <= _PLACES_PER_PAIR * len(pairs):
        marks, rows = np.zeros((2, room), dtype=np.int64)
        np.bitwise_or.at(marks, places, pairs.marks)
        rows[places] = np.arange(len(pairs))
        present = np.flatnonzero(marks)
        marks, rows = marks[present], rows[present]
    else:
        order = ascending_below(room, places)
        sorted_places = places[order]
        begins = np.flatnonzero(np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]]))
        marks, rows = np.bitwise_or.reduceat(pairs.marks[order], begins), order[begins]
    return MarkedPairs(pairs.codes[rows], pairs.values.take(pa.array(rows)), marks)


class MarkedValues(Listed):
    """The values of an argument with marks: the measure's arguments are the value and, for each aggregate, whether it
    counts the row. The results are computed downstream of the exchange (`runtime.tables.group_marks`)."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        marks, is_seen = _marks(columns)
        return self.lists_of_single_rows([columns[0], pa.array(marks)], is_seen, len(at))

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        rows, lengths = flat(parts[0])
        codes = np.repeat(groups.codes, lengths)
        return self._listed(MarkedPairs(codes, rows.field(0), rows.field(1).to_numpy()), groups.count)

    def gather(self, columns: Sequence[pa.Array], at: Int64s, groups: Groups) -> Parts:
        marks, is_seen = _marks(columns)
        pairs = MarkedPairs(groups.codes, columns[0], marks)
        return self._listed(pairs.filtered(is_seen), groups.count)

    def _listed(self, pairs: MarkedPairs, count: int) -> Parts:
        pairs = united(pairs, count)
        rows = pa.StructArray.from_arrays([pairs.values, pa.array(pairs.marks)], fields=list(self._row_kind))
        return [self._lists(rows, np.bincount(pairs.codes, minlength=count))]


def _marks(columns: Sequence[pa.Array]) -> tuple[Int64s, Bools]:
    """The marks of every row, and whether it has a value that an aggregate counts."""
    marks = np.zeros(len(columns[0]), dtype=np.int64)
    for bit, passes in enumerate(columns[1:]):
        marks |= np.asarray(passes).astype(np.int64) << bit
    is_seen = marks != 0
    if columns[0].null_count:
        is_seen &= np.asarray(columns[0].is_valid())
    return marks, is_seen
