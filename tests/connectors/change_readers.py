"""Shared code of change capture tests: a source read as a driver and its tasks do, and the table its changes amount
to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from database_rows import query, url_of
from servers.postgres import PostgresServer
from waits.patience import PATIENCE_S

from millstream.common import Row, RowKind
from millstream.connectors.contracts import SourceContext
from millstream.datastream.connectors.databases import PostgresChanges
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore

__all__ = ["ADDED", "CONTEXT", "Reader", "changes_of", "drop_slots", "mirrored", "rows_of"]

CONTEXT = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)


def drop_slots(server: PostgresServer, table: str) -> None:
    query(
        server,
        f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like '{table[-12:]}%'",
    )


def changes_of(server: PostgresServer, table: str, **more: Any) -> PostgresChanges:
    return PostgresChanges(url_of(server), table, slot=table[-12:], **more)


def mirrored(changes: list[Row]) -> dict[int, tuple[Any, ...]]:
    """The table that these changes amount to; each change is checked against its previous row."""
    rows: dict[int, tuple[Any, ...]] = {}
    for change in changes:
        values, kind = tuple(change), change.get_row_kind()
        if kind in ADDED:
            assert change.id not in rows, change
            rows[change.id] = values
        else:
            assert rows.pop(change.id) == values, change
    return rows


def rows_of(server: PostgresServer, table: str) -> dict[int, tuple[Any, ...]]:
    return {row[0]: tuple(row) for row in query(server, f"select * from {table}")}


class Reader:
    """Reads a source as a driver and its tasks do, epoch by epoch, and remembers the contents of a manifest."""

    def __init__(self, source: PostgresChanges, store: MemoryStore) -> None:
        self.source: Any = source._connector.opened(store, None)
        self.task: Any = source._connector
        self.positions: dict[str, Any] = {}
        self.rows: list[Row] = []

    def epoch(self, budget: int = 1000, *, commits: bool = True) -> int:
        """Read one epoch; returns its number of rows."""
        positions, rows = dict(self.positions), []
        for split in self.source.splits(CONTEXT):
            start = positions.get(split.name, split.start)
            if self.source.finished(split, start):
                continue
            stop = self.source.reach(split, start, budget, CONTEXT)
            if stop != start:
                for batch in self.task.read(split, start, stop):
                    rows.extend(Batch.of_columns(batch, self.task.type_info).values())
                positions[split.name] = stop
        if commits:
            self.positions = positions
            self.rows.extend(rows)
            self.source.committed(positions)
        return len(rows)

    def until(self, done: Callable[[], bool], budget: int = 1000) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done():
            self.epoch(budget)
            assert time.monotonic() < deadline_s, "it did not come"
