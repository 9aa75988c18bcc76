"""A table whose changes are read, as the catalogue describes it: at the start, and at every look at the log.

The log does not tell everything. What it leaves out is found in the catalogue, and refused by name:

    no replica identity          once the table is published, the server refuses its UPDATEs: nothing is made before
    an identity that is not the key     a delete would tell other columns than those the row is found by
    partitions that are attached, detached or dropped     rows come and go with them, and no change says so
    another table under the name, heirs, security by row  the rows of the table are not those that the log tells

A table is known by its number (oid), which stays when it is renamed. Of partitions the tree is known: which they are,
and the transaction that attached each. A partition that was made as one is empty then, so it is let in.
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
# A system column is written with its table and never again, so its transaction is the one that made the table.
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
    """A table, by its number and its name, and the tree of its partitions."""

    relation: int
    name: TableName
    is_partitioned: bool = False
    parts: tuple[TablePart, ...] = ()
    part_names: tuple[str, ...] = ()
    made_attached: frozenset[int] = frozenset()
    """Partitions that were made as such."""


def captured_table(
    connection: Connection[Any], table: TableName, relation: int, subject: str, *, copies_rows: bool = False
) -> CapturedTable:
    """The table as it is now; refused if it is not the one that was begun with (`relation`, 0: at the start)."""
    name = quoted(table)
    row = connection.execute(_TABLE, [name, relation or None, name]).fetchone()
    if row is None:
        raise ProgramError(f"{subject}: the table was dropped. {_ANEW}")
    number, schema, own_name, is_partitioned, is_secured, heirs, is_named = row
    found = TableName((schema, own_name))
    if not is_named:
        raise ProgramError(
            f"{subject}: the table that the job has begun with is {found} now, and {table} is another one or none. "
            f"Rename it back. Or: {_ANEW[0].lower()}{_ANEW[1:]}"
        )
    if heirs:
        raise ProgramError(
            f"{subject}: {', '.join(heirs[:5])} inherit from the table. Their rows are among its "
            "own, and the log tells changes of them under their names: they would be missing in silence. Read changes "
            "of tables that nothing inherits from, or make it a partitioned table"
        )
    if is_secured and copies_rows:
        raise ProgramError(
            f"{subject}: this role sees some rows of the table only (row level security), and the log tells changes of "
            "all of them. Have an administrator run: ALTER ROLE … BYPASSRLS"
        )
    parts = connection.execute(_PARTS, [number]).fetchall() if is_partitioned else []
    connection.rollback()
    return CapturedTable(
        number,
        found,
        is_partitioned,
        tuple(TablePart(part, attached_by) for part, attached_by, _, _ in parts),
        tuple(part_name for *_, part_name in parts),
        frozenset(part for part, _, is_made_attached, _ in parts if is_made_attached),
    )


_ANEW = "Start the job anew, from a snapshot: give the source another name, or the job another store"


def admitted_parts(
    known: Sequence[TablePart], now: CapturedTable, subject: str, *, skips_removals: bool
) -> tuple[TablePart, ...]:
    """The partitions there are now; refused where rows came or went with one since the tree was `known`."""
    names = dict(zip((part.relation for part in now.parts), now.part_names, strict=True))
    attached = {part.relation: part.attached_by for part in known}
    for part in now.parts:
        before = attached.pop(part.relation, None)
        is_admitted = part.relation in now.made_attached if before is None else before == part.attached_by
        if not is_admitted:
            raise ProgramError(
                f"{subject}: partition {names[part.relation]} was attached since the job has begun, and the log does "
                f"not tell the rows it came with. {_ANEW}"
            )
    if attached and not skips_removals:
        raise ProgramError(
            f"{subject}: {len(attached)} of the table's partitions were detached or dropped since the job has begun, "
            f"and the log does not tell the rows that went with them. {_ANEW}. If the stream should keep the rows, "
            "read on with skip_truncate=True. Where it may happen again, DELETE the rows first"
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
    """Refuse a table whose log would not tell which row is gone; returns what rows are found by: `key` if it is given,
    else the primary key, else the columns of the replica identity. Empty where whole rows are told."""
    primary = [name for (name,) in connection.execute(_PRIMARY_KEY, [table.relation]).fetchall()]
    identities = connection.execute(_IDENTITIES, [table.relation, table.relation]).fetchall()
    connection.rollback()
    for name, identity, identity_columns in identities:
        _check_one(name, identity, identity_columns, key or primary, subject, upserts=upserts, has_key=bool(primary))
    wanted = list(key or primary or (identities[0][2] if identities else ()))
    tells_keys = any(identity != "f" for _, identity, _ in identities)
    if upserts and tells_keys and (missing := [name for name in wanted if name not in columns]):
        raise ProgramError(
            f"{subject}: rows are found by {', '.join(wanted)}, and the columns that are read have no "
            f"{', '.join(missing)}: a delete would tell nothing. Read them, too"
        )
    return tuple(wanted) if upserts else ()


def _check_one(
    table: str, identity: str, columns: Sequence[str], key: Sequence[str], subject: str, *, upserts: bool, has_key: bool
) -> None:
    if identity == "f":
        return
    full = f"Run: ALTER TABLE {table} REPLICA IDENTITY FULL"
    if not columns:
        advice = ". Or give it a primary key, and take changes without the row before: upserts=True"
        raise ProgramError(
            f"{subject}: {table} has no replica identity (it is {identity!r}, and there is no primary key that "
            "counts), so that the server would refuse every UPDATE and DELETE of it as soon as it is published. "
            f"{full}{'' if has_key else advice}"
        )
    if not upserts:
        raise ProgramError(
            f"{subject}: the replica identity of {table} is {identity!r} ({', '.join(columns)}), so the log does not "
            f"tell rows as they were before a change. {full}. "
            "Or take changes without the row before, by the primary key: upserts=True"
        )
    if not set(key) <= set(columns):
        raise ProgramError(
            f"{subject}: the replica identity of {table} is {', '.join(columns)}, and rows are found by "
            f"{', '.join(key)}: which row a delete removes would not be known. {full}, or make the identity the key: "
            f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT, where that is its primary key"
        )
