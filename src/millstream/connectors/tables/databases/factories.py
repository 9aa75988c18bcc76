"""Options of tables in databases, and the sources and sinks they configure.

`jdbc` reads a table of PostgreSQL once, in one snapshot, and writes tables of PostgreSQL and MySQL: by the primary key
if declared, with one transaction per epoch. `postgres-cdc` reads a table and then every change to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from millstream.connectors.contracts import Sink
from millstream.connectors.databases.addresses import DatabaseAddress, parse_address
from millstream.connectors.databases.changes_source import PostgresChangesSource
from millstream.connectors.databases.dialect import TableName
from millstream.connectors.databases.first_start import ChangeSettings
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.sink import TableRows
from millstream.connectors.databases.table_source import PostgresTableSource, TablePlace
from millstream.connectors.tables.databases.plain_rows import TableDatabaseSink, TableDatabaseSource, plain_row
from millstream.connectors.tables.databases.row_lookup import DatabaseRows
from millstream.connectors.tables.factory import (
    ALL_CHANGES,
    GROWS,
    UPSERTS,
    TableDefinition,
    TableFactory,
    TableOption,
    TableSource,
)
from millstream.connectors.tables.lookups import LOOKUP_OPTIONS, TableLookup, lookup_settings
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression

__all__ = ["JdbcFactory", "PostgresChangesFactory"]

_JAVA = "accepted as in Flink; there is no JDBC driver here"
_RANGES = "accepted as in Flink; a table is read in ranges of its pages"


class JdbcFactory(TableFactory):
    """Tables of PostgreSQL and MySQL."""

    name = "jdbc"
    copies_rows = True
    options = (
        TableOption("url", "the database, as jdbc:postgresql://host:5432/name", required=True),
        TableOption("table-name", "the table, as name or schema.name", required=True),
        TableOption("username", "the user"),
        TableOption("password", "the user's password"),
        TableOption("driver", _JAVA),
        TableOption("properties.", _JAVA, prefix=True),
        TableOption("connection.max-retry-timeout", "how long the database may be unavailable", default="60 s"),
        TableOption("scan.partition.", _RANGES, prefix=True),
        TableOption("scan.fetch-size", _RANGES),
        TableOption("scan.auto-commit", _RANGES),
        TableOption("sink.buffer-flush.max-rows", "accepted as in Flink; an epoch is one transaction"),
        TableOption("sink.buffer-flush.interval", "accepted as in Flink; an epoch is one transaction"),
        *LOOKUP_OPTIONS,
        TableOption("sink.max-retries", "accepted as in Flink; 'connection.max-retry-timeout' is the limit"),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options = TableOptions(table.name, table.options, self.options)
        address, chosen = self.address(options), _chosen(table, columns)
        _refuse_others(address, table)
        row_type = RowType([table.physical.fields[at] for at in chosen], nullable=False)
        name = TableName.parse(str(options.text("table-name")))
        place = TablePlace(address, name, _stored_name(table, row_type))
        source = PostgresTableSource(place, plain_row(row_type, table.name), _patience(options))
        return TableSource(TableDatabaseSource(source, row_type), columns=chosen, bounded=True)

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options = TableOptions(table.name, table.options, self.options)
        rows = TableRows(TableName.parse(str(options.text("table-name"))), table.primary_key)
        sink = TableDatabaseSink(self.address(options), rows, patience=_patience(options))
        sink.plain = plain_row(table.physical, table.name)
        return sink

    def lookup(self, table: TableDefinition, columns: Sequence[int], keys: Sequence[int]) -> TableLookup:
        options = TableOptions(table.name, table.options, self.options)
        row_type = RowType([table.physical.fields[at] for at in columns], nullable=False)
        name = TableName.parse(str(options.text("table-name")))
        rows = DatabaseRows(self.address(options), name, row_type, tuple(keys), table.name)
        return TableLookup(rows, row_type, lookup_settings(options))

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return UPSERTS if table.primary_key else GROWS

    def address(self, options: TableOptions) -> DatabaseAddress:
        """The database, and the user."""
        try:
            address = parse_address(str(options.text("url")))
        except ProgramError as error:
            raise ProgramError(f"table {options.table!r}: option 'url': {error.message}") from None
        return address.with_login(options.text("username"), options.text("password"))


class PostgresChangesFactory(TableFactory):
    """A PostgreSQL table, and every change of it."""

    name = "postgres-cdc"
    copies_rows = True
    options = (
        TableOption("hostname", "the server", required=True),
        TableOption("port", "its port", default="5432"),
        TableOption("username", "the user: a role with REPLICATION", required=True),
        TableOption("password", "the user's password"),
        TableOption("database-name", "the database", required=True),
        TableOption("schema-name", "the schema", default="public"),
        TableOption("table-name", "the table", required=True),
        TableOption("slot.name", "prefix of the replication slot's name", default="millstream"),
        TableOption("publication.name", "the publication; created if missing"),
        TableOption("decoding.plugin.name", "pgoutput, built into every server", default="pgoutput"),
        TableOption("changelog-mode", "all, or upsert: the log has only the key of old rows", default="all"),
        TableOption("scan.startup.mode", "initial: rows, then changes; latest-offset: changes", default="initial"),
        TableOption("scan.bounded.mode", "unbounded, or latest-offset: stop at the log end", default="unbounded"),
        TableOption("connection.max-retry-timeout", "how long the database may be unavailable", default="60 s"),
        TableOption("debezium.", "accepted as in Flink; there is no Debezium here", prefix=True),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options = TableOptions(table.name, table.options, self.options)
        options.choice("decoding.plugin.name", ("pgoutput",))
        chosen = _chosen(table, columns)
        row_type = RowType([table.physical.fields[at] for at in chosen], nullable=False)
        port = options.integer("port") or 0
        if not 0 < port < 65_536:
            raise options.wrong("port", "a number from 1 to 65535")
        address = DatabaseAddress(
            "postgresql",
            ((str(options.text("hostname")), port),),
            str(options.text("database-name")),
            options.text("username"),
            options.text("password"),
        )
        bounded = options.choice("scan.bounded.mode", ("unbounded", "latest-offset")) == "latest-offset"
        settings = ChangeSettings(
            table=TableName((str(options.text("schema-name")), str(options.text("table-name")))),
            name=_stored_name(table, row_type),
            slot=str(options.text("slot.name")),
            publication=options.text("publication.name") or "",
            upserts=self.emitted_changes(table.options) == UPSERTS,
            copies_rows=options.choice("scan.startup.mode", ("initial", "latest-offset")) == "initial",
            bounded=bounded,
            key=table.primary_key if self.emitted_changes(table.options) == UPSERTS else (),
        )
        source = PostgresChangesSource(address, settings, plain_row(row_type, table.name), _patience(options))
        return TableSource(TableDatabaseSource(source, row_type), columns=chosen, bounded=bounded)

    def emitted_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        mode = options.get("changelog-mode", "all")
        if mode not in ("all", "upsert"):
            raise ProgramError(f"option 'changelog-mode' is {mode!r}, expected all or upsert")
        return UPSERTS if mode == "upsert" else ALL_CHANGES


def _chosen(table: TableDefinition, columns: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(range(len(table.physical.fields)) if columns is None else columns)


def _stored_name(table: TableDefinition, row_type: RowType) -> str:
    """The name in the job's store for a copy of the table: from the table's name and the columns that are read."""
    digest = hashlib.sha256("\x00".join(row_type.names).encode()).hexdigest()[:8]
    return f"{table.name.rpartition('.')[2]}-{digest}"


def _patience(options: TableOptions) -> Patience:
    return Patience((options.duration_ms("connection.max-retry-timeout") or 0) / 1000)


def _refuse_others(address: DatabaseAddress, table: TableDefinition) -> None:
    if address.kind != "postgresql":
        raise ProgramError(
            f"table {table.name!r}: tables are read from PostgreSQL only, and its address is {address.shown}. Write to "
            "it, or read a copy"
        )
