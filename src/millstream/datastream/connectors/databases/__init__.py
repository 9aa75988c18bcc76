"""Tables of SQL databases (beyond PyFlink, whose `JdbcSink` is in `millstream.datastream.connectors.jdbc`).

`DatabaseSink` writes each epoch in one transaction, exactly once: rows are inserted into a table, or replace the row
with the same key, and rows with a deleting `RowKind` are deleted. `PostgresTable` reads the rows of a table once;
`PostgresChanges` reads them, and then every change.
"""

from __future__ import annotations

from millstream.datastream.connectors.databases.changes import PostgresChanges
from millstream.datastream.connectors.databases.sink import DatabaseSink
from millstream.datastream.connectors.databases.table import PostgresTable

__all__ = ["DatabaseSink", "PostgresChanges", "PostgresTable"]
