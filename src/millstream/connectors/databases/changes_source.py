"""The rows of a PostgreSQL table, then every change of them, exactly once.

At its first start the job makes a replication slot together with a snapshot: the slot tells every transaction that the
snapshot does not have, and no other. The snapshot is copied into the job's store (`table_copy`), because nobody can
read it again later; the log is not copied, because the server keeps it (`slots`).

    splits    {series}-00000, …    files of the copy; the offset is a row number
              {series}-changes     the log; the offset is a position in it

Changes are read when the copy is read to its end in a committed epoch, so that a change never overtakes the row it
changes. A range of the log holds whole transactions, in the order of their commits, and gives the same rows each time.

The slot is moved on to the oldest epoch that is kept (`released`), not to the newest: an older epoch, a savepoint, a
fork can go on from where it stood, as far as the server keeps the log. A fork gets a slot of its own, copied from that
of the job it comes from. Nothing but the user drops a slot: a slot of a job that is no more keeps the log for ever.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.databases import slots
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.change_reader import ChangeReader
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.log_watch import LogWatch
from millstream.connectors.databases.patience import Patience, retry
from millstream.connectors.databases.pgoutput import LoggedColumn, LoggedTable
from millstream.connectors.databases.postgres_session import connect, deadline, quoted, refusal
from millstream.connectors.databases.stored_tables import (
    StoredTable,
    check_type,
    claim_name,
    create_table,
    inherited_table,
    load_intent,
    load_table,
    release_name,
    remove_other_copies,
    rows_folder,
    save_intent,
    save_table,
    twice_begun,
)
from millstream.connectors.databases.table_copy import CopyPlace, copy_table
from millstream.connectors.databases.table_layout import TableLayout, checked_row_type, read_layout
from millstream.connectors.stored_batches import read_stored
from millstream.errors import NotAvailableError, ProgramError
from millstream.state.schemas.saved_types import written_type
from millstream.storage.store import Store

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["ChangeSettings", "PostgresChangesSource"]

_Answer = TypeVar("_Answer")
_NAME_BYTES_MAX = 63
_SLOT_NAME_MAX = 48  # a token, and the mark of its reader, follow


@dataclass(frozen=True)
class ChangeSettings:
    """What to read: a table, where it is stored in the job (`name`), and how its changes are told."""

    table: TableName
    name: str
    slot: str = "millstream"
    publication: str = ""
    upserts: bool = False
    skips_truncate: bool = False
    copies_rows: bool = True
    bounded: bool = False


class PostgresChangesSource(Source):
    """Rows and changes of a table, as records of `type_info`, each with its kind.

    Many attributes: beside the settings, what the driver alone holds: the store, the connection and what it has learnt.
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
        """What errors begin with."""
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
                    f"{self.subject}: the job has stored nothing of it, so nothing can be read again"
                )
            source._stored = stored or source._with_connection(source._begin)
            check_type(source._stored, self.row_type, str(self.settings.table), self.subject)
            source._is_copy_read = not source._stored.files
        except BaseException:
            source.close()
            raise
        return source

    def splits(self, context: SourceContext) -> Sequence[Split]:
        stored = self._table()
        reading = {"slot": stored.slot, "publication": stored.publication}
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

    def released(self, kept_positions: Sequence[dict[str, Offset]]) -> None:
        stored, store = self._table(), self._store
        if not kept_positions or store is None:
            return
        lsn = min(positions.get(stored.changes, stored.lsn) for positions in kept_positions)
        if lsn > stored.lsn:
            self._with_connection(lambda connection: self._advance(connection, lsn))
        if stored.files and not stored.is_removed and all(map(stored.is_read, kept_positions)):
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
        logged = LoggedTable(schema, table, columns, self.settings.upserts, self.settings.skips_truncate)
        slot = slots.Slot(split.info["slot"], split.info["publication"])
        return ChangeReader(self.address, slot, logged, self.row_type, self.subject, self.patience, self.timeouts)

    # --- how a job begins ---

    def _begin(self, connection: Connection[Any]) -> StoredTable:
        """Make slot and copy, if no other driver does: it would take our slot for one that a crash has left."""
        store, settings = self._store, self.settings
        assert store is not None
        _check_server(connection, self.subject)
        with slots.begun(connection, f"{store.url} {settings.name}"):
            if load_table(store, settings.name) is not None:
                raise twice_begun(self.subject)
            return self._make(connection, store, settings)

    def _make(self, connection: Connection[Any], store: Store, settings: ChangeSettings) -> StoredTable:
        """What an attempt before this one has left is removed first."""
        layout = read_layout(connection, settings.table, self.subject)
        checked_row_type(self.row_type, layout, self.subject)
        _check_identity(layout, settings.upserts, self.subject)
        _check_heirs(connection, layout, self.subject)
        left_over = load_intent(store, settings.name)
        if left_over is not None:
            slots.drop_slot(connection, slots.Slot(left_over, ""))
        token = secrets.token_hex(6)
        slot = slots.Slot(f"{_slot_name(settings.slot)}_{token}", settings.publication or _publication_name(layout))
        save_intent(store, settings.name, slot.name)
        past = inherited_table(store, settings.name)
        if past is not None:
            slots.copy_slot(connection, past.slot, slot)
            stored = replace(past, slot=slot.name)
        else:
            slots.ensure_publication(connection, slot.publication, settings.table, self.subject)
            stored = self._copy(layout, slot, token)
        slots.add_reader(connection, slot)
        if settings.bounded and stored.ends_at is None:
            stored = replace(stored, ends_at=slots.log_ends(connection)[0])
        if not create_table(store, settings.name, stored):
            slots.drop_slot(connection, slot)
            raise twice_begun(self.subject)
        return stored

    def _copy(self, layout: TableLayout, slot: slots.Slot, series: str) -> StoredTable:
        store, settings = self._store, self.settings
        assert store is not None
        snapshot = slots.export_snapshot(self.address, self.timeouts, slot)
        try:
            files: tuple[Any, ...] = ()
            if settings.copies_rows:
                place = CopyPlace(self.address, self.timeouts, store, rows_folder(settings.name, series))
                files = copy_table(place, layout, self.row_type, snapshot.name)
        finally:
            snapshot.close()
        columns = layout.logged_columns(self.row_type.get_field_names())
        return StoredTable(
            series=series,
            table=str(settings.table),
            type=written_type(self.row_type),
            store=store.url,
            files=files,
            slot=slot.name,
            publication=slot.publication,
            lsn=snapshot.lsn,
            columns=columns,
        )

    def _check_start(self, positions: dict[str, Offset], stored: StoredTable) -> None:
        """Refuse to go on from positions that belong to another copy, or that the slot has left behind."""
        foreign = sorted(name for name in positions if not name.startswith(f"{stored.series}-"))
        if foreign:
            raise ProgramError(
                f"{self.subject}: the job stands at {foreign[0]!r}, in another copy of the table than this store has: "
                "rows would be missing, or come twice. A savepoint in a folder of its own does not hold what sources "
                "have stored: start from STORE@EPOCH of the job itself, or give the source another name"
            )
        if stored.is_removed and not stored.is_read(positions):
            raise ProgramError(
                f"{self.subject}: the copy of the table is removed, because no epoch that was kept needed it, and the "
                "job is to go on before its end. Start from a newer epoch, or give the source another name"
            )
        start = positions.get(stored.changes, stored.lsn)
        self._with_connection(lambda connection: slots.check_slot(connection, self._slot(), start, self.subject))

    def _reach_log(self, connection: Connection[Any], offset: int, budget: int) -> int:
        ends_at = self._table().ends_at
        stop = self._log.reach(connection, self._slot(), offset, budget, ends_at, self._committed_lsn)
        if stop != offset:
            # A table that was taken out, or dropped and made anew, is silent for ever.
            slots.check_publication(connection, self._slot().publication, self.settings.table, self.subject)
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

    def _with_connection(self, act: Callable[[Connection[Any]], _Answer]) -> _Answer:
        """What `act(connection)` gives; again on a new connection if the server was away."""

        def attempt() -> _Answer:
            if self._connection is None:
                self._connection = connect(self.address, self.timeouts)
            try:
                # The first start copies the table, which takes as long as it takes.
                limit_s = self.timeouts.transaction_s if self._stored is not None else threading.TIMEOUT_MAX
                with deadline(self._connection, limit_s):
                    return act(self._connection)
            except BaseException:
                self._disconnect()
                raise

        def why(error: BaseException) -> str | None:
            reason = refusal(error)
            return None if reason is None else self.address.without_secrets(reason)

        with self._lock:
            return retry(attempt, self.patience, self.subject, why)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None


