"""A table of the catalog as its connector sees it, and the connector's factory."""

from __future__ import annotations

from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import MetadataColumn, TableDefinition, TableFactory
from millstream.errors import SqlError, did_you_mean
from millstream.expressions.coercion import can_cast
from millstream.expressions.nested_types import RowType
from millstream.planner.entries import Options, TableEntry
from millstream.planner.session import PlannerSession

__all__ = ["check_written_metadata", "table_definition", "table_factory"]


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
    _check_metadata(metadata, table_factory(entry, options), ".".join(entry.path))
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


def _check_metadata(columns: tuple[MetadataColumn, ...], factory: TableFactory, table: str) -> None:
    """Refuse what the connector does not know of its rows, or cannot give as the type that a column has."""
    known = factory.metadata_keys
    for column in columns:
        subject = f"Invalid metadata key '{column.key}' in column '{column.name}' of table '{table}'"
        if not known:
            raise SqlError(f"{subject}: the connector '{factory.name}' has no metadata. Remove the column")
        if column.key not in known:
            raise SqlError(f"{subject}.{did_you_mean(column.key, known)} '{factory.name}' has {', '.join(known)}")
        mine, theirs = column.type.nullable(), known[column.key].nullable()
        if not can_cast(theirs, mine, explicit=False) and not can_cast(mine, theirs, explicit=False):
            raise SqlError(
                f"Invalid data type of column '{column.name}' of table '{table}': the metadata '{column.key}' is "
                f"{known[column.key]}, and cannot be {column.type}. Declare it so, and CAST it in a computed column"
            )


def check_written_metadata(table: TableDefinition, factory: TableFactory) -> None:
    """Refuse metadata that INSERT would have to write where the connector only tells it."""
    written = [column.name for column in table.metadata if not column.is_virtual]
    if written and not factory.writes_metadata:
        raise SqlError(
            f"Table '{table.name}' declares persistable metadata columns ({', '.join(written)}), and the connector "
            f"'{factory.name}' writes none. If a column should not be persisted, declare it with the VIRTUAL keyword"
        )
