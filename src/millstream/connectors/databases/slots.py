"""Logical replication slots of PostgreSQL: create, copy, read by range, advance, drop.

A slot retains the log from a position (`confirmed_flush_lsn`) onward. It is read with
`pg_logical_slot_peek_binary_changes`, which consumes nothing: the same range returns the same transactions until the
slot is advanced past its start. Only `advance` moves it, and every read checks that it was not moved.

Decoding starts at the slot's position, so a range that starts much later costs more. Next to the slot that retains the
log there is a **reader**, a copy of it that advances with the job: it retains nothing that is needed, and may be lost
at any time. A range is read from whichever of the two has the nearest position before it (`slot_for`).

A range ends where a record of the log ends: at the end of a commit, or at an insert position that has reached the disk
since. So no commit spans two ranges.
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
    "ConcurrentStartError",
    "ExportedSnapshot",
    "LoggedCommit",
    "Slot",
    "SlotMovedError",
    "add_reader",
    "advance",
    "check_slot",
    "commits",
    "copy_slot",
    "drop_slot",
    "export_snapshot",
    "log_ends",
    "logical_slots",
    "messages",
    "slot_for",
    "start_lock",
]

_LOG = logging.getLogger(__name__)
_FETCHED_MESSAGES = 10_000
_PEEK = "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"


@dataclass(frozen=True)
class Slot:
    """A slot and its publication."""

    name: str
    publication: str

    @property
    def _publications(self) -> str:
        return quoted_name(self.publication)

    @property
    def reader(self) -> Slot:
        """The copy of the slot that advances as the job reads."""
        return Slot(f"{self.name}_r", self.publication)


@dataclass(frozen=True)
class LoggedCommit:
    """A transaction in the log: its position, the end of its commit, and the number of messages up to there."""

    position: int
    end: int
    messages: int


class SlotMovedError(OSError):
    """A slot was advanced just before it was read. If it was the reader, the slot itself is read next."""


class ConcurrentStartError(OSError):
    """Another driver is creating slot and copy. It may soon finish or fail."""


class ExportedSnapshot:
    """A new slot, and a snapshot of the database at the slot's start, valid while this is open."""

    def __init__(self, connection: Connection[Any], lsn: int, name: str) -> None:
        self._connection, self.lsn, self.name = connection, lsn, name

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()


def export_snapshot(address: DatabaseAddress, timeouts: Timeouts, slot: Slot) -> ExportedSnapshot:
    """Create the slot. It contains every transaction that is not in the snapshot, and no other."""
    # A replication connection accepts settings only when it is opened.
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
def start_lock(connection: Connection[Any], job: str) -> Iterator[None]:
    """Excludes other drivers that create or drop slots for `job`; ConcurrentStartError if one is doing so.

    The server distinguishes live drivers from dead ones: a lock ends with its session, which keep-alives end if its
    machine fails.
    """
    connection.execute("SET tcp_keepalives_idle = 10")
    connection.execute("SET tcp_keepalives_interval = 5")
    connection.execute("SET tcp_keepalives_count = 3")
    # The session is idle while the table is copied.
    connection.execute("SET idle_session_timeout = 0")
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [job]).fetchone()
    connection.commit()
    if row != (True,):
        raise ConcurrentStartError("another driver is starting this job, and copies the table")
    yield  # after a failure the caller closes the connection, which releases the lock
    connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [job])
    connection.execute("RESET idle_session_timeout")
    connection.commit()


def copy_slot(connection: Connection[Any], source: str, slot: Slot) -> None:
    """Create a slot that retains the log from the same position as `source`."""
    connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [source, slot.name])
    connection.commit()


def add_reader(connection: Connection[Any], slot: Slot) -> None:
    """Create the reader of a slot. It is optional: the server may have no free slot."""
    try:
        copy_slot(connection, slot.name, slot.reader)
    except psycopg().Error as error:
        connection.rollback()
        _LOG.warning("no reader for slot %s, so that ranges are read from the slot: %s", slot.name, error)


def drop_slot(connection: Connection[Any], slot: Slot) -> None:
    """Drop the slot and its reader, if they exist, so that the server may remove the log."""
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = ANY (%s)",
        [[slot.name, slot.reader.name]],
    )
    connection.commit()


def logical_slots(connection: Connection[Any]) -> frozenset[str]:
    """The pgoutput slots of this database."""
    rows = connection.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE plugin = 'pgoutput' AND database = current_database()"
    ).fetchall()
    connection.rollback()
    return frozenset(name for (name,) in rows)


