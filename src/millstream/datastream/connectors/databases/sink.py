"""A sink to a table, for PostgreSQL, MySQL and MariaDB. Settings only; `connectors.databases` implements it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.sink import COMMITS_TABLE, TableRows
from millstream.connectors.databases.sink import DatabaseSink as _DatabaseSink
from millstream.datastream.connectors.base import Sink
from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import ProgramError

__all__ = ["DatabaseSink"]


class DatabaseSink(Sink):
    """Writes rows (ROW or TUPLE) to `table`, exactly once. Each field is written to the column of the same name.

    `key`                columns that are unique in the table: a row replaces the one with its key, and a row of kind
                         DELETE or UPDATE_BEFORE deletes it. Without a key, rows are inserted
    `commits_table`      stores the newest epoch of each job, in the same database; created if it does not exist
    `patience_s`         how long the database may be unavailable before the restart strategy decides
    `transaction_s`      time limit of a statement, or of a pause within the transaction

    >>> DatabaseSink("postgresql://ann@localhost/sales", "totals", key=["word"], password="secret")
    DatabaseSink(upsert into totals by word at postgresql://ann@localhost:5432/sales, an epoch per transaction)
    """

    def __init__(
        self,
        url: str,
        table: str,
        key: Sequence[str] | str = (),
        *,
        user: str | None = None,
        password: str | None = None,
        commits_table: str = COMMITS_TABLE,
        patience_s: float = 30.0,
        transaction_s: float = 300.0,
    ) -> None:
        with at_users_line():
            if patience_s < 0 or transaction_s <= 0:
                raise ProgramError(
                    f"DatabaseSink: patience_s is {patience_s} and transaction_s is {transaction_s}, expected 0 or "
                    "more, and more than 0"
                )
            names = (key,) if isinstance(key, str) else tuple(key)
            super().__init__(
                _DatabaseSink(
                    parse_address(url).with_login(user, password),
                    TableRows(TableName.parse(table), names),
                    TableName.parse(commits_table),
                    Patience(patience_s),
                    Timeouts(transaction_s=transaction_s),
                )
            )

    def __repr__(self) -> str:
        return f"DatabaseSink({self._connector.describe()})"
