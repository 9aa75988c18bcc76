"""A table of the catalog as its connector sees it, and the connector's factory."""

from __future__ import annotations

from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import MetadataColumn, TableDefinition, TableFactory
from millstream.errors import SqlError
from millstream.expressions.nested_types import RowType
from millstream.planner.entries import Options, TableEntry
from millstream.planner.session import PlannerSession

__all__ = ["table_definition", "table_factory"]


def table_factory(entry: TableEntry, options: Options = ()) -> TableFactory:
    """The factory of a table's connector."""
    name = dict((*entry.options, *options)).get("connector")
    table = ".".join(entry.path)
    if name is None:
        raise SqlError(
            f"Table options of '{table}' do not contain an option key 'connector' for discovering a connector. "
            "Write WITH ('connector' = '…')"
        )
    return factory_of(name, table)


def table_definition(entry: TableEntry, session: PlannerSession, options: Options = ()) -> TableDefinition:
    """The definition a factory takes; `options` of a hint go over those of the table."""
    physical = entry.physical
    metadata = tuple(
        MetadataColumn(column.name, column.metadata or column.name, column.type, column.is_virtual)
        for column in entry.metadata
    )
    return TableDefinition(
        ".".join(entry.path),
        RowType.of([each.name for each in physical], [each.type for each in physical], nullable=False),
        dict((*entry.options, *options)),
        metadata,
        entry.partition_keys,
        entry.primary_key,
        session.zone,
        session.is_batch,
    )
