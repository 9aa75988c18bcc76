"""A map in memory whose entries have the form in which they would come back from the store.

It is what functions see as a `BroadcastState`. So that a function reads the same whether an epoch ended in between or
not, a key or value that storing would change (a float32, a tuple declared as a row) is changed when it is put; which
keys are one, `state.keys.equality` says. Where
the entries come from, and what becomes of changes, is for subclasses to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.map_keys import MapKeyCodec

__all__ = ["SettledMap"]


class SettledMap(ABC):
    """What a function may do with a `BroadcastState`."""

    def __init__(self, key: MapKeyCodec, value: StateCodec) -> None:
        self._settle_key, self._settle = key.settle, value.settle
        self._forms = key.forms

    @property
    @abstractmethod
    def _entries(self) -> dict[Any, Any]:
        """All that is in it, to read and to write."""

    def _note(self, key: Any) -> None:
        """The entry of `key` was put or removed."""

    def get(self, key: Any) -> Any:
        """The value under `key`; None when there is none."""
        return self._entries.get(self._settle_key(key))

    def contains(self, key: Any) -> bool:
        """Whether there is a value under `key`."""
        return self._settle_key(key) in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All pairs."""
        return self._entries.items()

    def keys(self) -> Iterable[Any]:
        """All keys."""
        return self._entries.keys()

    def values(self) -> Iterable[Any]:
        """All values."""
        return self._entries.values()

    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        """Set the value under `key`."""
        settled = self._settle_key(key)
        self._entries[settled] = self._settle(value)
        self._note(settled)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set all of them."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        """Forget `key`."""
        settled = self._settle_key(key)
        self._entries.pop(settled, None)
        self._note(settled)

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    # These go by name, so that what a subclass does differently they do too.
    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())
