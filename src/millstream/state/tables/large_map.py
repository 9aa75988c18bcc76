"""A map with very many entries that is not loaded: single entries and pieces are read from the store on demand.

`StoredEntries` are the stored entries of one map. `LargeMap` is the map as a function sees it: the stored entries,
overlaid by the function's changes. It is a snapshot of the map at its creation, like the dictionary of a small map: a
function that changes the state while iterating does not see its changes.

The size of a piece is bounded in bytes, by the average size of rows. Memory does not grow with the map, and reading one
entry costs the same in a map of thousands and in one of millions.
"""

from __future__ import annotations

from collections.abc import ItemsView as Items
from collections.abc import Iterator, Mapping
from collections.abc import ValuesView as Values
from typing import Any

import pyarrow as pa

from millstream.errors import TypeMismatchError
from millstream.state.keys.key_columns import same
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.key_rows import KeyRows
from millstream.state.tables.map_keys import MapKeyCodec
from millstream.state.tables.point_reads import Locate, locator, reads_points, value_at

__all__ = ["LargeMap", "StoredEntries"]

_SIGN = 1 << 63


class StoredEntries:
    """The stored entries of one map, read on demand, about `piece_rows` at a time."""

    def __init__(self, rows: KeyRows, key: MapKeyCodec, value: StateCodec, piece_rows: int) -> None:
        self._rows, self._key, self._value, self._piece_rows = rows, key, value, piece_rows
        self.settle = key.settle
        # Plain keys are looked up without converting them to a column.
        self._locate: Locate | None = None
        if key.exact is not None and reads_points(key.arrow_type):
            self._locate = locator(key.arrow_type)
        self._is_ordered = key.exact is int and rows.has_ordered_sub

    def get(self, map_key: Any, absent: Any) -> Any:
        """The value of a settled key, or `absent`."""
        match = self._find(map_key)
        if match is None:
            return absent
        chunk, row = match
        if self._value.exact is not None:
            return value_at(chunk, row)
        assert chunk.values is not None
        return self._value.decode(chunk.values.slice(row, 1))[0]

    def _find(self, map_key: Any) -> Any:
        kind: Any = type(map_key)
        if map_key is None and self._rows.has_ordered_sub:
            return None  # a table of this key type cannot contain it
        if self._locate is None or kind is not self._key.exact:
            match = self._rows.find_encoded(self._key.encode([map_key]))
            return match if match is not None else self._find_older_form(map_key)
        if self._is_ordered:
            return self._rows.find(map_key, map_key)
        bits, stored_key = self._locate(map_key)
        # A sub order is a signed hash; the bits may be signed or not.
        return self._rows.find((bits + _SIGN) % (2 * _SIGN) - _SIGN, stored_key)

    def _find_older_form(self, map_key: Any) -> Any:
        others = self._key.forms(map_key)[1:]
        if not others:
            return None
        forms = self._key.encode(list(others))
        matches = (self._rows.find_encoded(forms.slice(at, 1)) for at in range(len(forms)))
        return next((match for match in matches if match is not None), None)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """All entries, in the order of the store."""
        for keys, values in self.pieces():
            yield from zip(keys, values, strict=True)

    def pieces(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """All entries in the order of the store, keys and values, about `piece_rows` at a time."""
        for rows in self._rows.pieces(self._piece_rows):
            subs = rows.column("sub")
            keys, values = self._key.decode(subs), self._value.decode(rows.column("value"))
            if self._key.has_forms:
                keys, values = self._without_older_forms(keys, values, subs)
            yield keys, values

    def _without_older_forms(self, keys: list[Any], values: list[Any], subs: pa.Array) -> tuple[list[Any], ...]:
        """Reduces duplicate rows of a key, left by older versions, to the row that `get` returns."""
        are_settled = same(subs, self._key.encode(keys))
        if are_settled.all():
            return keys, values
        retained = [
            row for row, key in enumerate(keys) if are_settled[row] or self._is_first_form(key, subs.slice(row, 1))
        ]
        return [keys[row] for row in retained], [values[row] for row in retained]

    def _is_first_form(self, key: Any, sub: pa.Array) -> bool:
        """Whether the store has no row with an earlier form of the key."""
        for form in self._key.forms(key):
            encoded = self._key.encode([form])
            if same(encoded, sub).item(0):
                return True
            if self._rows.find_encoded(encoded) is not None:
                return False
        return True


class LargeMap(Mapping[Any, Any]):
    """The entries of a map, overlaid by `changes`: new values by key, `absent` for removed keys."""

    def __init__(self, stored: StoredEntries, changes: dict[Any, Any], absent: Any) -> None:
        self._stored, self._changes, self._absent = stored, changes, absent

    def __getitem__(self, key: Any) -> Any:
        try:
            key = self._stored.settle(key)
        except TypeMismatchError:
            raise KeyError(key) from None
        value = self._changes[key] if key in self._changes else self._stored.get(key, self._absent)
        if value is self._absent:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self.pairs())

    def __bool__(self) -> bool:
        return next(self.pairs(), None) is not None

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """The entries: stored ones with their current values, then new ones in insertion order."""
        added = {key: value for key, value in self._changes.items() if value is not self._absent}
        for key, value in self._stored.pairs():
            if key not in self._changes:
                yield key, value
            elif key in added:
                yield key, added.pop(key)
        yield from added.items()

    def items(self) -> Items[Any, Any]:
        return _Items(self)

    def values(self) -> Values[Any]:
        return _Values(self)


class _Items(Items[Any, Any]):
    """Entries from one pass over the map, instead of a lookup per key."""

    def __init__(self, entries: LargeMap) -> None:
        super().__init__(entries)
        self._entries = entries

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._entries.pairs()


class _Values(Values[Any]):
    """As `_Items`, for values."""

    def __init__(self, entries: LargeMap) -> None:
        super().__init__(entries)
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._entries.pairs())
