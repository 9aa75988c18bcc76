"""A logical replication slot of PostgreSQL: made, copied, read by range, moved on, dropped.

A slot keeps the log from a position on (`confirmed_flush_lsn`). It is read with `pg_logical_slot_peek_binary_changes`,
which consumes nothing: the same range gives the same transactions as long as the slot has not been moved past its
beginning. Nobody moves it but `advance`, and whoever reads checks that nobody did.

Decoding begins where the slot stands, so a range that begins much later costs more. Beside the slot that keeps the log
there is a **reader**, a copy of it that is moved on as the job goes: it holds nothing back, and may be lost or left
behind at any time. A range is read from the one of the two that stands nearest before it (`slot_for`).

A range ends where a record of the log ends: at the end of a commit, or at an insert position that has reached the disk
since. So no commit stands across the boundary of two ranges, and each belongs to one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.dialect import Timeouts
from millstream.connectors.databases.pgoutput import lsn_text, parse_lsn
from millstream.connectors.databases.postgres_session import (
    NO_TRANSACTION_TIMEOUT,
    connect,
    deadline,
    psycopg,
    quoted_name,
)
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = [
    "BeginningError",
    "ExportedSnapshot",
    "LoggedCommit",
    "Slot",
    "SlotMovedError",
    "add_reader",
    "advance",
    "begun",
    "check_slot",
    "commits",
    "copy_slot",
    "drop_slot",
    "export_snapshot",
    "log_ends",
    "logical_slots",
    "messages",
    "slot_for",
]

_LOG = logging.getLogger(__name__)
_FETCHED_MESSAGES = 10_000
_PEEK = "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"


@dataclass(frozen=True)
class Slot:
    """A slot and the publication it is read with."""

    name: str
    publication: str

    @property
    def _publications(self) -> str:
        return quoted_name(self.publication)

    @property
    def reader(self) -> Slot:
        """The slot beside it that is moved on as the job reads."""
        return Slot(f"{self.name}_r", self.publication)


@dataclass(frozen=True)
class LoggedCommit:
    """A transaction in the log: its position, where its commit ends, and how many messages there were up to then."""

    position: int
    end: int
    messages: int


class SlotMovedError(OSError):
    """A slot was moved on just before it was read. Its reader may be: the slot itself is asked then."""


class BeginningError(OSError):
    """Another driver makes slot and copy just now. It may be done, or dead, in a moment."""


class ExportedSnapshot:
    """A new slot, and the state of the database just where it begins, for as long as this is open."""

    def __init__(self, connection: Connection[Any], lsn: int, name: str) -> None:
        self._connection, self.lsn, self.name = connection, lsn, name

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()


def export_snapshot(address: DatabaseAddress, timeouts: Timeouts, slot: Slot) -> ExportedSnapshot:
    """Make the slot. It tells every transaction that is not in the snapshot, and no other."""
    # A connection of the replication protocol takes its settings at the beginning only.
    library = psycopg()
    try:
        connection = connect(address, timeouts, plain=False, replication="database", autocommit=True)
    except library.OperationalError as error:
        if "replication" in str(error) and "FATAL:" in str(error):
            raise ProgramError(
                f"Role {address.user!r} may not read the log of {address.shown}: {str(error).rpartition('FATAL:')[2]}. "
                f"Have an administrator run: ALTER ROLE {address.user} REPLICATION"
            ) from error
        raise
    try:
        connection.execute(NO_TRANSACTION_TIMEOUT)
        row = connection.execute(
            f"CREATE_REPLICATION_SLOT {quoted_name(slot.name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        ).fetchone()
        assert row is not None
        return ExportedSnapshot(connection, parse_lsn(row[1]), row[2])
    except BaseException:
        connection.close()
        raise


@contextmanager
def begun(connection: Connection[Any], job: str) -> Iterator[None]:
    """While this lasts, no other driver makes or drops slots for `job`; BeginningError if one just does.

    The server tells a driver that lives from one that died: a lock ends with its session, which keep-alives end if its
    machine is gone.
    """
    connection.execute("SET tcp_keepalives_idle = 10")
    connection.execute("SET tcp_keepalives_interval = 5")
    connection.execute("SET tcp_keepalives_count = 3")
    # It stands idle for as long as the table is copied.
    connection.execute("SET idle_session_timeout = 0")
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [job]).fetchone()
    connection.commit()
    if row != (True,):
        raise BeginningError("another driver is just beginning this job, and copies the table")
    yield  # whoever fails closes the connection, and so lets the lock go
    connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [job])
    connection.execute("RESET idle_session_timeout")
    connection.commit()


def copy_slot(connection: Connection[Any], source: str, slot: Slot) -> None:
    """A slot that keeps the log from where `source` keeps it."""
    connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [source, slot.name])
    connection.commit()


def add_reader(connection: Connection[Any], slot: Slot) -> None:
    """Make the reader of a slot. A server that has no room for it does without."""
    try:
        copy_slot(connection, slot.name, slot.reader)
    except psycopg().Error as error:
        connection.rollback()
        _LOG.warning("no reader beside slot %s, so that ranges are read from there: %s", slot.name, error)


def drop_slot(connection: Connection[Any], slot: Slot) -> None:
    """Drop the slot and its reader, if they are there, so that the server may remove the log."""
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = ANY (%s)",
        [[slot.name, slot.reader.name]],
    )
    connection.commit()


def logical_slots(connection: Connection[Any]) -> frozenset[str]:
    """The slots of this database that are read with a publication."""
    rows = connection.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE plugin = 'pgoutput' AND database = current_database()"
    ).fetchall()
    connection.rollback()
    return frozenset(name for (name,) in rows)


def slot_for(connection: Connection[Any], slot: Slot, start: int, subject: str) -> tuple[Slot, int]:
    """The slot or its reader, whichever stands nearest before `start`, and where it stands."""
    rows = connection.execute(
        "SELECT slot_name, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = ANY (%s) "
        "AND plugin = 'pgoutput' AND wal_status <> 'lost' AND confirmed_flush_lsn <= %s::pg_lsn",
        [[slot.name, slot.reader.name], lsn_text(start)],
    ).fetchall()
    connection.rollback()
    if not rows:
        check_slot(connection, slot, start, subject)
    name, confirmed = max(rows, key=lambda row: parse_lsn(row[1]))
    return Slot(name, slot.publication), parse_lsn(confirmed)


def log_ends(connection: Connection[Any]) -> tuple[int, int]:
    """Where the next record will begin, and up to where the log is on the server's disk."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text").fetchone()
    connection.rollback()
    assert row is not None
    return parse_lsn(row[0]), parse_lsn(row[1])


