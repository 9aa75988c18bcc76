"""The states a keyed function holds: what they hold of the current key, and what it changed in them.

A handle is made once, when the function asks for it in `open()`. The operator goes through its records in visits
(`visits`): at the start of each the handle is told the visit's keys, and the first use of the state reads it for all
of them at once; at the end what was changed is handed to the table in one piece. So a function that looks at its state
one record at a time never causes one look-up per record.

The observable behaviour is that of one record at a time, in arrival order per key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.runtime.state_codec import StateCodec
from millstream.runtime.state_table import StateTable
from millstream.state.keys import KeyColumn

__all__ = [
    "AggregatingHandle",
    "ListHandle",
    "MapHandle",
    "PairHandle",
    "ReducingHandle",
    "Scope",
    "StateHandle",
    "ValueHandle",
]


class _Outside:
    """The place of a scope that is at no key. It is no index, so no list of values is ever read or changed with it:
    states need not ask, for every record, whether they may be used."""

    def __index__(self) -> int:
        raise ProgramError(
            "keyed state was used outside a keyed call: use it in process_element, on_timer, map and the like, "
            "not in open() or close()"
        )


_OUTSIDE = _Outside()


class Scope:
    """Which key the function is at: `at` is its number among the keys of the visit. Outside a keyed call it is no
    number. The keys as Python values are made when somebody asks for them."""

    __slots__ = ("_decode", "_keys", "at", "column")

    def __init__(self) -> None:
        self.at: Any = _OUTSIDE
        self.column: KeyColumn | None = None
        self._keys: list[Any] | None = None
        self._decode: Callable[[pa.Array], list[Any]] | None = None

    def visit(self, column: KeyColumn, keys: list[Any] | None, decode: Callable[[pa.Array], list[Any]]) -> None:
        """These are the keys now; the function is at none of them yet."""
        self.at, self.column, self._keys, self._decode = _OUTSIDE, column, keys, decode

    @property
    def keys(self) -> list[Any]:
        """The keys of the visit."""
        if self._keys is None:
            if self.column is None or self._decode is None:
                return []
            self._keys = self._decode(self.column.array)
        return self._keys

    @property
    def key(self) -> Any:
        """The current key."""
        at = index(self.at)
        return self.keys[at]

    def enter(self, number: int) -> None:
        """The function is about to be called for the key of this number."""
        self.at = number

    def leave(self) -> None:
        """The function is not being called."""
        self.at = _OUTSIDE


class StateHandle:
    """What all states share: a table, and the keys of the visit."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool) -> None:
        self.table = table
        self._scope = scope
        self._renews_on_read = renews_on_read

    def begin(self) -> None:
        """An epoch begins: nothing is known, nothing is changed."""

    def visit(self, keys: KeyColumn) -> None:
        """The function is about to see these keys."""

    def leave(self) -> None:
        """The visit ends: hand what it changed to the table."""

    def flush(self) -> None:
        """The epoch ends: hand all that is left to the table."""


class _Unread:
    """Stands for the values of a visit until one of them is used; then they are all read."""

    __slots__ = ("_handle",)

    def __init__(self, handle: ValueHandle) -> None:
        self._handle = handle

    def __getitem__(self, at: Any) -> Any:
        return self._handle.read()[index(at)]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._handle.read()[index(at)] = value


class ValueHandle(StateHandle):
    """`ValueState`: one value per key. None is no value.

    The values of a visit stand in a list, by the number of their key. A record costs one index to read and one to
    set, however many keys there are.
    """

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read)
        self._settle = codec.settle
        self._exact = codec.exact
        self._keys: KeyColumn | None = None
        self._forget()
        if renews_on_read:
            self.value = self._renewed_value  # type: ignore[method-assign]

    def _forget(self) -> None:
        self._values: Any = _Unread(self)
        self._stored: Any = None  # which keys have a row in the table
        self._set = bytearray()

    def begin(self) -> None:
        self._keys = None
        self._forget()

    def visit(self, keys: KeyColumn) -> None:
        self._keys = keys
        self._forget()

    def read(self) -> list[Any]:
        """Read the values of the visit's keys."""
        if self._keys is None:
            index(self._scope.at)  # there is no visit, so this refuses
        assert self._keys is not None
        self._stored, self._values = self.table.read_values(self._keys)
        self._set = bytearray(len(self._keys))
        values: list[Any] = self._values
        return values

    def value(self) -> Any:
        """The value of the current key, None when there is none."""
        return self._values[self._scope.at]

    def _renewed_value(self) -> Any:
        at = self._scope.at
        value = self._values[at]
        if value is not None:
            self._set[at] = 1
        return value

    def update(self, value: Any) -> None:
        """Set the value of the current key; None removes it."""
        at = self._scope.at
        self._values[at] = value if type(value) is self._exact else self._settle(value)
        self._set[at] = 1

    def clear(self) -> None:
        """Remove the value of the current key."""
        self.update(None)

    def leave(self) -> None:
        changed = np.flatnonzero(np.frombuffer(self._set, dtype=np.uint8))
        if len(changed):
            self._hand_over(changed)
        self._forget()

    def _hand_over(self, changed: Any) -> None:
        assert self._keys is not None
        keys, values = self._keys, self._values
        if len(changed) < len(values):
            keys, values = keys.take(changed), [values[i] for i in changed.tolist()]
        if _NONE_TYPE in set(map(type, values)):
            there = np.fromiter((value is not None for value in values), dtype=np.bool_, count=len(values))
            # A key that has no row needs no tombstone.
            self.table.delete_keys(keys.take(np.flatnonzero(~there & self._stored[changed])))
            keys, values = keys.take(np.flatnonzero(there)), [value for value in values if value is not None]
        self.table.put_values(keys, values)


class PairHandle(ValueHandle):
    """The same for pairs of plain values, the most frequent of all states (a sum and a count): most need no call to
    settle them."""

    def __init__(self, table: StateTable, scope: Scope, renews_on_read: bool, codec: StateCodec) -> None:
        super().__init__(table, scope, renews_on_read, codec)
        assert codec.exact_pair is not None
        self._first, self._second = codec.exact_pair

    def update(self, value: Any) -> None:
        """Set the value of the current key; None removes it."""
        at = self._scope.at
        if (
            type(value) is tuple
            and len(value) == 2
            and type(value[0]) is self._first
            and type(value[1]) is self._second
        ):
            self._values[at] = value
        else:
            self._values[at] = self._settle(value)
        self._set[at] = 1


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
_NONE_TYPE = type(None)


class MapHandle(StateHandle):
    """`MapState`: entries are rows of their own. Small maps are loaded whole for a batch, large ones entry by entry."""

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
        keys = [k for k in self._scope.keys if k not in self._whole]
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


_SMALL_MAP_ENTRIES_MAX = 256
