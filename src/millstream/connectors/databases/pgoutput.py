"""Decodes the messages of a logical replication slot for a table, as columns of strings with a row kind per row.

PostgreSQL's output plugin `pgoutput` (protocol 1) sends whole transactions in commit order:

    B(egin), with the position of the commit  ·  R(elation), before its first change  ·  I(nsert), U(pdate), D(elete),
    T(runcate)  ·  C(ommit)

The position of a transaction is that of its commit record. A range [start, stop) of the log holds exactly the
transactions with positions in it, each as a whole. Other transactions are skipped undecoded.

The previous row in an update or delete depends on the table's replica identity. FULL: the whole row. DEFAULT (the
primary key): the key only. A large value that an update did not touch is not in the log at all, unless the
identity is FULL. A missing but required value is never replaced by a null: it raises an error that names the statement
to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.common.types import RowKind
from millstream.errors import ProgramError

__all__ = ["ChangeDecoder", "LogRows", "LoggedColumn", "LoggedTable", "lsn_text", "parse_lsn"]

_INSERT, _BEFORE, _AFTER, _DELETE = (
    RowKind.INSERT.value,
    RowKind.UPDATE_BEFORE.value,
    RowKind.UPDATE_AFTER.value,
    RowKind.DELETE.value,
)
_PASSED_OVER = frozenset(b"OYM")  # origin, type and logical messages contain no rows

Cell = bytes | None


class _Unchanged:
    """Marks a large value that an update did not touch and that is not in the log."""


_UNCHANGED: Any = _Unchanged()


def parse_lsn(text: str) -> int:
    """A position in the log as a number.

    >>> parse_lsn("16/B374D848"), lsn_text(97500059720)
    (97500059720, '16/B374D848')
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """A position in PostgreSQL's notation."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class LoggedColumn:
    """A column, and the oid of its type in the catalogue."""

    name: str
    type_number: int


@dataclass(frozen=True)
class LoggedTable:
    """The table whose changes are read: columns in the requested order, each with the oid of its type.

    `upserts`: updates and deletes may have only the key of the previous row, which must contain the columns `key`.
    `relation`: the table's oid, which identifies it under any name; 0: it is identified by its name.
    `has_parts`: the table is partitioned, and all tables in the log are its partitions.
    """

    schema: str
    table: str
    columns: tuple[LoggedColumn, ...]
    upserts: bool = False
    skips_truncate: bool = False
    relation: int = 0
    has_parts: bool = False
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass
class LogRows:
    """Rows as columns of strings, with their row kinds."""

    columns: list[list[Cell]]
    kinds: list[int]

    @classmethod
    def empty(cls, width: int) -> LogRows:
        return cls([[] for _ in range(width)], [])

    def after(self, count: int) -> LogRows:
        """These rows without the first `count`."""
        return LogRows([column[count:] for column in self.columns], self.kinds[count:]) if count else self

    def texts(self) -> list[pa.Array]:
        """The columns, checked to be valid UTF-8."""
        return [pa.array(column, pa.binary()).cast(pa.string()) for column in self.columns]


class ChangeDecoder:
    """Decodes the messages of one pass over a slot. Rows of the range are buffered in `rows` until they are taken."""

    def __init__(self, table: LoggedTable, start: int, stop: int) -> None:
        self._table, self._start, self._stop = table, start, stop
        self._width = len(table.columns)
        self._places: dict[int, list[int]] = {}  # of captured tables: the position of each wanted column in a tuple
        self._keys: dict[int, list[bool]] = {}
        self.is_wanted = False
        self.rows = LogRows.empty(self._width)

    def take_rows(self) -> LogRows:
        """The buffered rows; a transaction may continue in the next batch."""
        rows, self.rows = self.rows, LogRows.empty(self._width)
        return rows

    def take(self, message: bytes) -> int | None:
        """Decode one message. If it ends a transaction of the range, returns its end in the log."""
        tag = message[0]
        if tag == 0x42:  # B
            self.is_wanted = self._start <= int.from_bytes(message[1:9], "big") < self._stop
        elif tag == 0x52:  # R
            self._relation(message)
        elif not self.is_wanted or tag in _PASSED_OVER:
            return None
        elif tag == 0x43:  # C
            return int.from_bytes(message[10:18], "big")
        elif tag == 0x49:  # I
            relation = int.from_bytes(message[1:5], "big")
            if relation in self._places:
                self._add(_INSERT, relation, _cells(message, 6)[0])
        elif tag == 0x55:  # U
            self._update(message)
        elif tag == 0x44:  # D
            self._delete(message)
        elif tag == 0x54:  # T
            self._truncate(message)
        else:
            raise ProgramError(
                f"Changes of {self._table}: the server sent a message of the kind {chr(tag)!r}, which protocol 1 does "
                "not have. Use a PostgreSQL version that Millstream is tested with (15)"
            )
        return None

    def _update(self, message: bytes) -> None:
        relation = int.from_bytes(message[1:5], "big")
        if relation not in self._places:
            return
        tag, old = message[5], None
        at = 6
        if tag != 0x4E:  # N: without the previous row
            old, at = _cells(message, 6)
            at += 1
        new, _ = _cells(message, at)
        if tag == 0x4F:  # O: the whole row
            assert old is not None
            new = [before if after is _UNCHANGED else after for before, after in zip(old, new, strict=True)]
            self._add(_BEFORE, relation, old)
        elif not self._table.upserts:
            raise self._identity_error("an update")
        elif old is not None:  # K: the key has changed, so the row with the old key is deleted
            self._add(_DELETE, relation, self._key_only(relation, old))
        self._add(_AFTER, relation, new)

    def _delete(self, message: bytes) -> None:
        relation = int.from_bytes(message[1:5], "big")
        if relation not in self._places:
            return
        old, _ = _cells(message, 6)
        if message[5] == 0x4B:  # K
            if not self._table.upserts:
                raise self._identity_error("a delete")
            old = self._key_only(relation, old)
        self._add(_DELETE, relation, old)

    def _truncate(self, message: bytes) -> None:
        count = int.from_bytes(message[1:5], "big")
        relations = {int.from_bytes(message[6 + 4 * i : 10 + 4 * i], "big") for i in range(count)}
        if relations & self._places.keys() and not self._table.skips_truncate:
            raise ProgramError(
                f"Changes of {self._table}: the table was truncated, and the log does not list the removed rows. "
                "Start the job again from a new snapshot; or, if the stream should keep the rows, continue with "
                "skip_truncate=True. Where it may happen again, use DELETE FROM instead of TRUNCATE"
            )

    def _relation(self, message: bytes) -> None:
        """A table's definition from this position of the log on: a captured table must still have the columns that are
        read."""
        relation = int.from_bytes(message[1:5], "big")
        schema, at = _name(message, 5)
        table, at = _name(message, at)
        if not self._is_captured(relation, schema or "pg_catalog", table):
            return
        identity = message[at : at + 1]
        count = int.from_bytes(message[at + 1 : at + 3], "big")
        at += 3
        logged_columns: dict[str, tuple[int, int]] = {}
        keys = []
        for place in range(count):
            keys.append(bool(message[at] & 1))
            name, at = _name(message, at + 1)
            logged_columns[name] = (place, int.from_bytes(message[at : at + 4], "big"))
            at += 8
        for column in self._table.columns:
            name = column.name
            if name not in logged_columns or logged_columns[name][1] != column.type_number:
                change = "no longer exists" if name not in logged_columns else "has another type"
                raise ProgramError(
                    f"Changes of {self._table}: the table was altered while it was read: column {name!r} {change}. "
                    "Changes after that cannot be rows of the job's type. Alter it back, or start the job again from a "
                    "new snapshot, with the new type"
                )
        self._check_identity(identity, [name for name, is_key in zip(logged_columns, keys, strict=True) if is_key])
        self._places[relation] = [logged_columns[column.name][0] for column in self._table.columns]
        self._keys[relation] = keys

    def _is_captured(self, relation: int, schema: str, table: str) -> bool:
        captured = self._table
        is_named = (schema, table) == (captured.schema, captured.table)
        if captured.has_parts or not captured.relation:
            return captured.has_parts or is_named
        if is_named and relation != captured.relation:
            raise ProgramError(
                f"Changes of {captured}: the log has another table of this name than the job started with: it was "
                "dropped or renamed, and created again. Start the job again from a new snapshot"
            )
        return relation == captured.relation

    def _check_identity(self, identity: bytes, names: Sequence[str]) -> None:
        """Deleted rows have only the columns `names` in the log (FULL: all); they must include the key."""
        if self._table.upserts and identity != b"f" and not set(self._table.key) <= set(names):
            raise ProgramError(
                f"Changes of {self._table}: the replica identity was changed to {', '.join(names) or 'nothing'} while "
                f"the table was read, but rows are identified by {', '.join(self._table.key)}: the row of a delete "
                "is unknown. Change it back, and start the job again from a new snapshot"
            )

    def _key_only(self, relation: int, cells: Sequence[Cell]) -> list[Cell]:
        return [cell if is_key else None for cell, is_key in zip(cells, self._keys[relation], strict=True)]

    def _add(self, kind: int, relation: int, cells: Sequence[Cell]) -> None:
        rows = self.rows
        for number, (column, place) in enumerate(zip(rows.columns, self._places[relation], strict=True)):
            cell = cells[place]
            if cell is _UNCHANGED:
                name = self._table.columns[number].name
                raise ProgramError(
                    f"Changes of {self._table}: an update did not touch the large value of column {name!r}, so it is "
                    f"not in the log. Run: ALTER TABLE {self._table} REPLICA IDENTITY FULL, and start the job again"
                )
            column.append(cell)
        rows.kinds.append(kind)

    def _identity_error(self, change: str) -> ProgramError:
        return ProgramError(
            f"Changes of {self._table}: for {change} the log has only the key of the previous row. "
            f"Run: ALTER TABLE {self._table} REPLICA IDENTITY FULL, and start the job again. "
            "Or read changes without the previous row: upserts=True"
        )


def _name(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode("utf-8"), end + 1


def _cells(message: bytes, at: int) -> tuple[list[Cell], int]:
    """The cells of a tuple that starts at `at`, and its end."""
    count = int.from_bytes(message[at : at + 2], "big")
    at += 2
    cells: list[Cell] = []
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == 0x74:  # t
            length = int.from_bytes(message[at : at + 4], "big")
            at += 4
            cells.append(message[at : at + length])
            at += length
        else:  # n, or u: unchanged
            cells.append(None if kind == 0x6E else _UNCHANGED)
    return cells, at