def _check_server(connection: Connection[Any], subject: str) -> None:
    row = connection.execute("SELECT current_setting('wal_level')").fetchone()
    connection.rollback()
    if row != ("logical",):
        raise ProgramError(
            f"{subject}: the server has wal_level = {row[0] if row else None}, and changes are in the log with logical "
            "only. Run: ALTER SYSTEM SET wal_level = logical, and restart the server"
        )


def _check_identity(layout: TableLayout, upserts: bool, subject: str) -> None:
    if layout.identity == "f" or (upserts and layout.identity in "di"):
        return
    raise ProgramError(
        f"{subject}: the table's replica identity is {layout.identity!r}, so the log does not tell rows as they were "
        f"before a change. Run: ALTER TABLE {layout.schema}.{layout.table} REPLICA IDENTITY FULL. "
        "Or take changes without the row before, by the primary key: upserts=True"
    )


def _check_heirs(connection: Connection[Any], layout: TableLayout, subject: str) -> None:
    """A table that others inherit from shows their rows as its own, and the log tells their changes as theirs."""
    heirs = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhparent "
        "WHERE inhparent = to_regclass(%s) AND relkind = 'r' ORDER BY 1",
        [quoted(layout.name)],
    ).fetchall()
    connection.rollback()
    if heirs:
        raise ProgramError(
            f"{subject}: {', '.join(name for (name,) in heirs[:5])} inherit from the table. Their rows are among its "
            "own, and the log tells changes of them under their names: they would be missing in silence. Read changes "
            "of tables that nothing inherits from, or make it a partitioned table"
        )


def _slot_name(text: str) -> str:
    """A text as the beginning of a slot's name, which has small letters, digits and underscores only."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())[:_SLOT_NAME_MAX]


def _publication_name(layout: TableLayout) -> str:
    """The publication of a table, of which the server keeps the first bytes only."""
    schema = "" if layout.schema == "public" else f"{layout.schema}_"
    return f"millstream_{schema}{layout.table}".encode()[:_NAME_BYTES_MAX].decode(errors="ignore")
