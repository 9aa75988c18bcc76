"""The methods of a map state: of a `MapState`, and of a `BroadcastState`.

Keys and values are settled on entry: converted to the form in which the store would return them. So a function reads
the same values whether or not an epoch ended in between, including float32 values and tuples declared as rows.
`state.keys.key_columns` defines which keys are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["ABSENT", "MapMethods", "SettledMap"]

ABSENT: Any = object()
"""The value of an entry that does not exist."""


class MapMethods:
    """The methods of a map, based on four primitives: read one entry, set one, read all, and `clear`."""

    _settle_key: Callable[[Any], Any]
    _settle: Callable[[Any], Any]

    def _entry(self, map_key: Any) -> Any:
        """The value under a settled key, or ABSENT."""
        raise NotImplementedError

    def _set_entry(self, map_key: Any, value: Any) -> None:
        """Set the value under a settled key; ABSENT removes it."""
        raise NotImplementedError

    def _all(self) -> Mapping[Any, Any]:
        """All entries, for reading."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove all entries."""
        raise NotImplementedError

    def get(self, key: Any) -> Any:
        """The value of an entry, or None."""
        value = self._entry(self._settle_key(key))
        return None if value is ABSENT else value

    def contains(self, key: Any) -> bool:
        """Whether the entry exists."""
        return self._entry(self._settle_key(key)) is not ABSENT

    def put(self, key: Any, value: Any) -> None:
        """Set an entry."""
        self._set_entry(self._settle_key(key), self._settle(value))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set many entries."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        """Remove an entry."""
        self._set_entry(self._settle_key(key), ABSENT)

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
        """Whether there are no entries."""
        return not self._all()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains


class SettledMap(MapMethods):
    """A map in memory, which functions use as a `BroadcastState`. Subclasses load the entries and record changes."""

    def __init__(self, key: Any, value: Any) -> None:
        self._settle_key, self._settle = key.settle, value.settle

    @property
    def _entries(self) -> dict[Any, Any]:
        """All entries, for reading and writing."""
        raise NotImplementedError

    def _record_change(self, map_key: Any) -> None:
        """Record that the entry of `map_key` was put or removed."""

    def _entry(self, map_key: Any) -> Any:
        return self._entries.get(map_key, ABSENT)

    def _set_entry(self, map_key: Any, value: Any) -> None:
        if value is ABSENT:
            self._entries.pop(map_key, None)
        else:
            self._entries[map_key] = value
        self._record_change(map_key)

    def _all(self) -> dict[Any, Any]:
        return self._entries

    def clear(self) -> None:
        self._entries.clear()
