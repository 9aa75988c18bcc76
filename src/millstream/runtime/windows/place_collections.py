"""Lists and maps of a key or a place: states of many rows (see `place_states` for what all of them share).

Adding to a list reads nothing and writes the elements added, as rows behind those that are there. A small map is read
whole, of a large one only the entries asked for; what is written are the entries that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from millstream.runtime.state_codec import StateCodec
from millstream.runtime.state_table import StateTable
from millstream.runtime.windows.place_states import PlaceState, Scope

__all__ = ["ListState", "MapState"]

_SMALL_MAP_ENTRIES_MAX = 256
_ABSENT = object()


class ListState(PlaceState):
    """A list per place: adding reads nothing."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle

    def begin(self) -> None:
        self._whole: dict[Any, list[Any]] = {}
        self._added: dict[Any, list[Any]] = {}
        self._replaced: dict[Any, None] = {}
        self._unstored: set[Any] = set()

    def load(self, places: Iterable[Any]) -> None:
        """Read the lists of places that are about to be asked for."""
        new = [place for place in dict.fromkeys(places) if place not in self._whole]
        if not new:
            return
        stored = self.table.read_rows(new) if self._has_rows else [[] for _ in new]
        for place, rows in zip(new, stored, strict=True):
            if not rows:
                self._unstored.add(place)
            self._whole[place] = [value for _, value in rows] + self._added.get(place, [])

    def get(self) -> list[Any]:
        """The elements, in the order they were added."""
        place = self._scope.at
        if place not in self._whole:
            self.load((place,))
        if self._renews_on_read:
            self._replace(place, self._whole[place])
        return list(self._whole[place])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        """Append an element."""
        place, value = self._scope.at, self._settle(value)
        self._added.setdefault(place, []).append(value)
        if place in self._whole:
            self._whole[place].append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        self._replace(self._scope.at, [self._settle(value) for value in values])

    def clear(self) -> None:
        """Remove all elements."""
        self._replace(self._scope.at, [])

    def _replace(self, place: Any, values: list[Any]) -> None:
        self._whole[place] = list(values)
        self._added[place] = list(values)
        self._replaced[place] = None

    def flush(self) -> None:
        if self._has_rows:
            self.table.clear([place for place in self._replaced if place not in self._unstored])
        places = [place for place, values in self._added.items() for _ in values]
        values = [value for values in self._added.values() for value in values]
        # Later epochs sort after earlier ones, so an append never needs to know what is there.
        first = self.table.epoch << 31
        subs = [first + i for added in self._added.values() for i in range(len(added))]
        self.table.put(places, values, pa.array(subs, pa.int64()))

    def merge(self, target: Any, sources: list[Any]) -> None:
        self.load(sources)
        for place in sources:
            self._scope.at = place
            moved = self.get()
            self.clear()
            self._scope.at = target
            self.add_all(moved)
        self._scope.at = target


class MapState(PlaceState):
    """A map per place; entries are rows. Small maps are read whole, large ones entry by entry."""

    def __init__(
        self, table: StateTable, scope: Scope, renews_on_read: bool, key: StateCodec, value: StateCodec
    ) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle_key, self._settle = key.settle, value.settle

    def begin(self) -> None:
        self._entries: dict[Any, dict[Any, Any]] = {}  # what is known; _ABSENT: known not to be there
        self._whole: dict[Any, set[Any]] = {}  # places whose entries are all known, and which of these are stored
        self._changed: dict[Any, dict[Any, None]] = {}
        self._cleared: dict[Any, None] = {}

    def load(self, places: Iterable[Any]) -> None:
        """Read all entries of these places."""
        new = [place for place in dict.fromkeys(places) if place not in self._whole]
        stored = self.table.read_rows(new) if new and self._has_rows else [[] for _ in new]
        for place, rows in zip(new, stored, strict=True):
            # What was set in this epoch stands above what is stored.
            self._entries[place] = {**dict(rows), **self._entries.get(place, {})}
            self._whole[place] = {key for key, _ in rows}

    def _value(self, map_key: Any) -> Any:
        """The value of an entry of the current place, _ABSENT when there is none."""
        place = self._scope.at
        if place not in self._whole and map_key not in self._entries.get(place, ()):
            if not self._has_rows or self.table.count([place])[0] <= _SMALL_MAP_ENTRIES_MAX:
                self.load((place,))
            else:
                entry = self.table.read_pairs([place], [map_key], _ABSENT)[0]
                self._entries.setdefault(place, {})[map_key] = entry
        value = self._entries[place].get(map_key, _ABSENT)
        if self._renews_on_read and value is not _ABSENT:
            self._changed.setdefault(place, {})[map_key] = None
        return value

    def _all(self) -> dict[Any, Any]:
        place = self._scope.at
        self.load((place,))
        there = {k: v for k, v in self._entries[place].items() if v is not _ABSENT}
        if self._renews_on_read:
            self._changed.setdefault(place, {}).update(dict.fromkeys(there))
        return there

    def get(self, key: Any) -> Any:
        """The value of an entry, None when there is none."""
        value = self._value(self._settle_key(key))
        return None if value is _ABSENT else value

    def contains(self, key: Any) -> bool:
        """Whether there is an entry."""
        return self._value(self._settle_key(key)) is not _ABSENT

    def put(self, key: Any, value: Any) -> None:
        """Set an entry."""
        self._set(self._settle_key(key), self._settle(value))

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        """Set many entries."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        """Remove an entry."""
        self._set(self._settle_key(key), _ABSENT)

    def _set(self, map_key: Any, value: Any) -> None:
        place = self._scope.at
        entries, changed = self._entries.setdefault(place, {}), self._changed.setdefault(place, {})
        stored = self._whole.get(place)
        if value is not _ABSENT or stored is None:
            entries[map_key], changed[map_key] = value, None
            return
        # All entries are known, so one that came and went in this epoch need not be remembered.
        entries.pop(map_key, None)
        if map_key in stored:
            changed[map_key] = None
        else:
            changed.pop(map_key, None)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All entries."""
        return self._all().items()

    def keys(self) -> Iterable[Any]:
        """The keys of all entries."""
        return self._all().keys()

    def values(self) -> Iterable[Any]:
        """The values of all entries."""
        return self._all().values()

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._all()

    def clear(self) -> None:
        """Remove all entries."""
        place = self._scope.at
        self._entries[place] = {}
        self._whole[place] = set()
        self._changed.pop(place, None)
        self._cleared[place] = None

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def flush(self) -> None:
        if self._has_rows:
            self.table.clear(list(self._cleared))
        puts: list[tuple[Any, Any, Any]] = []
        gone: list[tuple[Any, Any]] = []
        for place, changed in self._changed.items():
            for key in changed:
                value = self._entries[place].get(key, _ABSENT)
                if value is _ABSENT:
                    gone.append((place, key))
                else:
                    puts.append((place, key, value))
        if puts:
            places, subs, values = map(list, zip(*puts, strict=True))
            self.table.put(places, values, self.table.encode_subs(subs))
        if gone and self._has_rows:
            self.table.delete([place for place, _ in gone], self.table.encode_subs([key for _, key in gone]))
