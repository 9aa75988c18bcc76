"""Collections in an aggregate's accumulator: lists and maps that may be too large to store as one value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from millstream.pyflink_names import add_pyflink_names

__all__ = ["DataView", "ListView", "MapView"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class DataView(ABC):
    """A collection in an accumulator."""

    @abstractmethod
    def clear(self) -> None:
        """Removes all values."""


class ListView(DataView, Generic[T]):
    """A list in an accumulator.

    >>> view = ListView()
    >>> view.add(1); view.add_all([2, 3]); list(view.get())
    [1, 2, 3]
    """

    def __init__(self) -> None:
        self._list: list[T] = []

    def get(self) -> Iterator[T]:
        """All values, in order."""
        return iter(self._list)

    def add(self, value: T) -> None:
        """Appends a value."""
        self._list.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Appends several values."""
        self._list.extend(values)

    def clear(self) -> None:
        """Removes all values."""
        self._list.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and self._list == other._list

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[T]:
        return iter(self._list)


class MapView(Generic[K, V]):
    """A map in an accumulator."""

    def __init__(self) -> None:
        self._dict: dict[K, V] = {}

    def get(self, key: K) -> V:
        """The value of a key; raises KeyError if the key is missing."""
        return self._dict[key]

    def put(self, key: K, value: V) -> None:
        """Sets the value of a key."""
        self._dict[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Sets the values of several keys."""
        self._dict.update(dict_value)

    def remove(self, key: K) -> None:
        """Removes a key; raises KeyError if it is missing."""
        del self._dict[key]

    def contains(self, key: K) -> bool:
        """Whether a key exists."""
        return key in self._dict

    def items(self) -> Iterable[tuple[K, V]]:
        """Keys with their values."""
        return self._dict.items()

    def keys(self) -> Iterable[K]:
        """The keys."""
        return self._dict.keys()

    def values(self) -> Iterable[V]:
        """The values."""
        return self._dict.values()

    def is_empty(self) -> bool:
        """Whether the map is empty."""
        return not self._dict

    def clear(self) -> None:
        """Removes all keys."""
        self._dict.clear()

    def __getitem__(self, key: K) -> V:
        return self._dict[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._dict[key] = value

    def __delitem__(self, key: K) -> None:
        del self._dict[key]

    def __contains__(self, key: object) -> bool:
        return key in self._dict

    def __iter__(self) -> Iterator[K]:
        return iter(self._dict)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, MapView) and self._dict == other._dict

    __hash__ = None  # type: ignore[assignment]


add_pyflink_names(globals())
