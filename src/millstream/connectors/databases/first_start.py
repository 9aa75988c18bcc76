"""The first start of a job that reads changes: its checks and the objects it creates, in order.

    1. check the server, the table, its columns and its replica identity: nothing is created for a table that cannot
       be read, and a publication of a table without a replica identity would break the application's own statements
    2. store the name of the slot, so that the next start removes it if this one crashes
    3. create the publication, unless it exists
    4. create the slot and, in its snapshot, the copy of the rows
    5. create the slot's reader, and write the document that makes the start valid

A refused start removes the objects it created (`CreatedObjects`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.databases import slots
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.captured_tables import (
    CapturedTable,
    admitted_parts,
    captured_table,
    check_identity,
)
from millstream.connectors.databases.created_objects import CreatedObjects
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.publications import ensure_publication
from millstream.connectors.databases.stored_tables import (
    StoredTable,
    concurrent_start_error,
    create_table,
    inherited_table,
    load_intent,
    load_table,
    rows_folder,
    save_intent,
)
from millstream.connectors.databases.table_copy import CopyPlace, copy_table
from millstream.connectors.databases.table_layout import TableLayout, checked_row_type, read_layout
from millstream.errors import ProgramError
from millstream.state.schemas.saved_types import written_type
from millstream.storage.store import Store

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["ChangeSettings", "FirstStart", "checked_table"]

_NAME_BYTES_MAX = 63
_SLOT_NAME_MAX = 48  # followed by a token, and the suffix of its reader


@dataclass(frozen=True)
class ChangeSettings:
    """The table to read, its name in the job's store (`name`), and the form of its changes."""

    table: TableName
    name: str
    slot: str = "millstream"
    publication: str = ""
    upserts: bool = False
    skips_truncate: bool = False
    copies_rows: bool = True
    bounded: bool = False
    key: tuple[str, ...] = ()
    """The columns that identify rows, if the program declares them; else the table's primary key."""


@dataclass
class FirstStart:
    """A job's first start. `made`: the objects it has created in the database so far."""

    address: DatabaseAddress
    settings: ChangeSettings
    row_type: RowTypeInfo
    subject: str
    timeouts: Timeouts
    store: Store
    made: CreatedObjects = field(default_factory=CreatedObjects)

    def begin(self, connection: Connection[Any]) -> StoredTable:
        """Create slot and copy under a lock: otherwise another driver would treat our slot as the leftover of a
        crash."""
        _check_server(connection, self.subject)
        with slots.start_lock(connection, f"{self.store.url} {self.settings.name}"):
            if load_table(self.store, self.settings.name) is not None:
                raise concurrent_start_error(self.subject)
            return self._make(connection)

    def _make(self, connection: Connection[Any]) -> StoredTable:
        """Remove leftovers of an earlier attempt, then create."""
        settings, store = self.settings, self.store
        layout = read_layout(connection, settings.table, self.subject)
        checked_row_type(self.row_type, layout, self.subject)
        _check_generated(layout, self.row_type.get_field_names(), self.subject)
        table, key = checked_table(connection, settings, self.row_type, self.subject)
        intent = load_intent(store, settings.name)
        if intent is not None:
            slots.drop_slot(connection, slots.Slot(intent, ""))
        token = secrets.token_hex(6)
        slot = slots.Slot(f"{_slot_name(settings.slot)}_{token}", settings.publication or _publication_name(layout))
        save_intent(store, settings.name, slot.name)
        past, self.made.slot = inherited_table(store, settings.name), slot
        if past is not None:
            slots.copy_slot(connection, past.slot, slot)
            stored = replace(past, slot=slot.name)
        else:
            stored = replace(self._published_copy(connection, layout, table, slot, token), key=key)
        slots.add_reader(connection, slot)
        if settings.bounded and stored.ends_at is None:
            stored = replace(stored, ends_at=slots.log_ends(connection)[0])
        if not create_table(store, settings.name, stored):
            slots.drop_slot(connection, slot)
            self.made = CreatedObjects()  # the publication now belongs to the other driver
            raise concurrent_start_error(self.subject)
        self.made = CreatedObjects()
        return stored

    def _published_copy(
        self, connection: Connection[Any], layout: TableLayout, table: CapturedTable, slot: slots.Slot, series: str
    ) -> StoredTable:
        before, names = slots.logical_slots(connection), self.row_type.get_field_names()
        if ensure_publication(connection, slot.publication, table, names, self.subject):
            self.made.publication, self.made.slots_before = slot.publication, before
        stored = self._copy(layout, slot, series)
        # A partition attached or detached in the meantime may or may not be in the snapshot.
        now, _ = checked_table(connection, self.settings, self.row_type, self.subject, relation=table.relation)
        parts = admitted_parts(table.parts, now, self.subject, skips_removals=False)
        return replace(stored, relation=now.relation, is_partitioned=now.is_partitioned, parts=parts)

    def _copy(self, layout: TableLayout, slot: slots.Slot, series: str) -> StoredTable:
        store, settings = self.store, self.settings
        snapshot = slots.export_snapshot(self.address, self.timeouts, slot)
        try:
            files: tuple[Any, ...] = ()
            if settings.copies_rows:
                place = CopyPlace(self.address, self.timeouts, store, rows_folder(settings.name, series))
                files = copy_table(place, layout, self.row_type, snapshot.name)
        finally:
            snapshot.close()
        return StoredTable(
            series=series,
            table=str(settings.table),
            type=written_type(self.row_type),
            store=store.url,
            files=files,
            slot=slot.name,
            publication=slot.publication,
            lsn=snapshot.lsn,
            columns=layout.logged_columns(self.row_type.get_field_names()),
        )


def checked_table(
    connection: Connection[Any],
    settings: ChangeSettings,
    row_type: RowTypeInfo,
    subject: str,
    *,
    relation: int = 0,
    key: tuple[str, ...] = (),
) -> tuple[CapturedTable, tuple[str, ...]]:
    """The table from the catalogue, and the columns that identify its rows. `relation`, `key`: as at the start."""
    is_first = settings.copies_rows and not relation
    table = captured_table(connection, settings.table, relation, subject, copies_rows=is_first)
    names = row_type.get_field_names()
    row_key = check_identity(connection, table, names, subject, upserts=settings.upserts, key=key or settings.key)
    return table, row_key


def _check_server(connection: Connection[Any], subject: str) -> None:
    row = connection.execute("SELECT current_setting('wal_level')").fetchone()
    connection.rollback()
    if row != ("logical",):
        raise ProgramError(
            f"{subject}: the server has wal_level = {row[0] if row else None}, but the log has changes with logical "
            "only. Run: ALTER SYSTEM SET wal_level = logical, and restart the server"
        )


def _check_generated(layout: TableLayout, names: Sequence[str], subject: str) -> None:
    generated = [name for name in names if name in layout.generated]
    if generated:
        others = [name for name, _, _ in layout.columns if name not in layout.generated]
        raise ProgramError(
            f"{subject}: the server computes the columns {', '.join(generated)} from others, and they are not in the "
            f"log. Read {', '.join(others)} only (type_info=, or the columns of the SQL table), and compute them in "
            "the job"
        )


def _slot_name(text: str) -> str:
    """A prefix for a slot's name, which may contain only lower-case letters, digits and underscores."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())[:_SLOT_NAME_MAX]


def _publication_name(layout: TableLayout) -> str:
    """The publication of a table; the server truncates long names."""
    schema = "" if layout.schema == "public" else f"{layout.schema}_"
    return f"millstream_{schema}{layout.table}".encode()[:_NAME_BYTES_MAX].decode(errors="ignore")
