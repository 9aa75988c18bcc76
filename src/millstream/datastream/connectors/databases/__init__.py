"""Tables of SQL databases (beyond PyFlink, whose `JdbcSink` is in `millstream.datastream.connectors.jdbc`).

`DatabaseSink` writes each epoch in one transaction, exactly once: rows are added to a table, or put in the place of the
row with the same key, and taken away where their `RowKind` says so.
"""

from __future__ import annotations

from millstream.datastream.connectors.databases.sink import DatabaseSink

__all__ = ["DatabaseSink"]
