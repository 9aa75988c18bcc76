"""The states that hold many values per key: lists and maps, each element and each entry a row of its own.

Adding to a list reads nothing of it, and touching one entry of a large map reads none of the others. What is read is
read in bulk: the lists, or the small maps, of all keys of the visit at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.runtime.state_codec import StateCodec
from millstream.runtime.state_table import StateTable
from millstream.runtime.states import Scope, StateHandle

__all__ = ["ListHandle", "MapHandle"]

_SMALL_MAP_ENTRIES_MAX = 256
# A look-up of one entry takes about as long as reading so many entries of a map one after another.
_ENTRIES_PER_LOOKUP = 128


class ListHandle(StateHandle):
    """`ListState`: adding reads nothing; reading loads the lists of the batch's keys at once."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle

        self._forget()

    def _forget(self) -> None:
        self._whole: dict[Any, list[Any]] = {}
        self._added: dict[Any, list[Any]] = {}
        self._replaced: dict[Any, None] = {}

    def begin(self) -> None:
        # Later epochs sort after earlier ones, and later visits after earlier ones, so an append never needs to know
        # what is there.
        self._next_sub = self.table.epoch << 31
        self._forget()

    def get(self) -> list[Any]:
        """The elements of the current key, in the order they were added."""
        key = self._scope.key
        if key not in self._whole:
            keys = [k for k in self._scope.keys if k not in self._whole]
            for k, rows in zip(keys, self.table.read_rows(keys), strict=True):
                self._whole[k] = [value for _, value in rows] + self._added.get(k, [])
        if self._renews_on_read:
            self._replace(key, self._whole[key])
        return list(self._whole[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        """Append an element."""
        key = self._scope.key
        value = self._settle(value)
        self._added.setdefault(key, []).append(value)
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
        self._added[key] = list(values)
        self._replaced[key] = None

    def leave(self) -> None:
        if self.table.holds_rows:
            self.table.clear(list(self._replaced))
        keys = [key for key, values in self._added.items() for _ in values]
        values = [value for values in self._added.values() for value in values]
        subs = np.arange(self._next_sub, self._next_sub + len(values))
        self._next_sub += len(values)
        self.table.put(keys, values, pa.array(subs))
        self._forget()


_ABSENT = object()


class MapHandle(StateHandle):
    """`MapState`: entries are rows of their own. Small maps are loaded whole, those of all keys of the visit at once;
    of a large one single entries, until as many were asked for as make it worth reading whole."""

    def __init__(
        self, table: StateTable, scope: Scope, renews_on_read: bool, key: StateCodec, value: StateCodec
    ) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle_key, self._settle = key.settle, value.settle
        self._forget()

    def begin(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._entries: dict[Any, dict[Any, Any]] = {}  # what is known; _ABSENT: known not to be there
        self._whole: set[Any] = set()  # keys whose entries are all known
        self._changed: dict[Any, dict[Any, None]] = {}
        self._cleared: dict[Any, None] = {}
        self._counts: dict[Any, int] | None = None  # how many entries each key has, at most
        self._asked: dict[Any, int] = {}  # how many entries of a large map were read one by one

    def _known(self, map_key: Any) -> dict[Any, Any]:
        """The current key's entries, with `map_key` among them."""
        key = self._scope.key
        entries = self._entries.setdefault(key, {})
        if map_key not in entries:
            if key in self._whole:
                entries[map_key] = _ABSENT
            else:
                self._load(key, map_key)
                entries = self._entries[key]
        if self._renews_on_read and entries[map_key] is not _ABSENT:
            self._changed.setdefault(key, {})[map_key] = None
        return entries

    def _load(self, key: Any, map_key: Any) -> None:
        """Small maps of all the visit's keys at once; of a large map, the one entry."""
        if self._counts is None:
            keys = [k for k in self._scope.keys if k not in self._whole]
            self._counts = dict(zip(keys, self.table.count(keys), strict=True))
            self._load_whole([k for k, count in self._counts.items() if count <= _SMALL_MAP_ENTRIES_MAX])
        entries = self._entries.setdefault(key, {})
        if map_key in entries:
            return
        if key not in self._whole:
            # Who has asked for so many entries, one by one, that reading all would have cost no more, gets all.
            self._asked[key] = self._asked.get(key, 0) + 1
            if self._asked[key] * _ENTRIES_PER_LOOKUP >= self._counts.get(key, 0):
                self._load_whole([key])
                entries = self._entries[key]
        if map_key not in entries:
            whole = key in self._whole
            entries[map_key] = _ABSENT if whole else self.table.read_pairs([key], [map_key], _ABSENT)[0]

    def _load_whole(self, keys: list[Any]) -> None:
        for key, rows in zip(keys, self.table.read_rows(keys), strict=True):
            # What the function has set in this epoch stands above what is stored.
            self._entries[key] = {**dict(rows), **self._entries.get(key, {})}
            self._whole.add(key)

    def _all(self) -> dict[Any, Any]:
        key = self._scope.key
        if key not in self._whole:
            self._load_whole([key])
        there = {k: v for k, v in self._entries.get(key, {}).items() if v is not _ABSENT}
        if self._renews_on_read:
            self._changed.setdefault(key, {}).update(dict.fromkeys(there))
        return there

    def get(self, key: Any) -> Any:
        """The value of an entry, None when there is none."""
        key = self._settle_key(key)
        value = self._known(key)[key]
        return None if value is _ABSENT else value

    def contains(self, key: Any) -> bool:
        """Whether there is an entry."""
        key = self._settle_key(key)
        return self._known(key)[key] is not _ABSENT

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
        key = self._scope.key
        self._entries.setdefault(key, {})[map_key] = value
        self._changed.setdefault(key, {})[map_key] = None

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
        key = self._scope.key
        self._entries[key] = {}
        self._whole.add(key)
        self._changed.pop(key, None)
        self._cleared[key] = None

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def leave(self) -> None:
        stored = self.table.holds_rows
        if stored:
            self.table.clear(list(self._cleared))
        puts: list[tuple[Any, Any, Any]] = []
        gone: list[tuple[Any, Any, Any]] = []
        for key, changed in self._changed.items():
            entries = self._entries[key]
            for map_key in changed:
                value = entries[map_key]
                (gone if value is _ABSENT else puts).append((key, map_key, value))
        if puts:
            keys, subs, values = map(list, zip(*puts, strict=True))
            self.table.put(keys, values, self.table.encode_subs(subs))
        if gone and stored:
            self.table.delete([key for key, _, _ in gone], self.table.encode_subs([sub for _, sub, _ in gone]))
        self._forget()
