"""States with many values per subject: lists and maps, with one row per element or entry.

Adding to a list reads nothing, and changing one entry of a large map reads no others. Reads are bulk reads of the
lists, or the small maps, of all keys in the scope. A subject known to have no row gets no tombstone.

A key here is the scope's `key`: a key of the stream, or a place (`states`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.runtime.keyed.map_methods import ABSENT, MapMethods
from millstream.runtime.keyed.states import StateHandle
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.large_map import LargeMap, StoredEntries
from millstream.state.tables.map_keys import MapKeyCodec, entries_of
from millstream.state.tables.state_table import StateTable

__all__ = ["ListHandle", "MapHandle"]

_SMALL_MAP_ENTRIES_MAX = 256
# Looking up one entry takes about as long as scanning this many entries of a map.
_ENTRIES_PER_LOOKUP = 8
# The stored size of lists or maps that is held as Python values at once.
_LOADED_BYTES_MAX = 16 << 20
# One map may take this fraction of it; entries of a larger one are read singly, or in pieces.
_WHOLE_MAP_SHARE = 4
_PIECE_BYTES = 256 << 10
# The minimum size of a row, assumed for rows not written yet.
_ROW_BYTES_MIN = 32


class ListHandle(StateHandle):
    """`ListState`: adding reads nothing; reading loads the lists of the scope's keys together, up to
    `_LOADED_BYTES_MAX`: loaded lists are evicted before more are loaded."""

    shape = "list"
    next_number: int

    def __init__(self, table: StateTable, scope: Any, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle
        self._reset()

    def _reset(self) -> None:
        self._whole: dict[Any, list[Any]] = {}
        self._additions: dict[Any, list[Any]] = {}
        self._replaced_keys: dict[Any, None] = {}
        self._rowless: set[Any] = set()
        self._evicted_keys: set[Any] = set()  # keys whose lists were loaded and evicted
        self._loaded_bytes = 0

    def begin(self) -> None:
        # Numbers of later epochs, rounds and visits sort after earlier ones, so an append needs no read.
        self.next_number = max(self.table.epoch << 31, self.table.rows_numbered)
        self._reset()

    def load(self, keys: Iterable[Any]) -> None:
        """Read the lists of these keys."""
        new = [key for key in dict.fromkeys(keys) if key not in self._whole]
        if not new:
            return
        row_bytes = self.table.row_bytes
        for key, rows in zip(new, self.table.read_rows(new), strict=True):
            if not rows:
                self._rowless.add(key)
            self._loaded_bytes += len(rows) * row_bytes
            self._whole[key] = [value for _, value in rows] + self._additions.get(key, [])

    def load_ahead(self, keys: list[Any]) -> None:
        """Read the lists of these keys, in this order; only the first ones if all would be too large."""
        if keys and self.table.holds_rows:
            self._make_room()
            self.load(keys[: self.table.within(keys, _LOADED_BYTES_MAX)])

    def get(self) -> list[Any]:
        """The elements of the current key, in insertion order."""
        key = self._scope.key
        if key not in self._whole:
            self._load_from(key)
        if self._renews_on_read:
            self._replace(key, self._whole[key])
        return list(self._whole[key])

    def _load_from(self, key: Any) -> None:
        """Load the list of the current key and those of the following keys."""
        if key in self._evicted_keys or not self.table.holds_rows:
            # An evicted list is loaded alone: otherwise each return to it would load the following ones, too.
            self._make_room()
            self.load((key,))
        else:
            self.load_ahead([key, *(k for k in self._scope.following() if k != key and k not in self._whole)])

    def _make_room(self) -> None:
        """Evict lists that can be loaded again, if they are large; additions are retained."""
        if self._loaded_bytes > _LOADED_BYTES_MAX // 2:
            unreplaced = [key for key in self._whole if key not in self._replaced_keys]
            self._evicted_keys.update(unreplaced)
            for key in unreplaced:
                del self._whole[key]
            self._loaded_bytes = 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        """Append an element."""
        self.append(self._settle(value))

    def append(self, value: Any) -> None:
        """Append an element that is already in its stored form, as records of a typed stream are."""
        key = self._scope.key
        self._additions.setdefault(key, []).append(value)
        if key in self._whole:
            self._whole[key].append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        self._replace(self._scope.key, [self._settle(value) for value in values])

    def clear(self) -> None:
        """Remove all elements."""
        self._replace(self._scope.key, [])

    def _replace(self, key: Any, values: list[Any]) -> None:
        self._whole[key] = list(values)
        self._additions[key] = list(values)
        self._replaced_keys[key] = None

    def leave(self) -> None:
        if self.table.holds_rows:
            self.table.clear([key for key in self._replaced_keys if key not in self._rowless])
        keys = [key for key, values in self._additions.items() for _ in values]
        values = [value for values in self._additions.values() for value in values]
        numbers = self.next_number + np.arange(len(values))
        self.next_number += len(values)
        self.table.put(keys, values, pa.array(numbers))
        self._reset()

    def merge(self, target: Any, sources: list[Any]) -> None:
        self.load(sources)
        for source in sources:
            self._scope.at = source
            elements = self.get()
            self.clear()
            self._scope.at = target
            for value in elements:
                self.append(value)
        self._scope.at = target


class MapHandle(MapMethods, StateHandle):
    """`MapState`: each entry is a row. Small maps are loaded whole, those of the scope's keys at once, up to a size
    limit. Entries of a large map are read singly, until reading the whole map would have cost no more; a map larger
    than 1/`_WHOLE_MAP_SHARE` of the limit is never loaded whole, and is iterated in pieces (`state.tables.large_map`).
    Many attributes: the known state of a visit's maps, by key."""

    shape = "map"

    def __init__(
        self, table: StateTable, scope: Any, renews_on_read: bool, key: MapKeyCodec, value: StateCodec
    ) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle_key, self._settle, self._codecs = key.settle, value.settle, (key, value)
        self._reset()

    def begin(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._entries: dict[Any, dict[Any, Any]] = {}  # known entries; ABSENT: known not to exist
        self._whole: dict[Any, set[Any]] = {}  # keys with all entries known, and their stored entries
        self._changed_map_keys: dict[Any, dict[Any, None]] = {}
        self._cleared_keys: dict[Any, None] = {}
        self._renewed_keys: dict[
            Any, None
        ] = {}  # keys whose stored entries were all read, which renews their time-to-live
        self._counts: dict[Any, int] = {}  # upper bounds of the entries of keys
        self._evicted_keys: set[Any] = set()  # keys whose small maps were loaded and evicted
        self._loaded_bytes = 0
        self._entries_read: dict[Any, int] = {}  # the number of entries of a large map read one by one
        self._stored: dict[Any, StoredEntries] = {}  # of large maps
        self._entry_bytes: int | None = None

    def load(self, keys: Iterable[Any]) -> None:
        """Read all entries of these keys."""
        new = [key for key in dict.fromkeys(keys) if key not in self._whole]
        if not new:
            return
        row_bytes = self.table.row_bytes
        for key, rows in zip(new, self.table.read_rows(new), strict=True):
            self._loaded_bytes += len(rows) * row_bytes
            # Changes of this epoch override stored entries.
            stored = entries_of(self.table, key, rows)
            self._entries[key] = {**stored, **self._changes(key)} if key in self._changed_map_keys else stored
            self._whole[key] = set(stored)

    def _changes(self, key: Any) -> dict[Any, Any]:
        """The changed entries of a key, with their current values."""
        entries = self._entries.get(key, {})
        return {map_key: entries.get(map_key, ABSENT) for map_key in self._changed_map_keys.get(key, ())}

    def _entry(self, map_key: Any) -> Any:
        key = self._scope.key
        if key not in self._whole and map_key not in self._entries.get(key, ()):
            self._find(key, map_key)
        value = self._entries[key].get(map_key, ABSENT)
        if self._renews_on_read and value is not ABSENT:
            self._changed_map_keys.setdefault(key, {})[map_key] = None
        return value

    def _find(self, key: Any, map_key: Any) -> None:
        """Load small maps of all keys in the scope; for a large map, only the one entry."""
        if self._is_small(key) and key not in self._evicted_keys:
            self._load_small(key)
        if key in self._whole:
            return
        # Once lookups of single entries have cost as much as reading the whole map, it is read whole.
        self._entries_read[key] = self._entries_read.get(key, 0) + 1
        self._make_room()
        if self._entries_read[key] * _ENTRIES_PER_LOOKUP >= self._counts[key] and self._may_be_whole(key):
            self.load((key,))
        else:
            self._entries.setdefault(key, {})[map_key] = self._stored_entries(key).get(map_key, ABSENT)
            self._loaded_bytes += self._row_bytes()

    def _is_small(self, key: Any) -> bool:
        return self._count(key) <= _SMALL_MAP_ENTRIES_MAX and self._may_be_whole(key)

    def _count(self, key: Any) -> int:
        """An upper bound of a key's stored entries; those of the scope's keys are counted at once."""
        if key not in self._counts:
            keys = [k for k in dict.fromkeys((key, *self._scope.keys)) if k not in self._whole]
            counts = self.table.count(keys) if self.table.holds_rows else [0] * len(keys)
            self._counts.update(zip(keys, counts, strict=True))
        return self._counts[key]

    def _may_be_whole(self, key: Any) -> bool:
        """Whether the map of a key is small enough to be held as Python values."""
        row_bytes = self._row_bytes()
        return self._count(key) * row_bytes <= max(_LOADED_BYTES_MAX // _WHOLE_MAP_SHARE, row_bytes)

    def _row_bytes(self) -> int:
        """The approximate size of a stored entry."""
        if self._entry_bytes is None:
            self._entry_bytes = max(self.table.row_bytes, _ROW_BYTES_MIN)
        return self._entry_bytes

    def _stored_entries(self, key: Any) -> StoredEntries:
        """The stored entries of a large map."""
        if key not in self._stored:
            piece_rows = max(1, _PIECE_BYTES // self._row_bytes())
            self._stored[key] = StoredEntries(self.table.key_rows(key), *self._codecs, piece_rows)
        return self._stored[key]

    def _load_small(self, key: Any) -> None:
        """Load the map of the current key and the small ones of the following keys."""
        self._make_room()
        keys = [k for k in self._scope.following() if k != key and k not in self._whole]
        small = [key, *(k for k in keys if self._counts.get(k, 0) <= _SMALL_MAP_ENTRIES_MAX)]
        self.load(small[: self.table.within(small, _LOADED_BYTES_MAX)] if self.table.holds_rows else small)

    def _make_room(self) -> None:
        """Evict unchanged entries, if they are large: they can be read again."""
        if self._loaded_bytes > _LOADED_BYTES_MAX // 2:
            self._evicted_keys.update(self._whole)
            for key in [key for key in self._entries if key not in self._cleared_keys]:
                self._entries[key] = self._changes(key)
                self._whole.pop(key, None)
                if not self._entries[key]:
                    del self._entries[key]
            self._stored.clear()
            self._loaded_bytes = 0

    def _all(self) -> Mapping[Any, Any]:
        key = self._scope.key
        if key not in self._whole:
            self._make_room()
            may_be_large = self.table.holds_unwritten or self.table.stored_bytes > _LOADED_BYTES_MAX // _WHOLE_MAP_SHARE
            if may_be_large and not self._may_be_whole(key):
                return self._streamed(key)
        self.load((key,))
        present = {k: v for k, v in self._entries[key].items() if v is not ABSENT}
        if self._renews_on_read:
            self._changed_map_keys.setdefault(key, {}).update(dict.fromkeys(present))
        return present

    def _streamed(self, key: Any) -> Mapping[Any, Any]:
        """The entries of a map that is too large to be loaded."""
        if self._renews_on_read:
            self._renewed_keys[key] = None
        return LargeMap(self._stored_entries(key), self._changes(key), ABSENT)

    def is_empty(self) -> bool:
        key = self._scope.key
        if self._renews_on_read or (key not in self._whole and self._is_small(key)):
            return super().is_empty()
        if any(value is not ABSENT for value in self._entries.get(key, {}).values()):
            return False
        return key in self._whole or not self._streamed(key)

    def _set_entry(self, map_key: Any, value: Any) -> None:
        key = self._scope.key
        entries, changed = self._entries.setdefault(key, {}), self._changed_map_keys.setdefault(key, {})
        stored = self._whole.get(key)
        if value is not ABSENT or stored is None or map_key in stored:
            entries[map_key] = value
            changed[map_key] = None
        else:  # known not to be stored: nothing to delete
            entries.pop(map_key, None)
            changed.pop(map_key, None)

    def clear(self) -> None:
        key = self._scope.key
        self._entries[key] = {}
        self._whole[key] = set()
        self._changed_map_keys.pop(key, None)
        self._renewed_keys.pop(key, None)
        self._cleared_keys[key] = None

    def leave(self) -> None:
        stored = self.table.holds_rows
        if stored:
            self.table.clear(list(self._cleared_keys))
        for key in self._renewed_keys:  # before the changes, which override them
            for map_keys, renewed in self._stored_entries(key).pieces():
                self.table.put([key] * len(map_keys), renewed, self.table.encode_subs(map_keys))
        puts: list[tuple[Any, Any, Any]] = []
        removed: list[tuple[Any, Any]] = []
        forms = self._codecs[0].forms
        for key, changed in self._changed_map_keys.items():
            for map_key in changed:
                value = self._entries[key].get(map_key, ABSENT)
                if value is ABSENT:
                    removed.extend((key, form) for form in forms(map_key))
                else:
                    puts.append((key, map_key, value))
        if puts:
            keys, subs, values = map(list, zip(*puts, strict=True))
            self.table.put(keys, values, self.table.encode_subs(subs))
        if removed and stored:
            self.table.delete([key for key, _ in removed], self.table.encode_subs([map_key for _, map_key in removed]))
        self._reset()
