"""The states a keyed function holds: what they hold of the current key, and what changed in this epoch.

A handle is made once, when the function asks for it in `open()`. Reads go to a dictionary that is filled for all
keys of a batch at once, before the function runs over the batch; writes go to the same dictionary and are
written to the store once, at the end of the epoch. So a function that looks one record at a time at its state
never causes one look-up per record.

The observable behaviour is that of one record at a time, in arrival order per key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.runtime.state_codec import StateCodec
from millstream.runtime.state_table import StateTable

__all__ = ["AggregatingHandle", "ListHandle", "MapHandle", "ReducingHandle", "Scope", "StateHandle", "ValueHandle"]


class _Outside:
    """The key of a scope that is at no key. It has no hash, so no dictionary of keys is ever read or changed with
    it: states need not ask, for every record, whether they may be used."""

    def __hash__(self) -> int:
        raise ProgramError(
            "keyed state was used outside a keyed call: use it in process_element, on_timer, map and the like, "
            "not in open() or close()"
        )


_OUTSIDE = _Outside()


class Scope:
    """Which key the function is at, and which keys its batch has. No key: outside a keyed call.

    `current` is the key as it is set for every record; whoever does not look it up in a dictionary asks for `key`.
    """

    __slots__ = ("batch_keys", "current")

    def __init__(self) -> None:
        self.current: Any = _OUTSIDE
        self.batch_keys: list[Any] = []

    @property
    def key(self) -> Any:
        """The current key."""
        key = self.current
        if key is _OUTSIDE:
            hash(key)  # raises
        return key

    def enter(self, key: Any) -> None:
        """The function is about to be called for `key`."""
        self.current = key

    def leave(self) -> None:
        """The function is not being called."""
        self.current = _OUTSIDE


_UNKNOWN = object()
_NONE_TYPE = type(None)


class StateHandle:
    """What all states share: a table, and the keys that were touched."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool) -> None:
        self.table = table
        self._scope = scope
        self._renews_on_read = renews_on_read

    def prefetch(self, keys: Iterable[Any]) -> None:
        """Fill the cache for keys that the function is about to see."""

    def begin(self) -> None:
        """An epoch begins: nothing is cached, nothing is changed."""
        raise NotImplementedError

    def flush(self) -> None:
        """The epoch ends: hand all changes to the table."""
        raise NotImplementedError


class ValueHandle(StateHandle):
    """`ValueState`: one value per key. None is no value.

    What was set in this epoch stands in one dictionary, what was read in another: a record costs one look-up to
    read and one to set, and what is to be written is a dictionary as it stands.
    """

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle
        self._exact = codec.exact

    def begin(self) -> None:
        self._read: dict[Any, Any] = {}
        self._changed: dict[Any, Any] = {}

    def prefetch(self, keys: Iterable[Any]) -> None:
        if not self.table.view.refs:
            return  # nothing is stored, so there is nothing to keep of it either
        read = self._read
        new = [key for key in keys if key not in read]
        if new:
            read.update(zip(new, self.table.read(new), strict=True))

    def value(self) -> Any:
        """The value of the current key, None when there is none."""
        key = self._scope.current
        value = self._changed.get(key, _UNKNOWN)
        return self._stored(key) if value is _UNKNOWN else value

    def _stored(self, key: Any) -> Any:
        """The value of a key that was not set in this epoch."""
        value = self._read.get(key, _UNKNOWN)
        if value is _UNKNOWN:
            self.prefetch((key,))
            value = self._read.get(key)
        if self._renews_on_read and value is not None:
            self._changed[key] = value
        return value

    def update(self, value: Any) -> None:
        """Set the value of the current key; None removes it."""
        self._changed[self._scope.current] = value if type(value) is self._exact else self._settle(value)

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.update(None)

    def flush(self) -> None:
        kept, values = list(self._changed), list(self._changed.values())
        gone: list[Any] = []
        if _NONE_TYPE in set(map(type, values)):
            gone = [key for key, value in self._changed.items() if value is None]
            kept = [key for key, value in self._changed.items() if value is not None]
            values = [value for value in values if value is not None]
        self.table.put(kept, values)
        if self.table.view.refs:
            # A key that was never looked up may be stored; one that was looked up and not found needs no tombstone.
            self.table.delete([key for key in gone if self._read.get(key, _UNKNOWN) is not None])


class ReducingHandle(ValueHandle):
    """`ReducingState`: the values added, reduced to one."""

    def __init__(self, *args: Any, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(*args)
        self._reduce = reduce

    def get(self) -> Any:
        """The reduced value."""
        return self.value()

    def add(self, value: Any) -> None:
        """Reduce one more value into it."""
        before = self.value()
        self.update(value if before is None else self._reduce(before, value))


class AggregatingHandle(ValueHandle):
    """`AggregatingState`: an accumulator that values are added to; `get` is the function's result."""

    def __init__(self, *args: Any, function: Any) -> None:
        super().__init__(*args)
        self._function = function

    def get(self) -> Any:
        """The result of what was added, None when nothing was."""
        accumulator = self.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value."""
        accumulator = self.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self.update(self._function.add(value, accumulator))


class ListHandle(StateHandle):
    """`ListState`: adding reads nothing; reading loads the lists of the batch's keys at once."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle

    def begin(self) -> None:
        self._whole: dict[Any, list[Any]] = {}
        self._added: dict[Any, list[Any]] = {}
        self._replaced: dict[Any, None] = {}

    def get(self) -> list[Any]:
        """The elements of the current key, in the order they were added."""
        key = self._scope.key
        if key not in self._whole:
            keys = [k for k in dict.fromkeys((key, *self._scope.batch_keys)) if k not in self._whole]
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

    def flush(self) -> None:
        if self.table.view.refs:
            self.table.clear(list(self._replaced))
        keys = [key for key, values in self._added.items() for _ in values]
        values = [value for values in self._added.values() for value in values]
        # Later epochs sort after earlier ones, so an append never needs to know what is there.
        first = self.table.epoch << 31
        subs = [first + i for added in self._added.values() for i in range(len(added))]
        self.table.put(keys, values, pa.array(subs, pa.int64()))


_ABSENT = object()


class MapHandle(StateHandle):
    """`MapState`: entries are rows of their own. Small maps are loaded whole for a batch, large ones entry by entry."""

    def __init__(
        self, table: StateTable, scope: Scope, renews_on_read: bool, key: StateCodec, value: StateCodec
    ) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle_key, self._settle = key.settle, value.settle

    def begin(self) -> None:
        self._entries: dict[Any, dict[Any, Any]] = {}  # what is known; _ABSENT: known not to be there
        self._whole: set[Any] = set()  # keys whose entries are all known
        self._changed: dict[Any, dict[Any, None]] = {}
        self._cleared: dict[Any, None] = {}

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
        """Small maps of all the batch's keys at once; of a large map, the one entry."""
        keys = [k for k in dict.fromkeys((key, *self._scope.batch_keys)) if k not in self._whole]
        counts = self.table.count(keys)
        self._load_whole([k for k, count in zip(keys, counts, strict=True) if count <= _SMALL_MAP_ENTRIES_MAX])
        entries = self._entries.setdefault(key, {})
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

    def flush(self) -> None:
        stored = bool(self.table.view.refs)
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


_SMALL_MAP_ENTRIES_MAX = 256
