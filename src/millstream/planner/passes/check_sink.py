"""Checks before the job starts that each sink's connector exists and can write the query's rows, and that a table
stored in the job has a single query."""

from __future__ import annotations

from millstream.connectors.tables.factory import TableFactory
from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.errors import SqlError
from millstream.planner.entries import TableEntry
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.planner.table_definitions import table_factory

__all__ = ["check_sink"]


def check_sink(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Rejects sinks that cannot write the rows."""
    _check_job_tables(sinks)
    for sink in sinks:
        entry = sink.target
        if not isinstance(entry, TableEntry) or entry.origin is not None:
            continue
        factory = table_factory(entry)
        if type(factory).sink is TableFactory.sink:
            raise SqlError(
                f"Connector '{factory.name}' can only be used as a source. It cannot be used as a sink: rows cannot "
                f"be written to '{'.'.join(entry.path)}'"
            )
        if entry.distribution is not None:
            raise SqlError(
                f"Table '{'.'.join(entry.path)}' is distributed into buckets, but the underlying DynamicTableSink "
                f"doesn't implement the SupportsBucketing interface: the connector '{factory.name}' writes no buckets. "
                "Leave DISTRIBUTED out, or ALTER TABLE … DROP DISTRIBUTION"
            )
        if sink.overwrite and factory.name != "filesystem":
            raise SqlError(
                f"INSERT OVERWRITE requires that the underlying DynamicTableSink of table '{'.'.join(entry.path)}' "
                f"implements the SupportsOverwrite interface: the connector '{factory.name}' cannot overwrite"
            )
    return sinks


def _check_job_tables(sinks: tuple[Sink, ...]) -> None:
    """Rejects a second query for a table stored in the job: its rows would be stored in a table that is never
    queried."""
    seen: set[tuple[str, ...]] = set()
    for sink in sinks:
        entry = sink.target
        if not isinstance(entry, TableEntry) or entry.connector != STATE_CONNECTOR:
            continue
        if entry.path in seen:
            raise SqlError(
                f"Two INSERTs write to '{'.'.join(entry.path)}', which the job stores as the result of one query. "
                "Write one: INSERT INTO … SELECT … UNION ALL SELECT …"
            )
        seen.add(entry.path)
