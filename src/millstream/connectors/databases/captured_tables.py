"""Checks the catalogue of a table whose changes are read: at the start, and with every scan of the log.

The log lacks some information. The following cases are detected in the catalogue and rejected with specific errors:

    no replica identity          the server refuses UPDATEs of a published table: checked before anything is created
    an identity that is not the key     a delete would log other columns than those that identify the row
    partitions that are attached, detached or dropped     their rows appear and vanish without a logged change
    another table under the name, child tables, row security  the rows of the table differ from those in the log

A table is identified by its oid, which does not change when it is renamed. The partition tree is identified by
its partitions and the transaction that attached each. A partition created as such starts empty, so it is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases.dialect import TableName
from millstream.connectors.databases.postgres_session import quoted
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["CapturedTable", "TablePart", "admitted_parts", "captured_table", "check_identity"]

_TABLE = """
    SELECT c.oid::bigint, n.nspname, c.relname, c.relkind = 'p', row_security_active(c.oid), ARRAY(
        SELECT h.inhrelid::regclass::text FROM pg_inherits h WHERE h.inhparent = c.oid AND c.relkind = 'r' ORDER BY 1),
        to_regclass(%s) = c.oid
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = coalesce(%s::oid, to_regclass(%s))
"""
# Catalogue rows of system columns are written only when a table is created, so their transaction is the one that
# created it.
_PARTS = """
    SELECT t.relid::bigint, i.xmin::text::bigint, i.xmin = a.xmin, format('%%I.%%I', n.nspname, c.relname)
    FROM pg_partition_tree(%s::oid::regclass) t JOIN pg_inherits i ON i.inhrelid = t.relid
    JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = t.relid AND a.attname = 'tableoid'
    WHERE t.level > 0 ORDER BY 1
"""
_IDENTITIES = """
    SELECT format('%%I.%%I', n.nspname, c.relname), c.relreplident::text, ARRAY(
        SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
        AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind <> 'p' AND (c.oid = %s OR
        c.oid IN (SELECT relid FROM pg_partition_tree(%s::oid::regclass))) ORDER BY 1
"""
_PRIMARY_KEY = """
    SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
    AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) WHERE i.indrelid = %s AND i.indisprimary ORDER BY 1