def slot_for(connection: Connection[Any], slot: Slot, start: int, subject: str) -> tuple[Slot, int]:
    """The slot or its reader, whichever has the nearest position before `start`, and that position."""
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
    """The start of the next record, and the end of the log on the server's disk."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text").fetchone()
    connection.rollback()
    assert row is not None
    return parse_lsn(row[0]), parse_lsn(row[1])


def commits(connection: Connection[Any], slot: Slot, stop: int, messages_max: int) -> list[LoggedCommit]:
    """The transactions of the slot up to `stop`: all, or the first ones that together reach `messages_max` messages."""
    rows = connection.execute(
        f"SELECT n, data FROM (SELECT row_number() OVER () AS n, data FROM {_PEEK}) AS log "
        "WHERE get_byte(data, 0) = 67",  # C(ommit)
        [slot.name, lsn_text(stop), messages_max, slot._publications],
    ).fetchall()
    connection.rollback()
    return [LoggedCommit(int.from_bytes(data[2:10], "big"), int.from_bytes(data[10:18], "big"), n) for n, data in rows]


def messages(connection: Connection[Any], slot: Slot, start: int, stop: int, limit_s: float) -> Iterator[bytes]:
    """All messages of the slot up to `stop`, in pieces. SlotMovedError if its position is after `start`.

    Each server response has the time limit `limit_s`; the caller's time between them is not limited.
    """
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    with connection.cursor(name="millstream_changes") as cursor:
        with deadline(connection, limit_s):
            parameters = [slot.name, lsn_text(stop), None, slot._publications]
            cursor.execute(f"SELECT data FROM {_PEEK}", parameters, binary=True)
            rows = cursor.fetchmany(_FETCHED_MESSAGES)
            # The server has read the whole range by now, and nothing can have advanced the slot since. If the slot was
            # advanced before, the first transactions are missing: check before the first message is returned.
            if not _starts_before(connection, slot, start):
                raise SlotMovedError(f"replication slot {slot.name!r} was moved beyond {lsn_text(start)}, or dropped")
        while rows:
            for (data,) in rows:
                yield data
            with deadline(connection, limit_s):
                rows = cursor.fetchmany(_FETCHED_MESSAGES)
    connection.rollback()


def _starts_before(connection: Connection[Any], slot: Slot, start: int) -> bool:
    row = connection.execute(
        "SELECT confirmed_flush_lsn <= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
        [lsn_text(start), slot.name],
    ).fetchone()
    return row == (True,)


def check_slot(connection: Connection[Any], slot: Slot, start: int, subject: str) -> None:
    """Reject reading from `start` if the slot no longer retains the log from there."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, wal_status, plugin FROM pg_replication_slots WHERE slot_name = %s",
        [slot.name],
    ).fetchone()
    connection.rollback()
    advice = "Start the job again from a new snapshot: give the source another name, or the job another store"
    if row is None:
        raise ProgramError(
            f"{subject}: the replication slot {slot.name!r} was dropped, and its log may be lost. {advice}"
        )
    confirmed, wal_status, plugin = row
    if wal_status == "lost" or confirmed is None:
        raise ProgramError(
            f"{subject}: the replication slot {slot.name!r} has lost its log: it grew beyond max_slot_wal_keep_size "
            f"while the job did not read. {advice}, and raise that setting"
        )
    if plugin != "pgoutput":
        raise ProgramError(f"{subject}: slot {slot.name!r} has the plugin {plugin!r}, expected 'pgoutput'")
    if parse_lsn(confirmed) > start:
        raise ProgramError(
            f"{subject}: the job continues from {lsn_text(start)} in the log, but the replication slot "
            f"{slot.name!r} retains it from {confirmed} only: no retained epoch needed more, or another client "
            f"advanced it. Start from a newer epoch. Or: {advice[0].lower()}{advice[1:]}"
        )


def advance(connection: Connection[Any], slot: Slot, lsn: int) -> None:
    """Let the server remove the log before `lsn`. Never moves back; skips a slot that is being read."""
    try:
        connection.execute(
            "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots "
            "WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn AND NOT active",
            [lsn_text(lsn), slot.name, lsn_text(lsn)],
        )
        connection.commit()
    except psycopg().errors.ObjectInUse:
        connection.rollback()  # retried next time
