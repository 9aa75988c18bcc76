"""The rows of a PostgreSQL table as a bounded stream. Settings only; `connectors.databases` implements it."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.table_layout import described_table
from millstream.connectors.databases.table_source import PostgresTableSource, TablePlace
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import at_users_line

__all__ = ["PostgresTable"]


class PostgresTable(Source):
    """All rows of `table`, in one snapshot taken at the job's first start. Bounded, exactly once.

    `type_info`          the columns to read, as ROW_NAMED; by default all, with their current types
    `name`               the name of the copy in the job's store; unique in a job
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
        name: str | None = None,
        patience_s: float = 30.0,
    ) -> None:
        with at_users_line():
            address = parse_address(url).with_login(user, password)
            patience, timeouts = Patience(patience_s), Timeouts()
            layout, row_type = described_table(address, TableName.parse(table), type_info, patience, timeouts)
            place = TablePlace(address, layout.name, name or str(layout.name))
            super().__init__(PostgresTableSource(place, row_type, patience, timeouts))

    def __repr__(self) -> str:
        return f"PostgresTable({self._connector.describe()})"
