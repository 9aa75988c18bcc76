"""The publication for a table's changes: created if it does not exist, and checked against the table.

A publication defines which tables, rows and columns are logged for readers. Omitted changes would be missing silently,
so a publication that omits any change of the table is rejected: at the start, and with every scan of the log.

Changes of a partitioned table are logged under the names of its partitions. Logged under the table's own name
(`publish_via_partition_root`), TRUNCATE of a partition is not logged at all. So the publication of a partitioned table
contains that table alone: every logged change then belongs to a partition.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases.captured_tables import CapturedTable
from millstream.connectors.databases.postgres_session import psycopg, quoted, quoted_name
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["check_publication", "drop_publication", "ensure_publication"]

_OF_TABLE = """
    SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, t.pubname IS NOT NULL,
        to_jsonb(t) ->> 'rowfilter', to_jsonb(t) -> 'attnames',
        ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped)
    FROM pg_publication p LEFT JOIN pg_publication_tables t
        ON t.pubname = p.pubname AND t.schemaname = %s AND t.tablename = %s
    WHERE p.pubname = %s
"""
# Schemas, row filters and lists of columns were added in PostgreSQL 15.
_OF_PARTITIONS = """
    SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot, p.puballtables,
        ARRAY(SELECT r.prrelid::bigint FROM pg_publication_rel r WHERE r.prpubid = p.oid),
        (SELECT to_jsonb(r) ->> 'prqual' FROM pg_publication_rel r WHERE r.prpubid = p.oid LIMIT 1) IS NOT NULL,
        (SELECT to_jsonb(r) ->> 'prattrs' FROM pg_publication_rel r WHERE r.prpubid = p.oid LIMIT 1) IS NOT NULL,
        EXISTS (SELECT FROM pg_publication_tables t LEFT JOIN pg_partition_tree(%s::oid::regclass) part
            ON part.relid = to_regclass(format('%%I.%%I', t.schemaname, t.tablename))
            WHERE t.pubname = p.pubname AND part.relid IS NULL)
    FROM pg_publication p WHERE p.pubname = %s
"""


def ensure_publication(
    connection: Connection[Any], publication: str, table: CapturedTable, columns: Collection[str], subject: str
) -> bool:
    """Create the publication, unless it exists; returns whether it was created. Rejects an incomplete one."""
    errors = psycopg().errors
    statement = f"CREATE PUBLICATION {quoted_name(publication)} FOR TABLE {quoted(table.name)}"
    is_created = False
    if connection.execute("SELECT FROM pg_publication WHERE pubname = %s", [publication]).fetchone() is None:
        try:
            connection.execute(statement)
            connection.commit()
            is_created = True
        except errors.DuplicateObject:
            connection.rollback()
        except errors.InsufficientPrivilege as error:
            raise ProgramError(
                f"{subject}: publication {publication!r} does not exist, and this role may not create it "
                f"({error.diag.message_primary}). Have the owner of the table run: {statement}"
            ) from error
    check_publication(connection, publication, table, columns, subject)
    return is_created


def drop_publication(connection: Connection[Any], publication: str) -> None:
    """Drop the publication, if it exists."""
    connection.execute(f"DROP PUBLICATION IF EXISTS {quoted_name(publication)}")
    connection.commit()


def check_publication(
    connection: Connection[Any], publication: str, table: CapturedTable, columns: Collection[str], subject: str
) -> None:
    """Reject a publication that omits changes of the table: they would be missing silently."""
    reason = (
        _of_partitions(connection, publication, table)
        if table.is_partitioned
        else _of_table(connection, publication, table, columns)
    )
    connection.rollback()
    if reason is not None:
        raise ProgramError(
            f"{subject}: publication {publication!r} {reason}, so changes would be missing silently. "
            "Use another name, under which one is created, and start again from a new snapshot"
        )


def _of_table(
    connection: Connection[Any], publication: str, table: CapturedTable, columns: Collection[str]
) -> str | None:
    row = connection.execute(_OF_TABLE, [table.relation, *table.name.parts, publication]).fetchone()
    if row is None:
        return "no longer exists"
    publishes_all, has_table, row_filter, names, existing = row
    if not has_table:
        return "does not have the table"
    if not publishes_all:
        return "does not publish every kind of change"
    if row_filter is not None:
        return f"publishes some rows only, {row_filter}"
    # Decoding the log reports a dropped column, with advice.
    missing = [] if names is None else [name for name in columns if name in existing and name not in names]
    return f"omits the columns {', '.join(missing)}" if missing else None


def _of_partitions(connection: Connection[Any], publication: str, table: CapturedTable) -> str | None:
    row = connection.execute(_OF_PARTITIONS, [table.relation, publication]).fetchone()
    if row is None:
        return "no longer exists"
    publishes_all, is_by_root, has_all, relations, has_filter, has_list, has_others = row
    if not has_all and table.relation not in relations:
        return "does not have the table"
    if not publishes_all:
        return "does not publish every kind of change"
    if has_filter or has_list:
        return "publishes some rows or some columns only"
    if is_by_root:
        return (
            "publishes changes of partitions under the name of the table, and TRUNCATE of a partition not at all (run: "
            f"ALTER PUBLICATION {quoted_name(publication)} SET (publish_via_partition_root = false), and continue)"
        )
    if has_all or has_others or len(relations) > 1:
        return "has other tables besides this partitioned one, which could not be distinguished from its partitions"
    return None
