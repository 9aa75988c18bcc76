"""Caches lookup results by key, evicting the least recently used.

Times are those of the job's clock. A key without rows may be cached, too. An expired entry is requested again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.connectors.tables.lookups import LookupSettings

__all__ = ["KeyCache"]


@dataclass
class _Entry:
    rows: pa.RecordBatch
    written_ms: int
    read_ms: int


class KeyCache:
    """Rows of single keys, at most `rows_max` of them; the least recently used are evicted first."""

    def __init__(self, settings: LookupSettings) -> None:
        self._settings = settings
        self._entries: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()
        self._rows = 0

    def get(self, key: tuple[Any, ...], now_ms: int) -> pa.RecordBatch | None:
        """The rows of a key; None if it must be requested."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._is_expired(entry, now_ms):
            self._remove(key)
            return None
        entry.read_ms = now_ms
        self._entries.move_to_end(key)
        return entry.rows

    def put(self, keys: Sequence[tuple[Any, ...]], rows: Sequence[pa.RecordBatch], now_ms: int) -> None:
        """Cache the rows looked up for keys."""
        for key, key_rows in zip(keys, rows, strict=True):
            if not key_rows.num_rows and not self._settings.keeps_missing:
                continue
            self._remove(key)
            self._entries[key] = _Entry(key_rows, now_ms, now_ms)
            self._rows += max(1, key_rows.num_rows)
        while self._rows > self._settings.rows_max and self._entries:
            self._remove(next(iter(self._entries)))

    def _is_expired(self, entry: _Entry, now_ms: int) -> bool:
        settings = self._settings
        return (settings.write_ms is not None and now_ms - entry.written_ms >= settings.write_ms) or (
            settings.access_ms is not None and now_ms - entry.read_ms >= settings.access_ms
        )

    def _remove(self, key: tuple[Any, ...]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._rows -= max(1, entry.rows.num_rows)
