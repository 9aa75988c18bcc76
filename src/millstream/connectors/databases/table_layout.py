"""A PostgreSQL table from the catalogue, and the stream type of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.column_types import type_of_column
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.patience import Patience, retry
from millstream.connectors.databases.pgoutput import LoggedColumn
from millstream.connectors.databases.postgres_session import connect, quoted, refusal
from millstream.errors import ProgramError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["TableLayout", "checked_row_type", "described_table", "read_layout"]

_COLUMNS = """
    SELECT a.attname, a.atttypid::bigint, format_type(
        CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE a.atttypid END,
        CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END),
        a.attgenerated <> ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True)
class TableLayout:
    """A table's oid, name and columns: name, oid of the type, text of the type (of a domain: its base type)."""

    schema: str
    table: str
    columns: tuple[tuple[str, int, str], ...]
    is_plain: bool
    """Whether it has pages: not a view, and not partitioned."""
    generated: frozenset[str] = frozenset()
    """Generated columns: they are not in the log."""

    @property
    def name(self) -> TableName:
        return TableName((self.schema, self.table))

    def type(self) -> RowTypeInfo:
        """The stream type of all columns."""
        names = [name for name, _, _ in self.columns]
        return Types.ROW_NAMED(names, [type_of_column(text) for _, _, text in self.columns])

    def logged_columns(self, names: list[str]) -> tuple[LoggedColumn, ...]:
        """These columns, each with the oid of its type."""
        numbers = {name: number for name, number, _ in self.columns}
        return tuple(LoggedColumn(name, numbers[name]) for name in names)


def read_layout(connection: Connection[Any], table: TableName, subject: str) -> TableLayout:
    """Read the current table."""
    row = connection.execute(
        "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        [quoted(table)],
    ).fetchone()
    if row is None:
        raise ProgramError(
            f"{subject}: table {table} does not exist, or is not visible to this role. Names are case-sensitive "
            "here: PostgreSQL folds unquoted names to lower case when a table is created"
        )
    oid, schema, name, kind = row
    columns = connection.execute(_COLUMNS, [oid]).fetchall()
    connection.rollback()
    typed = tuple((column, int(number), text) for column, number, text, _ in columns)
    generated = frozenset(column for column, _, _, is_generated in columns if is_generated)
    return TableLayout(schema, name, typed, kind in ("r", "m"), generated)


def checked_row_type(type_info: TypeInformation | None, layout: TableLayout, subject: str) -> RowTypeInfo:
    """The declared type, or the table's if none is declared; rejected if the table lacks its columns."""
    if type_info is None:
        return layout.type()
    if not isinstance(type_info, RowTypeInfo):
        raise ProgramError(f"{subject}: a table needs a row type, not {type_info}. Declare Types.ROW_NAMED([…], […])")
    columns = [name for name, _, _ in layout.columns]
    missing = [name for name in type_info.get_field_names() if name not in columns]
    if missing:
        raise ProgramError(f"{subject}: the table has the columns {columns}, but not {missing}. Correct the type")
    return type_info


def described_table(
    address: DatabaseAddress,
    table: TableName,
    type_info: TypeInformation | None,
    patience: Patience,
    timeouts: Timeouts,
) -> tuple[TableLayout, RowTypeInfo]:
    """The table at this address, and the stream type of its rows, while a program is being built."""
    subject = f"Table {table} at {address.shown}"
    if address.kind != "postgresql":
        raise ProgramError(
            f"{subject}: tables are read from PostgreSQL only. Use an address postgresql://host/database"
        )

    def read() -> TableLayout:
        with connect(address, timeouts) as connection:
            return read_layout(connection, table, subject)

    layout = retry(read, patience, subject, refusal)
    return layout, checked_row_type(type_info, layout, subject)