def commits(connection: Connection[Any], slot: Slot, stop: int, messages_max: int) -> list[LoggedCommit]:
    """The transactions that the slot tells up to `stop`: all, or the first with `messages_max` messages or more."""
    rows = connection.execute(
        f"SELECT n, data FROM (SELECT row_number() OVER () AS n, data FROM {_PEEK}) AS log "
        "WHERE get_byte(data, 0) = 67",  # C(ommit)
        [slot.name, lsn_text(stop), messages_max, slot._publications],
    ).fetchall()
    connection.rollback()
    return [LoggedCommit(int.from_bytes(data[2:10], "big"), int.from_bytes(data[10:18], "big"), n) for n, data in rows]


def messages(connection: Connection[Any], slot: Slot, start: int, stop: int, limit_s: float) -> Iterator[bytes]:
    """All messages that the slot tells up to `stop`, some at a time. SlotMovedError if it stands behind `start`.

    Each answer of the server is waited for `limit_s` at most; how long the caller takes in between is his affair.
    """
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    with connection.cursor(name="millstream_changes") as cursor:
        with deadline(connection, limit_s):
            parameters = [slot.name, lsn_text(stop), None, slot._publications]
            cursor.execute(f"SELECT data FROM {_PEEK}", parameters, binary=True)
            rows = cursor.fetchmany(_FETCHED_MESSAGES)
            # The server has read all of it by now, and nobody could move the slot meanwhile. Had somebody done so
            # before, the first transactions would be missing: look before anything is given.
            if not _stands_before(connection, slot, start):
                raise SlotMovedError(f"replication slot {slot.name!r} was moved beyond {lsn_text(start)}, or dropped")
        while rows:
            for (data,) in rows:
                yield data
            with deadline(connection, limit_s):
                rows = cursor.fetchmany(_FETCHED_MESSAGES)
    connection.rollback()


def _stands_before(connection: Connection[Any], slot: Slot, start: int) -> bool:
    row = connection.execute(
        "SELECT confirmed_flush_lsn <= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
        [lsn_text(start), slot.name],
    ).fetchone()
    return row == (True,)


def check_slot(connection: Connection[Any], slot: Slot, start: int, subject: str) -> None:
    """Refuse to read from `start` if the slot does not keep the log from there any more."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, wal_status, plugin FROM pg_replication_slots WHERE slot_name = %s",
        [slot.name],
    ).fetchone()
    connection.rollback()
    anew = "Start the job anew, from a snapshot: give the source another name, or the job another store"
    if row is None:
        raise ProgramError(
            f"{subject}: the replication slot {slot.name!r} was dropped, and the log it kept may be gone. {anew}"
        )
    confirmed, wal_status, plugin = row
    if wal_status == "lost" or confirmed is None:
        raise ProgramError(
            f"{subject}: the replication slot {slot.name!r} has lost its log: it grew beyond max_slot_wal_keep_size "
            f"while the job did not read. {anew}, and raise that setting"
        )
    if plugin != "pgoutput":
        raise ProgramError(f"{subject}: slot {slot.name!r} has the plugin {plugin!r}, expected 'pgoutput'")
    if parse_lsn(confirmed) > start:
        raise ProgramError(
            f"{subject}: the job is to go on from {lsn_text(start)} in the log, and the replication slot "
            f"{slot.name!r} keeps it from {confirmed} on only: no epoch that was kept needed more, or somebody else "
            f"moved it on. Start from a newer epoch. Or: {anew[0].lower()}{anew[1:]}"
        )


def advance(connection: Connection[Any], slot: Slot, lsn: int) -> None:
    """Let the server forget the log before `lsn`. Never moves back; a slot that is being read is left as it is."""
    try:
        connection.execute(
            "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots "
            "WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn AND NOT active",
            [lsn_text(lsn), slot.name, lsn_text(lsn)],
        )
        connection.commit()
    except psycopg().errors.ObjectInUse:
        connection.rollback()  # the next time will do
