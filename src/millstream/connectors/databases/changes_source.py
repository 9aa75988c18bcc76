"""Reads the rows of a PostgreSQL table, then every change to them, exactly once.

On its first start the job creates a replication slot together with a snapshot: the slot has exactly the transactions
that the snapshot lacks. The snapshot is copied into the job's store (`table_copy`), because it cannot be
read again later; the log is not copied, because the server retains it (`slots`).

    splits    {series}-00000, …    files of the copy; the offset is a row number
              {series}-changes     the log; the offset is a position in it

Changes are read once a committed epoch has read the copy to its end, so that a change never precedes the row it
changes. A range of the log holds whole transactions, in commit order, and returns the same rows each time.

The slot advances to the oldest retained epoch (`released`), not to the newest: an older epoch, a savepoint or a
fork can continue from its position, as far as the server retains the log. A fork copies the slot of its origin.
Only the user drops a slot: the slot of a deleted job retains the log indefinitely.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.databases import slots
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.captured_tables import admitted_parts
from millstream.connectors.databases.change_reader import ChangeReader
from millstream.connectors.databases.dialect import Timeouts
from millstream.connectors.databases.first_start import ChangeSettings, FirstStart, checked_table
from millstream.connectors.databases.log_watch import LogWatch
from millstream.connectors.databases.patience import Patience, retry
from millstream.connectors.databases.pgoutput import LoggedColumn, LoggedTable
from millstream.connectors.databases.postgres_session import connect, deadline, refusal
from millstream.connectors.databases.publications import check_publication
from millstream.connectors.databases.stored_tables import (
    StoredTable,
    check_type,
    claim_name,
    load_table,
    release_name,
    remove_other_copies,
    save_table,
)
from millstream.connectors.stored_batches import read_stored
from millstream.errors import NotAvailableError, ProgramError
from millstream.storage.store import Store

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["PostgresChangesSource"]

_Answer = TypeVar("_Answer")
_WATCH_S = 10.0
"""Interval of catalogue checks while the log is silent."""
_UNDOING_S = 5.0


class PostgresChangesSource(Source):
    """Rows and changes of a table, as records of `type_info`, each with its row kind.

    Many attributes: the settings, and the driver's own store, connection and cached state.
    """

    def __init__(
        self,
        address: DatabaseAddress,
        settings: ChangeSettings,
        type_info: RowTypeInfo,
        patience: Patience | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.address, self.settings, self.row_type = address, settings, type_info
        self.type_info = type_info
        self.patience, self.timeouts = patience or Patience(), timeouts or Timeouts()
        self.bounded = settings.bounded
        self._store: Store | None = None
        self._stored: StoredTable | None = None
        self._claim: tuple[str, str] | None = None
        self._connection: Any = None
        self._lock = threading.RLock()
        self._is_copy_read = False
        self._log = LogWatch(self.subject, self.patience.monotonic)
        self._is_checked, self._committed_lsn = False, 0
        self._watched_s = -_WATCH_S

    def __getstate__(self) -> dict[str, Any]:
        driver_only = {
            "_log": None,
            "_store": None,
            "_stored": None,
            "_claim": None,
            "_connection": None,
            "_lock": None,
        }
        return {**self.__dict__, **driver_only}

    @property
    def subject(self) -> str:
        """The prefix of error messages."""
        return f"Changes of table {self.settings.table} at {self.address.shown}"

    # --- on the driver ---

    def opened(self, store: Store, session: Any) -> Source:
        return self._opened(store, again=False)

    def reopened(self, store: Store, session: Any) -> Source:
        return self._opened(store, again=True)

    def _opened(self, store: Store, *, again: bool) -> Source:
        source = PostgresChangesSource(self.address, self.settings, self.row_type, self.patience, self.timeouts)
        source._store, source._claim = store, None if again else claim_name(store, self.settings.name)
        try:
            stored = load_table(store, self.settings.name)
            if stored is None and again:
                raise NotAvailableError(
                    f"{self.subject}: the job has stored no copy of it, so nothing can be read again"
                )
            source._stored = stored or source._start()
            check_type(source._stored, self.row_type, str(self.settings.table), self.subject)
            if not (source._stored.relation or again):
                source._with_connection(source._watch)  # stored by an older version that identified the table by name
            source._is_copy_read = not source._stored.files
        except BaseException:
            source.close()
            raise
        return source

    def splits(self, context: SourceContext) -> Sequence[Split]:
        stored = self._table()
        reading = {
            "slot": stored.slot,
            "publication": stored.publication,
            "relation": stored.relation,
            "has_parts": stored.is_partitioned,
            "key": list(stored.key),
        }
        columns = [[column.name, column.type_number] for column in stored.columns]
        log = Split(stored.changes, stored.lsn, {**reading, "columns": columns})
        return [*stored.splits(), log]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        if "file" in split.info:
            return min(split.info["end"], offset + budget)
        if not self._is_copy_read:
            return offset
        return self._with_connection(lambda connection: self._reach_log(connection, offset, budget))

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        return split.info["end"] - offset if "file" in split.info else self._log.backlog(offset)

    def finished(self, split: Split, offset: Offset) -> bool:
        if "file" in split.info:
            return bool(offset >= split.info["end"])
        ends_at = self._table().ends_at
        return ends_at is not None and bool(offset >= ends_at)

    def committed(self, positions: dict[str, Offset]) -> None:
        stored = self._table()
        if not self._is_checked:
            self._check_start(positions, stored)
            self._is_checked = True
            if self._store is not None and positions:
                remove_other_copies(self._store, self.settings.name, stored.series)
        self._is_copy_read = self._is_copy_read or stored.is_read(positions)
        self._committed_lsn = positions.get(stored.changes, 0)

    def released(self, retained_positions: Sequence[dict[str, Offset]]) -> None:
        stored, store = self._table(), self._store
        if not retained_positions or store is None:
            return
        lsn = min(positions.get(stored.changes, stored.lsn) for positions in retained_positions)
        if lsn > stored.lsn:
            self._with_connection(lambda connection: self._advance(connection, lsn))
        if stored.files and not stored.is_removed and all(map(stored.is_read, retained_positions)):
            self._stored = replace(stored, is_removed=True)
            save_table(store, self.settings.name, self._stored)
            if stored.store == store.url:
                store.delete_many([file.file for file in stored.files])

    def close(self) -> None:
        with self._lock:
            self._disconnect()
        release_name(self._claim)

    def describe(self) -> str:
        return f"rows and changes of table {self.settings.table} at {self.address.shown}"

    # --- in a task ---

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if "file" in split.info:
            return (yield from read_stored(split, start, stop, self.row_type))
        return (yield from self._reader(split).read(start, stop))

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        if "file" in split.info:
            return (yield from read_stored(split, start, stop, self.row_type))
        return (yield from self._reader(split).read(start, stop, bytes_max))

    def _reader(self, split: Split) -> ChangeReader:
        columns = tuple(LoggedColumn(name, number) for name, number in split.info["columns"])
        schema, table = self.settings.table.parts
        logged = LoggedTable(
            schema,
            table,
            columns,
            self.settings.upserts,
            self.settings.skips_truncate,
            split.info.get("relation", 0),
            split.info.get("has_parts", False),
            tuple(split.info.get("key", ())),
        )
        slot = slots.Slot(split.info["slot"], split.info["publication"])
        return ChangeReader(self.address, slot, logged, self.row_type, self.subject, self.patience, self.timeouts)

    # --- the start of a job ---

    def _start(self) -> StoredTable:
        """Create slot and copy, or nothing: a refused start removes the objects it created."""
        assert self._store is not None
        start = FirstStart(self.address, self.settings, self.row_type, self.subject, self.timeouts, self._store)
        try:
            return self._with_connection(start.begin)
        except (Exception, KeyboardInterrupt):
            patience = replace(self.patience, total_s=min(self.patience.total_s, _UNDOING_S))
            with suppress(Exception):
                # A store that does not answer may still have written the document: then the start succeeded.
                if start.made.has_objects and load_table(self._store, self.settings.name) is None:
                    self._with_connection(start.made.undo, patience)
            raise

    def _watch(self, connection: Connection[Any]) -> None:
        """Check the table, its partitions and its publication against those at the start of the job."""
        stored = self._table()
        table, key = checked_table(
            connection, self.settings, self.row_type, self.subject, relation=stored.relation, key=stored.key
        )
        parts = table.parts
        if stored.relation:
            skips = self.settings.skips_truncate
            parts = admitted_parts(stored.parts, table, self.subject, skips_removals=skips)
        check_publication(connection, stored.publication, table, self.row_type.get_field_names(), self.subject)
        self._watched_s = self.patience.monotonic()
        seen = replace(stored, relation=table.relation, is_partitioned=table.is_partitioned, parts=parts, key=key)
        if seen != stored and self._store is not None:
            save_table(self._store, self.settings.name, seen)
            self._stored = seen

    def _check_start(self, positions: dict[str, Offset], stored: StoredTable) -> None:
        """Reject positions that belong to another copy, or that precede the slot."""
        foreign = sorted(name for name in positions if not name.startswith(f"{stored.series}-"))
        if foreign:
            raise ProgramError(
                f"{self.subject}: the job's position is {foreign[0]!r}, in another copy of the table than this store "
                "has: rows would be missing or repeated. A savepoint in its own folder does not include data stored "
                "by sources: start from STORE@EPOCH of the job itself, or give the source another name"
            )
        if stored.is_removed and not stored.is_read(positions):
            raise ProgramError(
                f"{self.subject}: the copy of the table is removed, because no retained epoch needed it, and the "
                "job would continue before its end. Start from a newer epoch, or give the source another name"
            )
        start = positions.get(stored.changes, stored.lsn)
        self._with_connection(lambda connection: slots.check_slot(connection, self._slot(), start, self.subject))
        self._with_connection(self._watch)

    def _reach_log(self, connection: Connection[Any], offset: int, budget: int) -> int:
        ends_at = self._table().ends_at
        stop = self._log.reach(connection, self._slot(), offset, budget, ends_at, self._committed_lsn)
        if stop != offset or self.patience.monotonic() - self._watched_s >= _WATCH_S:
            # A table that was removed from the publication, or dropped and recreated, produces no changes.
            self._watch(connection)
        return stop

    def _advance(self, connection: Connection[Any], lsn: int) -> None:
        for slot in (self._slot(), self._slot().reader):
            slots.advance(connection, slot, lsn)

    def _slot(self) -> slots.Slot:
        stored = self._table()
        return slots.Slot(stored.slot, stored.publication)

    def _table(self) -> StoredTable:
        assert self._stored is not None, "the source is not opened"
        return self._stored

    def _with_connection(
        self, operation: Callable[[Connection[Any]], _Answer], patience: Patience | None = None
    ) -> _Answer:
        """The result of `operation(connection)`; retried on a new connection while the server is unavailable."""

        def attempt() -> _Answer:
            if self._connection is None:
                self._connection = connect(self.address, self.timeouts)
            try:
                # The first start copies the table, which has no time limit.
                limit_s = self.timeouts.transaction_s if self._stored is not None else threading.TIMEOUT_MAX
                with deadline(self._connection, limit_s):
                    return operation(self._connection)
            except BaseException:
                self._disconnect()
                raise

        def permanent_reason(error: BaseException) -> str | None:
            reason = refusal(error)
            return None if reason is None else self.address.without_secrets(reason)

        with self._lock:
            return retry(attempt, patience or self.patience, self.subject, permanent_reason)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None
