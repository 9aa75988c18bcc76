"""The values of operator state: lists and maps of a subtask, in memory.

Each has a redistribution mode (`mode`), a type as the manifest names it, and one Arrow column: the items of a list, or
the pairs of a map as structs of key and value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from millstream.runtime.keyed.map_methods import SettledMap
from millstream.state.schemas.evolution import Evolution
from millstream.state.schemas.saved_types import written_type
from millstream.state.schemas.state_schemas import ValueChanges
from millstream.state.stored.accounts import ListMode, ListSchema
from millstream.state.stored.operator_lists import schema_of, stored_type
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.map_keys import MapKeyCodec

__all__ = ["OperatorList", "OperatorMap", "OperatorValue"]


class OperatorValue(Protocol):
    """A value as the store sees it. An empty one is not stored."""

    @property
    def mode(self) -> ListMode: ...

    @property
    def type_name(self) -> str: ...

    @property
    def schema(self) -> ListSchema:
        """Details of the type for its entry."""

    @property
    def changes(self) -> ValueChanges:
        """Converts values of older types to the current type."""

    def fill(self, column: pa.Array) -> None:
        """Restores the stored content; the value is empty before."""

    def column(self) -> pa.Array | None:
        """The content to store; None if it is empty."""


class OperatorList:
    """A `ListState` of a subtask. It is in memory and is written at the end of every epoch."""

    def __init__(self, codec: StateCodec, mode: ListMode, evolution: Evolution | None = None) -> None:
        self.mode, self.type_name = mode, stored_type(codec)
        self.schema, self.changes = schema_of(codec), ValueChanges(codec, evolution)
        self._codec = codec
        self._values: list[Any] = []

    def fill(self, column: pa.Array) -> None:
        self._values = self._codec.decode(column)

    def column(self) -> pa.Array | None:
        return self._codec.encode(self._values) if self._values else None

    def get(self) -> list[Any]:
        """Returns the elements, in insertion order."""
        return list(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        """Appends an element."""
        self._values.append(self._codec.settle(value))

    def add_all(self, values: Iterable[Any]) -> None:
        """Appends elements."""
        self._values.extend([self._codec.settle(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        """Replaces all elements."""
        self._values = [self._codec.settle(value) for value in values]

    def clear(self) -> None:
        """Removes all elements."""
        self._values = []


class OperatorMap(SettledMap):
    """A `BroadcastState`, with a copy in every subtask."""

    mode: ListMode = "broadcast"

    def __init__(self, key: MapKeyCodec, value: StateCodec, evolution: Evolution | None = None) -> None:
        super().__init__(key, value)
        map_key = written_type(key.saved_type)
        self.schema = replace(schema_of(value), map_key=map_key)
        self.changes = ValueChanges(value, evolution, map_key)
        self.type_name = f"map<{stored_type(key)}, {stored_type(value)}>"
        self._key, self._value = key, value
        self._pairs: dict[Any, Any] = {}

    @property
    def _entries(self) -> dict[Any, Any]:
        return self._pairs

    def fill(self, column: pa.Array) -> None:
        keys, values = column.flatten()
        self._pairs = dict(zip(self._key.decode(keys), self._value.decode(values), strict=True))

    def column(self) -> pa.Array | None:
        if not self._pairs:
            return None
        columns = [self._key.encode(list(self._pairs)), self._value.encode(list(self._pairs.values()))]
        return pa.StructArray.from_arrays(columns, names=["key", "value"])
