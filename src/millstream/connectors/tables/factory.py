"""The contract of a table connector: its options, and the sources and sinks it builds from a definition.

One class per connector, registered in the table of factories under its `'connector' = '…'` name. A
factory checks options before anything runs; an unknown or malformed one is an error with the nearest name.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.connectors.contracts import Sink, Source
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression

if TYPE_CHECKING:
    from millstream.connectors.tables.lookups import TableLookup

__all__ = [
    "ALL_CHANGES",
    "GROWS",
    "UPSERTS",
    "MetadataColumn",
    "TableDefinition",
    "TableFactory",
    "TableOption",
    "TableSource",
]


GROWS = ("+I",)
"""Insert-only."""
UPSERTS = ("+I", "+U", "-D")
"""Upserts and deletes by key."""
ALL_CHANGES = ("+I", "-U", "+U", "-D")
"""Inserts, updates and deletes with complete rows."""


@dataclass(frozen=True)
class MetadataColumn:
    """A column filled from the connector's metadata of a row: a Kafka offset, a file's path."""

    name: str
    key: str
    type: DataType
    is_virtual: bool = False  # read-only


@dataclass(frozen=True)
class TableDefinition:
    """A table as seen by its connector: the physical columns, in the order of the file or message, and metadata.

    A source emits `physical` columns, then `metadata` ones; the planner adds computed columns and watermarks."""

    name: str
    physical: RowType
    options: Mapping[str, str]
    metadata: tuple[MetadataColumn, ...] = ()
    partition_keys: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    zone: str = "UTC"
    is_batch: bool = False


@dataclass(frozen=True)
class TableOption:
    """One option of a connector. `parse` raises ValueError with the expected form."""

    name: str
    doc: str
    required: bool = False
    default: str | None = None
    prefix: bool = False  # a family: 'properties.*', 'fields.*'


@dataclass(frozen=True)
class TableSource:
    """A source of a table, with the parts of the query that were pushed into it."""

    source: Source
    columns: tuple[int, ...] | None = None  # the columns it emits, by position in physical + metadata; None: all
    filters: tuple[RowExpression, ...] = ()  # conditions it applies exactly
    skips: tuple[RowExpression, ...] = ()  # conditions it applies partially; the plan checks them again
    own_watermarks: bool = False
    bounded: bool = field(default=False)


class TableFactory(ABC):
    """Builds sources and sinks from definitions. A read-only or write-only connector overrides only one of them."""

    name: str
    options: Sequence[TableOption] = ()
    metadata_keys: ClassVar[Mapping[str, DataType]] = {}
    written_metadata: ClassVar[tuple[str, ...]] = ()
    copies_rows: ClassVar[bool] = False
    """Whether its sources copy a table into the job's store, with the columns that are read."""

    def metadata_of(self, options: Mapping[str, str]) -> Mapping[str, DataType]:
        """Metadata of each row of a table with these options, by name: from the connector, and from its format."""
        return self.metadata_keys

    def prunes_fields(self, options: Mapping[str, str]) -> bool:
        """Whether a source with these options reads only the defined fields of nested rows."""
        return False

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        """A source that emits at least the wanted `columns` (by position), and may drop rows that `filters` reject."""
        raise NotImplementedError

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        """A sink for rows of the physical columns and the writable metadata."""
        raise NotImplementedError

    def lookup(self, table: TableDefinition, columns: Sequence[int], keys: Sequence[int]) -> TableLookup:
        """The table as a lookup source: rows of `columns`, looked up by the ones at the positions `keys`."""
        raise NotImplementedError

    def partitions(self, table: TableDefinition) -> list[dict[str, str]]:
        """The existing partitions, as strings by column name; in order."""
        raise NotImplementedError

    def emitted_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The row kinds that a source of a table with these options emits."""
        return GROWS

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        """The row kinds that its sink accepts."""
        return GROWS
