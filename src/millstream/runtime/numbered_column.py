"""A column of Arrow values by number, for one epoch: what a columnar state holds of the keys met so far.

Values are never changed in place. What is set is appended as a piece, and `_place` says where the newest value of
each number lies; pieces are merged so that there are few, and what was overwritten is dropped once it is more
than half. So any Arrow type will do, and setting many costs what appending them costs.

Invariant: `get` answers what was set last under each number, null where nothing was.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.state.equality import Bools
from millstream.state.xxh64 import Int64s

__all__ = ["NumberedColumn", "grown"]

# Arrow's texts and lists count their bytes in 31 bits, so a merged piece stays well below that.
_PIECE_BYTES_MAX = 1 << 29
_GARBAGE_ROWS_MIN = 65_536


class NumberedColumn:
    """Values of `kind` by number.

    >>> column = NumberedColumn(pa.string())
    >>> column.set(np.array([0, 2]), pa.array(["a", "c"]))
    >>> column.set(np.array([2]), pa.array(["C"]))
    >>> column.get(np.array([2, 1, 0])).to_pylist()
    ['C', None, 'a']
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._place = np.empty(0, dtype=np.int64)
        self._pieces: list[pa.Array] = []
        self._starts: list[int] = []
        self._rows = 0
        self._numbers = 0  # how many numbers have a value, at most

    def set(self, numbers: Int64s, values: pa.Array) -> None:
        """Set the values of different numbers."""
        if not len(numbers):
            return
        self._place = grown(self._place, int(numbers.max()) + 1, -1)
        self._numbers += int(np.count_nonzero(self._place[numbers] < 0))
        self._place[numbers] = self._rows + np.arange(len(numbers))
        self._append(values)
        if self._rows > 2 * self._numbers + _GARBAGE_ROWS_MIN:
            self._drop_overwritten()

    def get(self, numbers: Int64s) -> pa.Array:
        """The values of any numbers."""
        known = len(self._place)
        if not known:
            return pa.nulls(len(numbers), self.kind)
        if len(numbers) and int(numbers.max()) >= known:
            places = np.where(numbers < known, self._place[np.minimum(numbers, known - 1)], -1)
        else:
            places = self._place[numbers]
        absent = places < 0
        return self._taken(places, absent if absent.any() else None)

    def _taken(self, places: Int64s, absent: Bools | None) -> pa.Array:
        if len(self._pieces) == 1:
            return self._pieces[0].take(pa.array(places, mask=absent))
        # Take from each piece what lies in it, then bring it all into the order asked for.
        piece_of = np.searchsorted(self._starts, places, side="right") - 1
        order = np.argsort(piece_of.astype(np.int16), kind="stable")
        bounds = np.searchsorted(piece_of[order], np.arange(len(self._pieces) + 1)).tolist()
        taken: list[pa.Array] = []
        rank = np.zeros(len(places), dtype=np.int64)
        rank[order] = np.arange(len(places)) - bounds[0]  # those before bounds[0] have no place, hence no piece
        for number, piece in enumerate(self._pieces):
            rows = order[bounds[number] : bounds[number + 1]]
            if len(rows):
                taken.append(piece.take(pa.array(places[rows] - self._starts[number])))
        if not taken:
            return pa.nulls(len(places), self.kind)
        return pa.concat_arrays(taken).take(pa.array(rank, mask=absent))

    def _append(self, values: pa.Array) -> None:
        pieces, starts = self._pieces, self._starts
        starts.append(self._rows)
        pieces.append(values)
        self._rows += len(values)
        while len(pieces) > 1 and len(pieces[-2]) <= 2 * len(pieces[-1]) and _fit(pieces[-2:]):
            pieces[-2:] = [pa.concat_arrays(pieces[-2:])]
            starts.pop()

    def _drop_overwritten(self) -> None:
        numbers = np.flatnonzero(self._place >= 0)
        kept = self.get(numbers)
        self._pieces, self._starts, self._rows = [], [], 0
        self._place[numbers] = np.arange(len(numbers))
        self._append(kept)


def _fit(pieces: list[pa.Array]) -> bool:
    return bool(sum(piece.nbytes for piece in pieces) <= _PIECE_BYTES_MAX)


def grown(array: Int64s, length: int, fill: int) -> Int64s:
    """The array with room for at least `length`; what is new is `fill`."""
    if length <= len(array):
        return array
    larger = np.full(max(length, 2 * len(array), 1_024), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
