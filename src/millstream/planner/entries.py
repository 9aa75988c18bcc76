"""Catalog entries of tables, views and functions: frozen data, independent of a session.

Entries hold expressions as syntax and text, never as plans that a later statement could invalidate: each query binds
them again. Types are resolved when the entry is created.
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
"""(catalog, database, name) of a catalog object; a single part for objects outside catalogs, such as inline tables."""
Options = tuple[tuple[str, str], ...]


def shown(path: ObjectPath) -> str:
    """A path in SQL syntax.

    >>> shown(("default_catalog", "default_database", "bid"))
    '`default_catalog`.`default_database`.`bid`'
    """
    return ".".join(f"`{part.replace('`', '``')}`" for part in path)


@dataclass(frozen=True)
class ColumnEntry:
    """A physical, computed (`expression`) or metadata (`metadata`: its key) column."""

    name: str
    type: DataType
    expression: Expression | None = None
    metadata: str | None = None
    is_virtual: bool = False
    comment: str | None = None
    text: str = ""  # the expression, as SHOW CREATE TABLE prints it

    @property
    def is_computed(self) -> bool:
        return self.expression is not None

    @property
    def is_physical(self) -> bool:
        return self.expression is None and self.metadata is None

    @property
    def is_written(self) -> bool:
        """Whether an INSERT provides its value."""
        return self.is_physical or (self.metadata is not None and not self.is_virtual)


@dataclass(frozen=True)
class WatermarkEntry:
    """WATERMARK FOR column AS expression."""

    column: str
    expression: Expression
    text: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A table: its columns in order of definition, and the options of its connector.

    `origin` is the row source of a table without a connector (a DataStream, values of the program); only the entry's
    creator interprets it. The catalog sets `path`. Many fields: one per clause of CREATE TABLE."""

    columns: tuple[ColumnEntry, ...]
    watermark: WatermarkEntry | None = None
    primary_key: tuple[str, ...] = ()
    key_name: str | None = None
    partition_keys: tuple[str, ...] = ()
    options: Options = ()
    comment: str | None = None
    path: ObjectPath = ()
    is_temporary: bool = False
    distribution: Any = None  # a Distribution, as written
    origin: Any = None
    definition: Any = field(default=None, compare=False)  # for a materialised table: its query

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> ColumnEntry | None:
        """The column with this name."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def physical(self) -> tuple[ColumnEntry, ...]:
        """The columns that the connector stores."""
        return tuple(column for column in self.columns if column.is_physical)

    @property
    def metadata(self) -> tuple[ColumnEntry, ...]:
        """The metadata columns, which the connector provides for each row."""
        return tuple(column for column in self.columns if column.metadata is not None)

    @property
    def read(self) -> tuple[ColumnEntry, ...]:
        """The columns of its source: physical, then metadata columns. A Scan's columns are positions in this tuple."""
        return self.physical + self.metadata

    @property
    def written(self) -> tuple[ColumnEntry, ...]:
        """The columns that an INSERT provides, in the order of definition: the row type of the sink."""
        return tuple(column for column in self.columns if column.is_written)

    @property
    def written_type(self) -> RowType:
        """The row type of its sink."""
        return RowType.of([each.name for each in self.written], [each.type for each in self.written], nullable=False)

    def option(self, name: str) -> str | None:
        """The value of an option."""
        return dict(self.options).get(name)

    @property
    def connector(self) -> str | None:
        """The value of the option 'connector'."""
        return self.option("connector")


@dataclass(frozen=True)
class ViewEntry:
    """A view. One created by SQL has a `query`, bound in the catalog and database that were current (`home`); one
    created from a Table has a `relation`."""

    text: str = ""
    query: Query | None = None
    relation: Any = field(default=None, compare=False)
    names: tuple[str, ...] = ()
    home: tuple[str, str] = ("default_catalog", "default_database")
    comment: str | None = None
    path: ObjectPath = ()
    is_temporary: bool = False
    selected: tuple[str, ...] = ()  # the names of the query's columns when the view was created


@dataclass(frozen=True)
class FunctionEntry:
    """A user function. `function` is the wrapper created by `udf` and similar; if None, the function is loaded from
    `class_name` on first use."""

    name: str
    function: Any = None
    class_name: str = ""
    language: str = "PYTHON"
    path: ObjectPath = ()
    is_temporary: bool = False
    is_system: bool = False
