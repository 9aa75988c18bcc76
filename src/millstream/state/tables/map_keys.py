"""The keys of maps: of a `MapState`, a broadcast state, a map of operator state.

They follow the one rule of equality (`keys.key_columns`): what is one key of a stream is one key of a map, in memory
and in the store. So they are settled when they are given and when they are read (`state.keys.settled_keys`). Keys
without a declared type are stored as pickles, and equal ones are equal bytes because settled ones are pickled, sets in
them in an order of their own: Python's depends on how a set was made, and on the process.

Releases before this rule pickled such keys as they came: 1.0 and True may stand in a store where 1 is meant, and sets
in any order. They are found (a set, if it came in the order that it has now), a row that is written since counts before
them, and removing a key removes them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millstream.records.pickling import pickled
from millstream.state.keys.settled_keys import is_settled_by_type, settled_declared, settled_map_key, with_sets
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable

__all__ = ["MapKeyCodec", "entries_of"]

_EXACT_FLOATS = 1 << 53
_ABSENT = object()


class _Sorted:
    """What a set is pickled as: it comes back as the set."""

    def __init__(self, parts: frozenset[Any]) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return frozenset, (sorted(self._parts, key=pickled),)


class _AsItCame:
    """A key that is pickled as it is."""

    def __init__(self, key: Any) -> None:
        self.key = key


class MapKeyCodec(StateCodec):
    """Converts the keys of one map."""

    def encode(self, values: list[Any]) -> pa.Array:
        return super().encode(list(map(_to_pickle, values)) if self.is_pickled else values)

    def decode(self, column: pa.Array, version: int | None = None) -> list[Any]:
        keys = super().decode(column, version)
        if self.is_pickled:
            return list(map(settled_map_key, keys))
        return settled_declared(keys, self.arrow_type)

    def forms(self, map_key: Any) -> tuple[Any, ...]:
        """What may be stored for a settled key: itself, then what releases before the rule may have left."""
        if self.is_pickled and with_sets(map_key, _Sorted) is not map_key:
            return (map_key, _AsItCame(map_key))
        if not self.is_pickled or type(map_key) is not int or abs(map_key) > _EXACT_FLOATS:
            return (map_key,)
        return (map_key, float(map_key), bool(map_key)) if map_key in (0, 1) else (map_key, float(map_key))

    def _settler(self) -> Callable[[Any], Any]:
        if self.is_pickled:
            return settled_map_key
        settle, kind = super()._settler(), self.arrow_type
        return settle if is_settled_by_type(kind) else lambda key: settled_declared([settle(key)], kind)[0]


def _to_pickle(map_key: Any) -> Any:
    return map_key.key if type(map_key) is _AsItCame else with_sets(map_key, _Sorted)


def entries_of(table: StateTable, key: Any, rows: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The entries of a map that its rows hold. Of rows for one key, which only older releases left, that counts which
    stands in the settled form."""
    entries = dict(rows)
    if len(entries) == len(rows):
        return entries
    repeated = [map_key for at, (map_key, _) in enumerate(rows) if map_key in dict(rows[:at])]
    for map_key, value in zip(repeated, table.read_pairs([key] * len(repeated), repeated, _ABSENT), strict=True):
        if value is not _ABSENT:
            entries[map_key] = value
    return entries
