"""Lists and maps in key columns: detection by type, a fixed order for a map's entries, and vectorised comparison.

Two maps are one key if they have the same entries, in any order. So the entries of a map in a key are sorted by the
hashes of their keys, which depend only on their values; if two keys of a map share a hash, their encoding decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.state.keys.hashing import Int64s, xxhash64_column

__all__ = ["holds_floats", "holds_maps", "same_lists", "unsliced", "with_ordered_entries"]

_Same: TypeAlias = Callable[[pa.Array, pa.Array], NDArray[np.bool_]]


def holds_floats(kind: pa.DataType) -> bool:
    """Whether values of this type are or contain floats: only then a number can have several bit patterns."""
    return _holds(kind, pa.types.is_floating)


def holds_maps(kind: pa.DataType) -> bool:
    """Whether values of this type are or contain maps: only then a key can have its parts in several orders."""
    return _holds(kind, pa.types.is_map)


def _holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    t = pa.types
    if test(kind):
        return True
    if t.is_struct(kind):
        return any(_holds(field.type, test) for field in kind)
    if t.is_map(kind):
        return _holds(kind.key_type, test) or _holds(kind.item_type, test)
    return t.is_list(kind) and _holds(kind.value_type, test)


def unsliced(array: pa.Array) -> pa.Array:
    """The same list or map column from the start of its buffers, without values under nulls, so that its child values
    can be replaced."""
    return array.take(pa.array(range(len(array)), pa.int64()))


def with_ordered_entries(maps: pa.MapArray) -> pa.MapArray:
    """The maps with their entries in the fixed order. They must be unsliced, with normalised keys and values.

    >>> written = pa.array([[("b", 2), ("a", 1)], [("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64()))
    >>> first, second = with_ordered_entries(written).to_pylist()
    >>> first == second
    True
    """
    offsets, keys = maps.offsets.to_numpy().astype(np.int64), maps.keys
    owners = np.repeat(np.arange(len(maps)), np.diff(offsets))
    hashes = xxhash64_column(keys)
    order = np.lexsort((hashes, owners))
    tied = _tied(owners[order], hashes[order])
    if tied.any():
        written = np.zeros(len(keys), dtype=object)
        written[order[tied]] = list(map(repr, keys.take(pa.array(order[tied])).to_pylist()))
        written[written == 0] = ""
        order = np.lexsort((np.unique(written.astype(str), return_inverse=True)[1], hashes, owners))
    if (order == np.arange(len(order))).all():
        return maps
    at = pa.array(order)
    return pa.MapArray.from_arrays(
        maps.offsets,
        keys.take(at),
        maps.items.take(at),
        type=maps.type,
        mask=maps.is_null() if maps.null_count else None,
    )


def _tied(owners: Int64s, hashes: Int64s) -> NDArray[np.bool_]:
    """Mask of the ordered entries that have the same map and key hash as a neighbour."""
    equal = (owners[1:] == owners[:-1]) & (hashes[1:] == hashes[:-1])
    tied = np.zeros(len(owners), dtype=np.bool_)
    tied[1:] |= equal
    tied[:-1] |= equal
    return tied


def same_lists(left: pa.Array, right: pa.Array, same: _Same) -> NDArray[np.bool_]:
    """For each position, whether the two list or map columns have equally many elements, pairwise the `same`; undefined
    where either is null. Entries of maps must already be in the fixed order."""
    sides = unsliced(left), unsliced(right)
    offsets = [side.offsets.to_numpy().astype(np.int64) for side in sides]
    lengths = [np.diff(each) for each in offsets]
    answer: NDArray[np.bool_] = lengths[0] == lengths[1]
    rows = np.flatnonzero(answer & (lengths[0] > 0))
    if not len(rows):
        return answer
    count = lengths[0][rows]
    starts = np.cumsum(count) - count
    inside = np.arange(int(count.sum())) - np.repeat(starts, count)
    parts = [
        _elements(side).take(pa.array(np.repeat(each[rows], count) + inside))
        for side, each in zip(sides, offsets, strict=True)
    ]
    answer[rows] = np.logical_and.reduceat(same(*parts), starts)
    return answer


def _elements(column: pa.Array) -> pa.Array:
    """The elements of lists; of maps their entries."""
    if pa.types.is_map(column.type):
        return pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
    return column.values
