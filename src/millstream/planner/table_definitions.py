"""A catalog table's definition for its connector, and the connector's factory."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import MetadataColumn, TableDefinition, TableFactory
from millstream.errors import SqlError, did_you_mean
from millstream.expressions.coercion import can_cast
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import MapType, RowType
from millstream.planner.entries import ColumnEntry, Options, TableEntry
from millstream.planner.session import PlannerSession

__all__ = ["check_read_metadata", "check_written_metadata", "table_definition", "table_factory"]

_NOT_NULL = " NOT NULL"


def table_factory(entry: TableEntry, options: Options = ()) -> TableFactory:
    """The factory of a table's connector."""
    name = dict((*entry.options, *options)).get("connector")
    table = ".".join(entry.path)
    if name is None:
        near = difflib.get_close_matches("connector", [key for key, _ in entry.options], 1)
        hint = f". There is '{near[0]}': did you mean 'connector'?" if near else ""
        raise SqlError(
            f"Table options of '{table}' do not contain an option key 'connector' for discovering a connector. "
            f"Write WITH ('connector' = '…'){hint}"
        )
    return factory_of(name, table)


def table_definition(entry: TableEntry, session: PlannerSession, options: Options = ()) -> TableDefinition:
    """The table's definition for its factory; `options` of a hint override those of the table. Metadata columns have
    the connector's own types; if these differ, rows are cast after a source, and before a sink."""
    physical = entry.physical
    merged = dict((*entry.options, *options))
    factory, name = table_factory(entry, options), ".".join(entry.path)
    own = factory.metadata_of(merged)
    metadata = tuple(_metadata_column(column, own, factory, name) for column in entry.metadata)
    return TableDefinition(
        name,
        RowType.of([each.name for each in physical], [each.type for each in physical], nullable=False),
        merged,
        metadata,
        entry.partition_keys,
        entry.primary_key,
        session.zone,
        session.is_batch,
    )


def _metadata_column(
    column: ColumnEntry, own_types: Mapping[str, DataType], factory: TableFactory, table: str
) -> MetadataColumn:
    """The column with the connector's type. Rejects metadata keys that the connector does not have."""
    key = column.metadata or column.name
    subject = f"Invalid metadata key '{key}' in column '{column.name}' of table '{table}'"
    if not own_types:
        raise SqlError(f"{subject}: the connector '{factory.name}' has no metadata. Remove the column")
    if key not in own_types:
        raise SqlError(f"{subject}.{did_you_mean(key, own_types)} '{factory.name}' has {', '.join(own_types)}")
    # Types that differ only in nullability hold the same values.
    is_same = str(column.type).replace(_NOT_NULL, "") == str(own_types[key]).replace(_NOT_NULL, "")
    type_ = column.type if is_same else _with_nulls(own_types[key]).with_nullability(column.type.is_nullable)
    return MetadataColumn(column.name, key, type_, column.is_virtual)


def _with_nulls(type_: DataType) -> DataType:
    """The map type with nullable values, which a cast preserves: headers may be NULL, whatever their declared type."""
    return MapType(type_.key_type, type_.value_type.nullable()) if isinstance(type_, MapType) else type_


def check_read_metadata(entry: TableEntry, table: TableDefinition, read: Collection[str]) -> None:
    """Rejects columns among `read` to whose type the connector's metadata cannot be cast."""
    for column, metadata in zip(entry.metadata, table.metadata, strict=True):
        if column.name in read and not can_cast(metadata.type.nullable(), column.type.nullable()):
            raise _wrong_type(column, metadata, table, "become")


def check_written_metadata(entry: TableEntry, table: TableDefinition, factory: TableFactory) -> None:
    """Rejects metadata columns that INSERT would write but the connector cannot, at least not in their type."""
    written = [
        (column, metadata)
        for column, metadata in zip(entry.metadata, table.metadata, strict=True)
        if not column.is_virtual
    ]
    known = factory.written_metadata
    names = [column.name for column, metadata in written if metadata.key not in known]
    if names:
        what = f"only {' and '.join(known)}" if known else "none"
        raise SqlError(
            f"Table '{table.name}' declares persistable metadata columns ({', '.join(names)}), and the connector "
            f"'{factory.name}' writes {what}. If a column should not be persisted, declare it with the VIRTUAL keyword"
        )
    for column, metadata in written:
        if not can_cast(column.type.nullable(), metadata.type.nullable()):
            raise _wrong_type(column, metadata, table, "be made of")


def _wrong_type(column: ColumnEntry, metadata: MetadataColumn, table: TableDefinition, verb: str) -> SqlError:
    return SqlError(
        f"Invalid data type of column '{column.name}' of table '{table.name}': the metadata '{metadata.key}' is "
        f"{metadata.type}, and cannot {verb} {column.type}. Declare it as {metadata.type.nullable()}"
    )
