"""What a catalog knows of a table, a view or a function: frozen data, without any meaning that a session gives it.

Expressions are kept as they were written (syntax, and its text): they are bound anew by whoever reads the table, so an
entry never holds a plan that a later statement could have made stale. Types are settled when the entry is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.sql.query_syntax import Query
from millstream.sql.syntax import Expression

__all__ = [
    "ColumnEntry",
    "FunctionEntry",
    "ObjectPath",
    "Options",
    "TableEntry",
    "ViewEntry",
    "WatermarkEntry",
    "shown",
]

ObjectPath = tuple[str, ...]
"""(catalog, database, name) of what a catalog holds; one part for what has no place in any: a table made inline."""
Options = tuple[tuple[str, str], ...]


def shown(path: ObjectPath) -> str:
    """A path as SQL writes it.

    >>> shown(("default_catalog", "default_database", "bid"))
    '`default_catalog`.`default_database`.`bid`'
    """
    return ".".join(f"`{part.replace('`', '``')}`" for part in path)


@dataclass(frozen=True)
class ColumnEntry:
    """One column: physical, computed (`expression`), or of metadata (`metadata`: its key)."""

    name: str
    type: DataType
    expression: Expression | None = None
    metadata: str | None = None
    is_virtual: bool = False
    comment: str | None = None
    text: str = ""  # of the expression, as SHOW CREATE TABLE writes it

    @property
    def is_computed(self) -> bool:
        return self.expression is not None

    @property
    def is_physical(self) -> bool:
        return self.expression is None and self.metadata is None

    @property
    def is_written(self) -> bool:
        """Whether an INSERT fills it."""
        return self.is_physical or (self.metadata is not None and not self.is_virtual)


@dataclass(frozen=True)
class WatermarkEntry:
    """WATERMARK FOR column AS expression."""

    column: str
    expression: Expression
    text: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A table: its columns in the order they were written, and what its connector is told.

    `origin` is where the rows of a table without a connector come from (a DataStream, values of the program);
    whoever made the entry knows what it is. `path` is filled when a catalog takes the entry. Many fields: they are the
    clauses of the statement."""

    columns: tuple[ColumnEntry, ...]
    watermark: WatermarkEntry | None = None
    primary_key: tuple[str, ...] = ()
    key_name: str | None = None
    partition_keys: tuple[str, ...] = ()
    options: Options = ()
    comment: str | None = None
    path: ObjectPath = ()
    is_temporary: bool = False
    distribution: Any = None  # a Distribution, as it was written
    origin: Any = None
    definition: Any = field(default=None, compare=False)  # of a materialised table: its query

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> ColumnEntry | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def physical(self) -> tuple[ColumnEntry, ...]:
        """The columns that the connector stores."""
        return tuple(column for column in self.columns if column.is_physical)

    @property
    def metadata(self) -> tuple[ColumnEntry, ...]:
        """The columns that the connector knows of each row."""
        return tuple(column for column in self.columns if column.metadata is not None)

    @property
    def read(self) -> tuple[ColumnEntry, ...]:
        """What a source of it gives: physical columns, then those of metadata. A Scan's columns are positions here."""
        return self.physical + self.metadata

    @property
    def written(self) -> tuple[ColumnEntry, ...]:
        """What an INSERT gives, in the order of the definition: the row type of the sink."""
        return tuple(column for column in self.columns if column.is_written)

    @property
    def written_type(self) -> RowType:
        """The rows that a sink of it takes."""
        return RowType.of([each.name for each in self.written], [each.type for each in self.written], nullable=False)

    def option(self, name: str) -> str | None:
        """The value of an option."""
        return dict(self.options).get(name)

    @property
    def connector(self) -> str | None:
        """What `'connector' = '…'` says."""
        return self.option("connector")


@dataclass(frozen=True)
class ViewEntry:
    """A view. One made by SQL has its `query`, read with the catalog and database that were current (`home`); one made
    of a Table has its `relation`."""

    text: str = ""
    query: Query | None = None
    relation: Any = field(default=None, compare=False)
    names: tuple[str, ...] = ()
    home: tuple[str, str] = ("default_catalog", "default_database")
    comment: str | None = None
    path: ObjectPath = ()
    is_temporary: bool = False
    selected: tuple[str, ...] = ()  # what the query's columns were called when the view was made


@dataclass(frozen=True)
class FunctionEntry:
    """A function of the program's. `function` is the wrapper that `udf` and its like make (None: it is loaded from
    `class_name` when it is first used)."""

    name: str
    function: Any = None
    class_name: str = ""
    language: str = "PYTHON"
    path: ObjectPath = ()
    is_temporary: bool = False
    is_system: bool = False
