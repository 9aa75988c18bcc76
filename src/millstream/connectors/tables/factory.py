"""What a connector says of itself as a table: its options, and how it makes a source or a sink of a definition.

One class per connector, entered in the table of factories under the name that `'connector' = '…'` gives. A
factory checks options before anything runs; what is unknown or malformed is an error with the nearest name.
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
"""Rows are only added."""
UPSERTS = ("+I", "+U", "-D")
"""Rows are put in the place of the one with their key, and deleted by it."""
ALL_CHANGES = ("+I", "-U", "+U", "-D")
"""Rows come, and go as they were."""


@dataclass(frozen=True)
class MetadataColumn:
    """A column that is filled from what the connector knows of a row: Kafka's offset, a file's path."""

    name: str
    key: str
    type: DataType
    is_virtual: bool = False  # only read, never written


@dataclass(frozen=True)
class TableDefinition:
    """A table as its connector sees it: the physical columns, in the order of the file or message, and metadata.

    A source gives `physical` columns, then `metadata` ones; computed columns and watermarks are the planner's."""

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
    """One option of a connector. `parse` raises ValueError with what was expected."""

    name: str
    doc: str
    required: bool = False
    default: str | None = None
    prefix: bool = False  # a family: 'properties.*', 'fields.*'


@dataclass(frozen=True)
class TableSource:
    """A source of a table, and what of the query it takes over itself."""

    source: Source
    columns: tuple[int, ...] | None = None  # what it gives, by position in physical + metadata; None: all
    filters: tuple[RowExpression, ...] = ()  # what it leaves out by itself, exactly
    skips: tuple[RowExpression, ...] = ()  # by what it leaves out some rows; they are checked above
    own_watermarks: bool = False
    bounded: bool = field(default=False)


class TableFactory(ABC):
    """Makes sources and sinks of definitions. A connector that only does one of them overrides just that."""

    name: str
    options: Sequence[TableOption] = ()
    metadata_keys: ClassVar[Mapping[str, DataType]] = {}
    written_metadata: ClassVar[tuple[str, ...]] = ()
    copies_rows: ClassVar[bool] = False
    """Whether its sources copy a table into the job's store, with the columns that are read."""

    def metadata_of(self, options: Mapping[str, str]) -> Mapping[str, DataType]:
        """What is known of each row of a table with these options, by name: by the connector, and by its format."""
        return self.metadata_keys

    def prunes_fields(self, options: Mapping[str, str]) -> bool:
        """Whether a source of these options makes rows inside columns of just the fields that the definition names."""
        return False

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        """A source that gives at least the wanted `columns` (by position), and may leave out what `filters` reject."""
        raise NotImplementedError

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        """A sink for rows of the physical columns and metadata that can be written."""
        raise NotImplementedError

    def lookup(self, table: TableDefinition, columns: Sequence[int], keys: Sequence[int]) -> TableLookup:
        """The table as one that is asked by key: rows of `columns`, by those of them that `keys` are the places of."""
        raise NotImplementedError

    def partitions(self, table: TableDefinition) -> list[dict[str, str]]:
        """The partitions there are, by the names of their columns, as texts; in order."""
        raise NotImplementedError

    def gives_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The kinds of changes that a source of a table with these options gives."""
        return GROWS

    def takes_changes(self, table: TableDefinition) -> tuple[str, ...]:
        """The kinds of changes its sink takes."""
        return GROWS
