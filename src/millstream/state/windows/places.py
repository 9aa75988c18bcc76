"""Places: a place is a key and one of its windows, the unit to which window state and window timers belong.

In the store a place is a compound key. Its rows are in the key group of the key, so that they are looked up and
rescaled with it, and their position within the group depends on key *and* window, so that reading one of a key's many
windows reads only that window. A window is written by the assigner's serializer; these bytes, its token, are its
identity in all layers below the operator.

Invariant: one place has one token, one hash, and the key group of its key.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import Int64s, xxhash64_column
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.tables.state_table import StateTable

__all__ = ["Place", "PlaceTable", "WindowTokens", "place_hashes"]

Place: TypeAlias = tuple[Any, bytes]


class PlaceTable(StateTable):
    """A table whose keys are places. It is created like any other, with the type of the key alone."""

    def __init__(self, *settings: Any, **options: Any) -> None:
        super().__init__(*settings, **options)
        fields = [pa.field("key", self.layout.stored_key_type), pa.field("window", pa.binary())]
        self.layout = replace(self.layout, key_type=pa.struct(fields))

    def column(self, places: list[Any]) -> KeyColumn:
        """Places as a column in stored form."""
        keys = super().column([key for key, _ in places])
        windows = pa.array([token for _, token in places], pa.binary())
        hashes = place_hashes(keys.hashes, xxhash64_column(windows), self.layout.max_parallelism)
        array = pa.StructArray.from_arrays([keys.array, windows], fields=list(self.layout.stored_key_type))
        return KeyColumn(hashes, array)

    def keys_of(self, column: pa.Array) -> list[Any]:
        """Stored places as Python values."""
        return list(zip(super().keys_of(column.field("key")), column.field("window").to_pylist(), strict=True))


def place_hashes(keys: Int64s, windows: Int64s, max_parallelism: int) -> Int64s:
    """Hashes each place (key and window), preserving the key group of the key.

    >>> places = place_hashes(np.array([5, 5]), np.array([1 << 40, 2 << 40]), 100)
    >>> len(set(places.tolist())), (places % 100).tolist()
    (2, [5, 5])
    """
    spread = (keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ windows.view(np.uint64)
    # Half the range is unused, so that adjusting a hash to its group cannot overflow.
    mixed = spread.view(np.int64) >> 1
    grouped: Int64s = mixed - np.mod(mixed, max_parallelism) + np.mod(keys, max_parallelism)
    return grouped


class WindowTokens:
    """Windows ↔ their tokens, by the assigner's serializer; each is written and read once per epoch."""

    def __init__(self, serializer: Any) -> None:
        self._serializer = serializer
        self.clear()

    def clear(self) -> None:
        """Drop the cached windows, at the start of an epoch."""
        self._tokens: dict[Any, bytes] = {}
        self._windows: dict[bytes, Any] = {}
        self._last: Any = None
        self._last_token = b""

    def token(self, window: Any) -> bytes:
        """The bytes of a window."""
        if window is self._last:  # most records are in the window of the previous record
            return self._last_token
        token = self._tokens.get(window)
        if token is None:
            stream = BytesIO()
            self._serializer.serialize(window, stream)
            token = self._tokens[window] = stream.getvalue()
            self._windows.setdefault(token, window)
        self._last, self._last_token = window, token
        return token

    def window(self, token: bytes) -> Any:
        """The window with these bytes."""
        window = self._windows.get(token)
        if window is None:
            window = self._windows[token] = self._serializer.deserialize(BytesIO(token))
        return window