"""


@dataclass(frozen=True)
class TablePart:
    """A partition, and the transaction that attached it."""

    relation: int
    attached_by: int


@dataclass(frozen=True)
class CapturedTable:
    """A table, by its oid and its name, and its partition tree."""

    relation: int
    name: TableName
    is_partitioned: bool = False
    parts: tuple[TablePart, ...] = ()
    part_names: tuple[str, ...] = ()
    made_attached: frozenset[int] = frozenset()
    """Partitions that were created as such."""


def captured_table(
    connection: Connection[Any], table: TableName, relation: int, subject: str, *, copies_rows: bool = False
) -> CapturedTable:
    """The current table; rejected if it differs from the table at the start (`relation`, 0: this is the start)."""
    name = quoted(table)
    row = connection.execute(_TABLE, [name, relation or None, name]).fetchone()
    if row is None:
        raise ProgramError(f"{subject}: the table was dropped. {_ANEW}")
    number, schema, own_name, is_partitioned, is_secured, child_tables, is_named = row
    current_name = TableName((schema, own_name))
    if not is_named:
        raise ProgramError(
            f"{subject}: the job's table is now named {current_name}, and {table} is another table or does not exist. "
            f"Rename it back. Or: {_ANEW[0].lower()}{_ANEW[1:]}"
        )
    if child_tables:
        raise ProgramError(
            f"{subject}: {', '.join(child_tables[:5])} inherit from the table. Their rows are part of the table, "
            "but the log has their changes under their own names: they would be missing silently. Read changes "
            "of tables without child tables, or make it a partitioned table"
        )
    if is_secured and copies_rows:
        raise ProgramError(
            f"{subject}: this role sees some rows of the table only (row level security), but the log has changes of "
            "all of them. Have an administrator run: ALTER ROLE … BYPASSRLS"
        )
    parts = connection.execute(_PARTS, [number]).fetchall() if is_partitioned else []
    connection.rollback()
    return CapturedTable(
        number,
        current_name,
        is_partitioned,
        tuple(TablePart(part, attached_by) for part, attached_by, _, _ in parts),
        tuple(part_name for *_, part_name in parts),
        frozenset(part for part, _, is_made_attached, _ in parts if is_made_attached),
    )


_ANEW = "Start the job again from a new snapshot: give the source another name, or the job another store"


def admitted_parts(
    known: Sequence[TablePart], now: CapturedTable, subject: str, *, skips_removals: bool
) -> tuple[TablePart, ...]:
    """The current partitions; rejected if attaching or removing one has added or removed rows since the tree was
    `known`."""
    names = dict(zip((part.relation for part in now.parts), now.part_names, strict=True))
    attached = {part.relation: part.attached_by for part in known}
    for part in now.parts:
        before = attached.pop(part.relation, None)
        is_admitted = part.relation in now.made_attached if before is None else before == part.attached_by
        if not is_admitted:
            raise ProgramError(
                f"{subject}: partition {names[part.relation]} was attached since the job has begun, and the log does "
                f"not have its initial rows. {_ANEW}"
            )
    if attached and not skips_removals:
        raise ProgramError(
            f"{subject}: {len(attached)} of the table's partitions were detached or dropped since the job has begun, "
            f"and the log does not have the rows removed with them. {_ANEW}. If the stream should keep the rows, "
            "continue with skip_truncate=True. Where it may happen again, DELETE the rows first"
        )
    return now.parts


def check_identity(
    connection: Connection[Any],
    table: CapturedTable,
    columns: Collection[str],
    subject: str,
    *,
    upserts: bool,
    key: Sequence[str],
) -> tuple[str, ...]:
    """Check that the log identifies deleted rows; returns the columns that identify rows: `key` if not empty,
    else the primary key, else the columns of the replica identity. Empty where whole rows are logged."""
    primary = [name for (name,) in connection.execute(_PRIMARY_KEY, [table.relation]).fetchall()]
    identities = connection.execute(_IDENTITIES, [table.relation, table.relation]).fetchall()
    connection.rollback()
    for name, identity, identity_columns in identities:
        _check_one(name, identity, identity_columns, key or primary, subject, upserts=upserts, has_key=bool(primary))
    wanted = list(key or primary or (identities[0][2] if identities else ()))
    logs_keys = any(identity != "f" for _, identity, _ in identities)
    if upserts and logs_keys and (missing := [name for name in wanted if name not in columns]):
        raise ProgramError(
            f"{subject}: rows are identified by {', '.join(wanted)}, and the columns that are read have no "
            f"{', '.join(missing)}: a delete would be incomplete. Read them, too"
        )
    return tuple(wanted) if upserts else ()


def _check_one(
    table: str, identity: str, columns: Sequence[str], key: Sequence[str], subject: str, *, upserts: bool, has_key: bool
) -> None:
    if identity == "f":
        return
    full = f"Run: ALTER TABLE {table} REPLICA IDENTITY FULL"
    if not columns:
        advice = ". Or add a primary key, and read changes without the previous row: upserts=True"
        raise ProgramError(
            f"{subject}: {table} has no replica identity (it is {identity!r}, and there is no usable primary "
            "key), so the server would reject every UPDATE and DELETE on it once it is published. "
            f"{full}{'' if has_key else advice}"
        )
    if not upserts:
        raise ProgramError(
            f"{subject}: the replica identity of {table} is {identity!r} ({', '.join(columns)}), so the log does not "
            f"have rows as they were before a change. {full}. "
            "Or read changes without the previous row, by the primary key: upserts=True"
        )
    if not set(key) <= set(columns):
        raise ProgramError(
            f"{subject}: the replica identity of {table} is {', '.join(columns)}, but rows are identified by "
            f"{', '.join(key)}: the row of a delete would be unknown. {full}, or make the identity the key: "
            f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT, where that is its primary key"
        )
