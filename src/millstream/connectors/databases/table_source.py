"""Reads the rows of a PostgreSQL table once, from one snapshot at the job's first start.

The rows are copied into the job's store before the first epoch (`table_copy`): all ranges of the table in one state of
the database. So every epoch can be read again, also after a crash and after changes of the table, and a
job that is restarted or forked reads the same rows. The costs are the space of one copy, and that no row is read before
the copy is complete.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.patience import Patience, retry
from millstream.connectors.databases.postgres_session import connect, refusal
from millstream.connectors.databases.stored_tables import (
    StoredTable,
    check_type,
    claim_name,
    concurrent_start_error,
    create_table,
    inherited_table,
    load_table,
    release_name,
    remove_other_copies,
    rows_folder,
)
from millstream.connectors.databases.table_copy import CopyPlace, copy_table
from millstream.connectors.databases.table_layout import checked_row_type, read_layout
from millstream.connectors.stored_batches import read_stored
from millstream.errors import NotAvailableError, ProgramError
from millstream.state.schemas.saved_types import written_type
from millstream.storage.store import Store

__all__ = ["PostgresTableSource"]


@dataclass(frozen=True)
class TablePlace:
    """The table, its database, and its name in the job's store."""

    address: DatabaseAddress
    table: TableName
    name: str


class PostgresTableSource(Source):
    """All rows of a table, as records of `type_info`."""

    bounded = True

    def __init__(
        self,
        place: TablePlace,
        type_info: RowTypeInfo,
        patience: Patience | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.place, self.row_type = place, type_info
        self.type_info = type_info
        self.patience, self.timeouts = patience or Patience(), timeouts or Timeouts()
        self._store: Store | None = None
        self._stored: StoredTable | None = None
        self._claim: tuple[str, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A task reads stored files; the rest stays on the driver.
        return {**self.__dict__, "_store": None, "_stored": None, "_claim": None}

    @property
    def subject(self) -> str:
        """The prefix of error messages."""
        return f"Table {self.place.table} at {self.place.address.shown}"

    def opened(self, store: Store, session: Any) -> Source:
        source = PostgresTableSource(self.place, self.row_type, self.patience, self.timeouts)
        source._store, source._claim = store, claim_name(store, self.place.name)
        try:
            stored = load_table(store, self.place.name) or inherited_table(store, self.place.name)
            if stored is None:
                stored = retry(lambda: self._copy(store), self.patience, self.subject, self._permanent_reason)
            source._take(stored)
        except BaseException:
            source.close()
            raise
        return source

    def reopened(self, store: Store, session: Any) -> Source:
        source = PostgresTableSource(self.place, self.row_type, self.patience, self.timeouts)
        stored = load_table(store, self.place.name) or inherited_table(store, self.place.name)
        if stored is None:
            raise NotAvailableError(f"{self.subject}: the job has stored no copy of it, so nothing can be read again")
        source._take(stored)
        return source

    def splits(self, context: SourceContext) -> Sequence[Split]:
        assert self._stored is not None, "the source is not opened"
        return self._stored.splits()

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(split.info["end"], offset + budget)

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        return int(split.info["end"] - offset)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= split.info["end"])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from read_stored(split, start, stop, self.row_type))

    def committed(self, positions: dict[str, Offset]) -> None:
        assert self._stored is not None, "the source is not opened"
        foreign = sorted(name for name in positions if not name.startswith(f"{self._stored.series}-"))
        if foreign:
            raise ProgramError(
                f"{self.subject}: the job's position is {foreign[0]!r}, in another copy of the table than this store "
                "has. Start from STORE@EPOCH of the job itself, or give the source another name"
            )
        if self._store is not None and positions:
            remove_other_copies(self._store, self.place.name, self._stored.series)
            self._store = None  # once is enough

    def close(self) -> None:
        release_name(self._claim)

    def describe(self) -> str:
        return f"rows of table {self.place.table} at {self.place.address.shown}, through the store"

    def _take(self, stored: StoredTable) -> None:
        check_type(stored, self.row_type, str(self.place.table), self.subject)
        self._stored = stored

    def _permanent_reason(self, error: BaseException) -> str | None:
        reason = refusal(error)
        return None if reason is None else self.place.address.without_secrets(reason)

    def _copy(self, store: Store) -> StoredTable:
        series = secrets.token_hex(6)
        with connect(self.place.address, replace(self.timeouts, transaction_s=0)) as connection:
            layout = read_layout(connection, self.place.table, self.subject)
            checked_row_type(self.row_type, layout, self.subject)
            # The snapshot is valid during this transaction.
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            row = connection.execute("SELECT pg_export_snapshot()").fetchone()
            assert row is not None
            place = CopyPlace(self.place.address, self.timeouts, store, rows_folder(self.place.name, series))
            files = copy_table(place, layout, self.row_type, row[0])
            connection.rollback()
        stored = StoredTable(
            series=series, table=str(self.place.table), type=written_type(self.row_type), store=store.url, files=files
        )
        if not create_table(store, self.place.name, stored):
            raise concurrent_start_error(self.subject)
        return stored
