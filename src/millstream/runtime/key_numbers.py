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
        self._number_at = np.full(1 << bits, -1, dtype=np.int64)
        self._claim = np.empty(1 << bits, dtype=np.int64)

    def _grow_for(self, more: int) -> None:
        """Keep the table at most half full."""
        wanted = 2 * (self.count + more)
        if wanted <= len(self._hash_at):
            return
        self._make_table(int(wanted - 1).bit_length())
        # Every number but the collided ones, whose hash already belongs to another key.
        placed = np.delete(np.arange(self.count), self._collided)
        hashes = self._hashes[placed]
        places = self._first_places(hashes)
        rows = np.arange(len(placed))
        while len(rows):
            at = places[rows]
            empty = self._number_at[at] < 0
            won = rows[empty][self._winners(at[empty], rows[empty])]
            self._number_at[places[won]] = placed[won]
            self._hash_at[places[won]] = hashes[won]
            rows = rows[self._number_at[at] != placed[rows]]
            places[rows] = (places[rows] + 1) & self._mask

    def _first_places(self, hashes: Int64s) -> Int64s:
        # From the top bits: the low ones choose the key group, so a subtask sees only some of them.
        unsigned: UInt64s = hashes.view(np.uint64)
        return (unsigned >> self._shift).astype(np.int64)

    def _winners(self, places: Int64s, rows: Int64s) -> Bools:
        """Which of several rows that want one place get it: the first of each."""
        self._claim[places[::-1]] = rows[::-1]
        won: Bools = self._claim[places] == rows
        return won

    def _find_or_add(self, keys: KeyColumn) -> Int64s:
        hashes = np.ascontiguousarray(keys.hashes)
        self._grow_for(len(hashes))
        places = self._first_places(hashes)
        numbers = self._number_at[places]
        matched = (numbers >= 0) & (self._hash_at[places] == hashes)
        if matched.all():
            return numbers
        rows = np.flatnonzero(~matched)
        while len(rows):
            at = places[rows]
            found = self._number_at[at]
            empty = found < 0
            if empty.any():
                wanting = rows[empty]
                self._add(keys, hashes, wanting[self._winners(at[empty], wanting)], places)
                found = self._number_at[at]
            hit = self._hash_at[at] == hashes[rows]
            numbers[rows[hit]] = found[hit]
            rows = rows[~hit]
            places[rows] = (places[rows] + 1) & self._mask
        return numbers

    def _add(self, keys: KeyColumn, hashes: Int64s, rows: Int64s, places: Int64s) -> Int64s:
        """Give the next numbers to the keys of these rows, and put them in their places."""
        numbers = np.arange(self.count, self.count + len(rows))
        self.count += len(rows)
        self._hashes = grown(self._hashes, self.count, 0)
        self._hashes[numbers] = hashes[rows]
        self._keys.set(numbers, keys.array.take(pa.array(rows)))
        self._number_at[places[rows]] = numbers
        self._hash_at[places[rows]] = hashes[rows]
        return numbers

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
                self._hashes = grown(self._hashes, self.count, 0)
                self._hashes[number] = keys.hashes[row]
                self._keys.set(np.array([number]), key)
                self._collided.append(number)
            numbers[row] = number
