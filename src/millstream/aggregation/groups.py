"""Numbers groups of rows 0, 1, 2, …, so that grouped operations are plain arithmetic.

Keys are numbered by Arrow's dictionary encoding, dense integers by their offset, rows of several fields field by field;
keys are not compared by hash, so they never collide. Pairs of numbers are numbered by arithmetic if there are few, else
by dictionary encoding.

Per-row work is minimised: the largest streams spend most of their time here.

Invariant: equal values have one number, and every number from 0 to `count - 1` has at least one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import normalised, plain_view, plain_view_type

__all__ = [
    "Groups",
    "can_be_grouped",
    "groups_of",
    "groups_of_pairs",
    "is_flat",
    "pair_groups",
    "places_of_pairs",
    "winners",
]

_ROOM_PER_ROW = 4
_ROOM_MIN = 1_024
_PLACED_ROWS_MIN = 1_024
# The first rows of groups are searched among this many rows per group before all rows are searched.
_ROWS_PER_FIRST = 64
_NO_RANK = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Groups:
    """`codes[i]` is the group of row i."""

    codes: Int64s
    count: int

    @cached_property
    def sizes(self) -> Int64s:
        """The number of rows of every group."""
        return np.bincount(self.codes, minlength=self.count)

    def firsts(self) -> Int64s:
        """The first row of every group.

        >>> Groups(np.array([1, 0, 1]), 2).firsts().tolist()
        [1, 0]
        """
        first = np.full(self.count, -1, dtype=np.int64)
        few = _ROWS_PER_FIRST * self.count
        for codes in (self.codes[:few], self.codes) if few < len(self.codes) else (self.codes,):
            # The last assignment to an index wins: in reverse order, this is the first row.
            first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
            if first.min(initial=0) >= 0:
                break
        return first

    def lasts(self) -> Int64s:
        """The last row of every group.

        >>> Groups(np.array([1, 0, 1]), 2).lasts().tolist()
        [1, 2]
        """
        last = np.empty(self.count, dtype=np.int64)
        last[self.codes] = np.arange(len(self.codes))
        return last


def can_be_grouped(kind: pa.DataType) -> bool:
    """Whether values of this type can be numbered here."""
    if pa.types.is_struct(kind):
        return all(can_be_grouped(field.type) for field in kind)
    if pa.types.is_map(kind):
        return can_be_grouped(kind.key_type) and can_be_grouped(kind.item_type)
    if pa.types.is_list(kind):
        return can_be_grouped(kind.value_type)
    return not pa.types.is_nested(kind)


def is_flat(kind: pa.DataType) -> bool:
    """Whether values of this type contain neither lists nor maps.

    >>> is_flat(pa.struct({"a": pa.int64()})), is_flat(pa.struct({"a": pa.list_(pa.int64())}))
    (True, False)
    """
    if pa.types.is_struct(kind):
        return all(is_flat(field.type) for field in kind)
    return not pa.types.is_nested(kind)


def groups_of(values: pa.Array) -> Groups:
    """Groups of rows with equal values; `state.keys.key_columns` defines equality.

    >>> groups_of(pa.array(["a", None, "a", "b"])).codes.tolist()
    [0, 1, 0, 2]
    """
    kind = values.type
    if pa.types.is_struct(kind):
        groups = groups_of(values.is_valid())
        for field in values.flatten():  # flatten, to ignore values under a NULL
            groups = pair_groups(groups, groups_of(field))
        return groups
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _groups_of_lists(normalised(values))
    placed = _placed(values)
    if placed is not None:
        return _without_gaps(*placed)
    encoded = normalised(values).dictionary_encode(null_encoding="encode")
    return Groups(encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary))


def _groups_of_lists(lists: pa.Array) -> Groups:
    """Numbers all elements first; a list is then the bytes of its elements' numbers. Maps are handled alike, with
    sorted entries."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    if pa.types.is_map(lists.type):
        inside = pa.StructArray.from_arrays([lists.keys, lists.items], names=["key", "value"])
        offsets = offsets - offsets[0]
    else:
        inside = lists.values
    codes = np.ascontiguousarray(groups_of(inside).codes)
    mask = pa.py_buffer(np.packbits(lists.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    bounds = pa.py_buffer(np.ascontiguousarray(offsets * codes.itemsize))
    list_bytes = pa.Array.from_buffers(pa.large_binary(), len(lists), [mask, bounds, pa.py_buffer(codes)])
    encoded = list_bytes.dictionary_encode(null_encoding="encode")
    return Groups(encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary))


def _placed(values: pa.Array) -> tuple[Int64s, int] | None:
    """Dense integers as offsets below a `room`, without a dictionary; some offsets may have no row. None if they are
    not dense."""
    if len(values) < _PLACED_ROWS_MIN or values.null_count or not pa.types.is_signed_integer(values.type):
        return None
    numbers = values.to_numpy()
    low = int(numbers.min())
    room = int(numbers.max()) - low + 1
    if room == 1:
        return np.zeros(len(values), dtype=np.int64), 1
    if room > _ROOM_PER_ROW * len(values):
        return None
    return np.subtract(numbers, low, dtype=np.int64), room


def _without_gaps(codes: Int64s, room: int) -> Groups:
    """Groups by numbers below `room`, some of which may have no row."""
    if room == 1:
        return Groups(codes, 1)
    has_rows = np.zeros(room, dtype=np.bool_)
    has_rows[codes] = True
    count = int(np.count_nonzero(has_rows))
    if count == room:
        return Groups(codes, count)
    # A narrow type caches better: lookups are random.
    places = np.cumsum(has_rows, dtype=np.int32 if room < 2**31 else np.int64)
    np.subtract(places, 1, out=places)
    return Groups(places[codes].astype(np.int64), count)


def groups_of_pairs(left: pa.Array, right: pa.Array) -> Groups:
    """Groups of rows that agree in both columns: as `pair_groups`, but numbered differently.

    >>> groups_of_pairs(pa.array([7, 7, 8]), pa.array([1, 2, 1])).codes.tolist()
    [0, 1, 2]
    """
    rights = groups_of(right)
    placed = _placed(left) if rights.count > 1 else None
    if placed is None or placed[1] * rights.count > _room_for(len(left)):
        return pair_groups(groups_of(left), rights)
    # Ordered by the right column first: with keys and panes, keys of one pane are then adjacent.
    codes, room = placed
    return _without_gaps(rights.codes * room + codes, room * rights.count)


def pair_groups(left: Groups, right: Groups) -> Groups:
    """Groups of rows that agree in both.

    >>> pair_groups(groups_of(pa.array([7, 7, 8])), groups_of(pa.array([1, 2, 1]))).codes.tolist()
    [0, 1, 2]
    """
    if right.count <= 1:
        return left
    if left.count <= 1:
        return right
    codes = left.codes * right.count + right.codes
    room = left.count * right.count
    if room > _room_for(len(codes)):
        return groups_of(pa.array(codes))
    return _without_gaps(codes, room)


def places_of_pairs(codes: Int64s, values: pa.Array, count: int) -> tuple[Int64s, int]:
    """Numbers for pairs of a group (of `count`) and a value, with their upper bound: ordered by group and, for integers
    and times without NULL, by value.

    >>> places_of_pairs(np.array([1, 0]), pa.array([7, 9]), 2)
    (array([3, 2]), 6)
    """
    if len(values) and not values.null_count and plain_view_type(values.type) is not None:
        numbers = plain_view(values)
        low = int(numbers.min())
        room = int(numbers.max()) - low + 1
        if room * count < _NO_RANK:
            return codes * room + np.subtract(numbers, low, dtype=np.int64), room * count
    groups = groups_of(values)
    return codes * groups.count + groups.codes, groups.count * count


def _room_for(rows: int) -> int:
    """The largest room for pairs of this many rows."""
    return max(_ROOM_PER_ROW * rows, _ROOM_MIN)


def winners(ranks: Int64s, groups: Groups, *, latest: bool = False) -> Int64s:
    """For every group the row with the smallest rank, of equal ranks the first (or the latest); -1 if no row qualifies.
    Makes a few passes over the rows in place, without sorting.

    >>> winners(np.array([5, 3, 3]), Groups(np.array([0, 0, 0]), 1)).tolist()
    [1]
    """
    best = np.full(groups.count, _NO_RANK)
    np.minimum.at(best, groups.codes, ranks)
    best_rows = np.flatnonzero(ranks == best[groups.codes])
    best_rows = best_rows if latest else best_rows[::-1]
    index = np.full(groups.count, -1)
    index[groups.codes[best_rows]] = best_rows
    return index
