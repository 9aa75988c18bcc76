"""Reference implementation of a table as one dictionary.

Tests compare segments with it. It has the changes of `TableChanges` and the queries of `TableView`, one row at a time,
over plain Python values. A random test drives both and compares every result. It has no hashes, orders, files or
epochs: a test copies it when the real store would commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.state.keys.key_columns import KeyColumn
from millstream.state.tables.layout import NEVER_MS, TableLayout

__all__ = ["ReferenceRow", "ReferenceTable"]


@dataclass(frozen=True)
class ReferenceRow:
    """One row, in Python values."""

    key: Any
    sub: Any
    value: Any
    due_ms: int
    expires_ms: int


class ReferenceTable:
    """All rows of a table, expired ones included, by (key, sub).

    >>> from millstream.state.keys.key_columns import key_column
    >>> table = ReferenceTable(TableLayout("total", None, value_type=pa.int64()))
    >>> table.put(key_column(["a"], None), pa.array([1]))
    >>> table.get(key_column(["a", "b"], None), now_ms=0)
    ([True, False], [1])
    """

    def __init__(self, layout: TableLayout, rows: dict[Any, ReferenceRow] | None = None) -> None:
        self.layout = layout
        self._rows = dict(rows or {})

    def copy(self) -> ReferenceTable:
        """A copy of the table in its current state."""
        return ReferenceTable(self.layout, self._rows)

    def put(
        self,
        keys: KeyColumn,
        values: pa.Array | None = None,
        *,
        subs: pa.Array | None = None,
        due_ms: NDArray[np.int64] | None = None,
        expires_ms: NDArray[np.int64] | None = None,
    ) -> None:
        """Set the row of every key (and sub)."""
        for at, (key, sub) in enumerate(_pairs(keys, subs)):
            self._rows[identity(key), identity(sub)] = ReferenceRow(
                key,
                sub,
                None if values is None else values[at].as_py(),
                NEVER_MS if due_ms is None else int(due_ms[at]),
                NEVER_MS if expires_ms is None else int(expires_ms[at]),
            )

    def delete(self, keys: KeyColumn, *, subs: pa.Array | None = None) -> None:
        """Remove the row of every key (and sub)."""
        for key, sub in _pairs(keys, subs):
            self._rows.pop((identity(key), identity(sub)), None)

    def clear(self, keys: KeyColumn) -> None:
        """Remove all rows of every key."""
        identities = {identity(key) for key in keys.array.to_pylist()}
        self._rows = {at: row for at, row in self._rows.items() if at[0] not in identities}

    def get(self, keys: KeyColumn, now_ms: int, subs: pa.Array | None = None) -> tuple[list[bool], list[Any]]:
        """A mask of the keys (and subs) with a row, and their values."""
        rows = [self._rows.get((identity(key), identity(sub))) for key, sub in _pairs(keys, subs)]
        live = [row if row is not None and row.expires_ms > now_ms else None for row in rows]
        return [row is not None for row in live], [row.value for row in live if row is not None]

    def scan_keys(self, keys: KeyColumn, now_ms: int) -> list[tuple[int, ReferenceRow]]:
        """Every live row of every key, with the key's position."""
        identities = [identity(key) for key in keys.array.to_pylist()]
        rows = [(at, row) for at, row in self._rows.items() if row.expires_ms > now_ms]
        return [(i, row) for i, key in enumerate(identities) for at, row in rows if at[0] == key]

    def scan_due(self, through_ms: int, now_ms: int) -> list[ReferenceRow]:
        """The live rows that are due, by due time."""
        return sorted((row for row in self.scan(now_ms) if row.due_ms <= through_ms), key=lambda row: row.due_ms)

    def min_due(self, now_ms: int) -> int | None:
        """The earliest due time of a live row."""
        earliest = min((row.due_ms for row in self.scan(now_ms)), default=NEVER_MS)
        return None if earliest == NEVER_MS else earliest

    def scan(self, now_ms: int) -> list[ReferenceRow]:
        """All live rows."""
        return [row for row in self._rows.values() if row.expires_ms > now_ms]


def _pairs(keys: KeyColumn, subs: pa.Array | None) -> list[tuple[Any, Any]]:
    names = keys.array.to_pylist()
    return list(zip(names, [None] * len(names) if subs is None else subs.to_pylist(), strict=True))


def identity(value: Any) -> Any:
    """A hashable form that is equal for exactly the same values: NaN equals NaN, and 0.0 equals -0.0."""
    if isinstance(value, float):
        return ("nan",) if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple((name, identity(value[name])) for name in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(map(identity, value))
    return value
