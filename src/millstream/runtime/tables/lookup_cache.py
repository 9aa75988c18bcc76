"""What a lookup join keeps of the rows it was given: of single keys, the ones asked for last, or a whole table.

Times are those of the job's clock. A key that has no row may be kept, too. A row that expired is asked for again.
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
    """Rows of single keys, at most `rows_max` of them; those that were not asked for the longest go first."""

    def __init__(self, settings: LookupSettings) -> None:
        self._settings = settings
        self._entries: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()
        self._rows = 0

    def get(self, key: tuple[Any, ...], now_ms: int) -> pa.RecordBatch | None:
        """The rows of a key; None where it must be asked for."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._is_over(entry, now_ms):
            self._remove(key)
            return None
        entry.read_ms = now_ms
        self._entries.move_to_end(key)
        return entry.rows

    def put(self, keys: Sequence[tuple[Any, ...]], rows: Sequence[pa.RecordBatch], now_ms: int) -> None:
        """Keep what keys were given."""
        for key, found in zip(keys, rows, strict=True):
            if not found.num_rows and not self._settings.keeps_missing:
                continue
            self._remove(key)
            self._entries[key] = _Entry(found, now_ms, now_ms)
            self._rows += max(1, found.num_rows)
        while self._rows > self._settings.rows_max and self._entries:
            self._remove(next(iter(self._entries)))

    def _is_over(self, entry: _Entry, now_ms: int) -> bool:
        settings = self._settings
        return (settings.write_ms is not None and now_ms - entry.written_ms >= settings.write_ms) or (
            settings.access_ms is not None and now_ms - entry.read_ms >= settings.access_ms
        )

    def _remove(self, key: tuple[Any, ...]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._rows -= max(1, entry.rows.num_rows)
