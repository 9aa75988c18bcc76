"""Changes of a PostgreSQL table as a stream. Settings only; `connectors.databases` has the implementation."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.changes_source import PostgresChangesSource
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.first_start import ChangeSettings
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.table_layout import described_table
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import at_users_line

__all__ = ["PostgresChanges"]


class PostgresChanges(Source):
    """The rows of `table` at the job's first start, then every change, exactly once and in order.

    Records are Rows with their `RowKind`: INSERT, UPDATE_BEFORE with UPDATE_AFTER, DELETE.

    `type_info`          the columns to read, as ROW_NAMED; by default all, with their current types
    `upserts`            accept changes of a table whose REPLICA IDENTITY is its primary key: an update has no
                         UPDATE_BEFORE, and a deleted row has only the key
    `name`               the name of the table's state in the job's store; unique in a job
    `slot`               prefix of the replication slot's name
    `publication`        its name; created if it does not exist, which requires the owner of the table
    `copy_rows`          False: begin with the changes, without the existing rows
    `skip_truncate`      continue after a TRUNCATE, whose deleted rows are unknown; else the job fails
    `bounded`            end with the contents of the log at the job's first start
    `patience_s`         how long the database may be unavailable before the restart strategy decides
    """

    def __init__(
        self,
        url: str,
        table: str,
        type_info: TypeInformation | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        upserts: bool = False,
        name: str | None = None,
        slot: str = "millstream",
        publication: str | None = None,
        copy_rows: bool = True,
        skip_truncate: bool = False,
        bounded: bool = False,
        patience_s: float = 30.0,
    ) -> None:
        with at_users_line():
            address = parse_address(url).with_login(user, password)
            patience, timeouts = Patience(patience_s), Timeouts()
            layout, row_type = described_table(address, TableName.parse(table), type_info, patience, timeouts)
            settings = ChangeSettings(
                table=layout.name,
                name=name or str(layout.name),
                slot=slot,
                publication=publication or "",
                upserts=upserts,
                skips_truncate=skip_truncate,
                copies_rows=copy_rows,
                bounded=bounded,
            )
            super().__init__(PostgresChangesSource(address, settings, row_type, patience, timeouts))

    def __repr__(self) -> str:
        return f"PostgresChanges({self._connector.describe()})"
