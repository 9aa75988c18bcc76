"""Numbers for the keys of an epoch: 0, 1, 2, … as keys are first met, so that states can be arrays.

An open-addressing hash table over the keys' 64-bit hashes, probed for a whole batch at once: each round looks at
one place per record still undecided, and rounds shrink quickly. A hash is not the key, so every answer is held
against the key itself; the keys that lost their hash to another key (one pair in 2⁶⁴) are kept in a list.

Invariant: equal keys have one number, different keys different ones, whatever their hashes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.runtime.numbered_column import NumberedColumn, grown
from millstream.state.equality import Bools, same
from millstream.state.keys import KeyColumn
from millstream.state.xxh64 import Int64s, UInt64s

__all__ = ["KeyNumbers", "Numbering"]

_EMPTY = -1


class Numbering:
    """The keys of one batch: `distinct` are their numbers in order of first appearance, `codes` says for every
    record which of these is its key, `fresh` are the numbers never met before this batch."""

    __slots__ = ("codes", "distinct", "fresh")

    def __init__(self, codes: Int64s, distinct: Int64s, fresh: Int64s) -> None:
        self.codes = codes
        self.distinct = distinct
        self.fresh = fresh


class KeyNumbers:
    """The keys met so far, by number. `kind` is the Arrow type of their column.

    >>> from millstream.state.keys import key_column_of_arrow
    >>> numbers = KeyNumbers(pa.string())
    >>> seen = numbers.number(key_column_of_arrow(pa.array(["b", "a", "b"])))
    >>> seen.codes.tolist(), numbers.keys(seen.distinct).array.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    >>> numbers.number(key_column_of_arrow(pa.array(["a", "c"]))).fresh.tolist()
    [2]
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.count = 0
        self._keys = NumberedColumn(kind)
        self._hashes = np.empty(0, dtype=np.int64)
        self._scratch = np.empty(0, dtype=np.int64)
        self._collided: list[int] = []
        self._make_table(12)

    def number(self, keys: KeyColumn) -> Numbering:
        """Number the keys of a batch; new keys get the next numbers."""
        before = self.count
        numbers = self._find_or_add(keys)
        if len(keys):
            self._part_collided(keys, numbers)
        self._scratch = grown(self._scratch, self.count, 0)
        return self._numbering(numbers, before)

    def keys(self, numbers: Int64s) -> KeyColumn:
        """The keys that have these numbers."""
        return KeyColumn(self._hashes[numbers], self._keys.get(numbers))

    def _numbering(self, numbers: Int64s, before: int) -> Numbering:
        rows = np.arange(len(numbers))
        # Of assignments to one place the last one stays: backwards, that is the first record of each key.
        self._scratch[numbers[::-1]] = rows[::-1]
        first = self._scratch[numbers]
        is_first = first == rows
        codes = (np.cumsum(is_first) - 1)[first]
        return Numbering(codes, numbers[is_first], np.arange(before, self.count))

    # --- the hash table -----------------------------------------------------------------------------------------

    def _make_table(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._mask = np.int64((1 << bits) - 1)
        self._hash_at = np.zeros(1 << bits, dtype=np.int64)
        self._number_at = np.full(1 << bits, _EMPTY, dtype=np.int32)

    def _grow_for(self, more: int) -> None:
        """Keep the table at most half full."""
        wanted = 2 * (self.count + more)
        if wanted <= len(self._hash_at):
            return
        # In the order of the old places, which is nearly that of the new ones: memory is walked, not jumped about in.
        # (The collided are not among them: their hash already belongs to another key.)
        there = self._number_at >= 0
        placed, hashes = self._number_at[there], self._hash_at[there]
        self._make_table(int(wanted - 1).bit_length())
        places = self._first_places(hashes)
        rows = np.arange(len(placed))
        while len(rows):
            won = rows[self._claim(places[rows], rows)]
            self._number_at[places[won]] = placed[won]
            self._hash_at[places[won]] = hashes[won]
            rows = rows[self._number_at[places[rows]] != placed[rows]]
            places[rows] = (places[rows] + 1) & self._mask

    def _first_places(self, hashes: Int64s) -> Int64s:
        # From the top bits: the low ones choose the key group, so a subtask sees only some of them.
        unsigned: UInt64s = hashes.view(np.uint64)
        return (unsigned >> self._shift).astype(np.int64)

    def _claim(self, places: Int64s, rows: Int64s) -> Bools:
        """Which rows get the place they want: of those that want an empty one, the first. The caller fills it."""
        won: Bools = self._number_at[places] == _EMPTY
        wanted, wanting = places[won], (_EMPTY - 1 - rows[won]).astype(np.int32)
        # Of assignments to one place the last one stays: backwards, that is the first row.
        self._number_at[wanted[::-1]] = wanting[::-1]
        won[won] = self._number_at[wanted] == wanting
        return won

    def _find_or_add(self, keys: KeyColumn) -> Int64s:
        hashes = np.ascontiguousarray(keys.hashes)
        self._grow_for(len(hashes))
        places = self._first_places(hashes)
        numbers = self._number_at[places].astype(np.int64)
        matched = (numbers >= 0) & (self._hash_at[places] == hashes)
        if matched.all():
            return numbers
        rows = np.flatnonzero(~matched)
        added: list[Int64s] = []
        while len(rows):
            won = rows[self._claim(places[rows], rows)]
            if len(won):
                self._number_at[places[won]] = np.arange(self.count, self.count + len(won))
                self._hash_at[places[won]] = hashes[won]
                self.count += len(won)
                added.append(won)
            at = places[rows]
            hit = self._hash_at[at] == hashes[rows]
            numbers[rows[hit]] = self._number_at[at[hit]]
            rows = rows[~hit]
            places[rows] = (places[rows] + 1) & self._mask
        if added:
            self._keep(keys, np.concatenate(added))
        return numbers

    def _keep(self, keys: KeyColumn, rows: Int64s) -> None:
        """The keys of these rows have the last numbers given out."""
        numbers = np.arange(self.count - len(rows), self.count)
        self._hashes = grown(self._hashes, self.count, 0)
        self._hashes[numbers] = keys.hashes[rows]
        self._keys.set(numbers, keys.array.take(pa.array(rows)))

    def _part_collided(self, keys: KeyColumn, numbers: Int64s) -> None:
        """Where the hash was that of another key, find or make the key's own number. One by one: that is rare."""
        differ = ~same(self._keys.get(numbers), keys.array)
        for row in np.flatnonzero(differ).tolist():
            key = keys.array.slice(row, 1)
            known = (n for n in self._collided if same(self._keys.get(np.array([n])), key)[0])
            number = next(known, None)
            if number is None:
                number = self.count
                self.count += 1
                self._keep(keys, np.array([row]))
                self._collided.append(number)
            numbers[row] = number
