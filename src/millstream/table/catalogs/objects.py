"""Catalog objects and their names: databases, tables, functions, partitions, statistics, paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import total_ordering
from typing import TYPE_CHECKING, Any

from millstream.common.configuration import Configuration
from millstream.errors import NotAvailableError
from millstream.graph.site import refuse
from millstream.planner.entries import shown

if TYPE_CHECKING:
    from millstream.table.schema import Schema
    from millstream.table.table_schema import TableSchema

__all__ = [
    "CatalogBaseTable",
    "CatalogColumnStatistics",
    "CatalogDatabase",
    "CatalogDescriptor",
    "CatalogFunction",
    "CatalogModel",
    "CatalogPartition",
    "CatalogPartitionSpec",
    "CatalogTableStatistics",
    "ObjectIdentifier",
    "ObjectPath",
    "Procedure",
]


class _Described:
    """Properties and a comment."""

    def __init__(self, parts: Any) -> None:
        if not isinstance(parts, dict):
            raise refuse(f"{type(self).__name__}: make one by {type(self).__name__}.create_instance(...)")
        self._parts = parts

    def get_properties(self) -> dict[str, str]:
        """The properties."""
        return dict(self._parts.get("properties") or {})

    def get_comment(self) -> str:
        """The comment, or ""."""
        return self._parts.get("comment") or ""

    def copy(self) -> Any:
        """A copy."""
        return type(self)(dict(self._parts))

    def get_description(self) -> str | None:
        """The comment, as the short description."""
        return self._parts.get("comment")

    def get_detailed_description(self) -> str | None:
        """The comment, as the detailed description."""
        return self._parts.get("comment")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Described) and type(self) is type(other) and self._parts == other._parts

    __hash__ = None  # type: ignore[assignment]


class CatalogDatabase(_Described):
    """A database.

    >>> CatalogDatabase.create_instance({"a": "b"}, "mine").get_comment()
    'mine'
    """

    def __init__(self, j_catalog_database: Any) -> None:
        super().__init__(j_catalog_database)

    @staticmethod
    def create_instance(properties: Mapping[str, str], comment: str | None = None) -> CatalogDatabase:
        """A database with these properties."""
        return CatalogDatabase({"properties": dict(properties), "comment": comment})


class CatalogBaseTable(_Described):
    """A table or a view."""

    def __init__(self, j_catalog_base_table: Any) -> None:
        super().__init__(j_catalog_base_table)

    @staticmethod
    def create_table(
        schema: Schema | TableSchema,
        partition_keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """A table; its properties are the options of its connector."""
        parts = {"schema": _unresolved(schema), "partition_keys": list(partition_keys), "comment": comment}
        return CatalogBaseTable(parts | {"properties": dict(properties or {})})

    @staticmethod
    def create_view(
        original_query: str,
        expanded_query: str,
        schema: Schema | TableSchema,
        properties: Mapping[str, str],
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """A view of a query."""
        parts = {"schema": _unresolved(schema), "query": expanded_query or original_query, "comment": comment}
        return CatalogBaseTable(parts | {"properties": dict(properties)})

    def get_options(self) -> dict[str, str]:
        """The options of its connector."""
        return self.get_properties()

    def get_unresolved_schema(self) -> Schema:
        """The columns."""
        schema: Schema = self._parts["schema"]
        return schema


def _unresolved(schema: Any) -> Any:
    """The schema; a TableSchema is converted."""
    from millstream.table.schema import Schema

    if not hasattr(schema, "get_field_data_types"):
        return schema
    return Schema.new_builder().from_fields(schema.get_field_names(), schema.get_field_data_types()).build()


class CatalogPartition(_Described):
    """A partition of a table."""

    def __init__(self, j_catalog_partition: Any) -> None:
        super().__init__(j_catalog_partition)

    @staticmethod
    def create_instance(properties: Mapping[str, str], comment: str | None = None) -> CatalogPartition:
        """A partition with these properties."""
        return CatalogPartition({"properties": dict(properties), "comment": comment})


class CatalogFunction(_Described):
    """A function, identified by its Python name."""

    def __init__(self, j_catalog_function: Any) -> None:
        super().__init__(j_catalog_function)

    @staticmethod
    def create_instance(class_name: str, function_language: str = "Python") -> CatalogFunction:
        """A function: `module.name`."""
        return CatalogFunction({"class_name": class_name, "language": function_language})

    def get_class_name(self) -> str:
        """The path in Python: `module.name`."""
        return str(self._parts["class_name"])

    def get_function_language(self) -> str:
        """The language."""
        return str(self._parts["language"])

    def get_options(self) -> dict[str, str]:
        """The options."""
        return self.get_properties()


class CatalogModel(_Described):
    """A machine learning model."""

    def __init__(self, j_catalog_model: Any) -> None:
        super().__init__(j_catalog_model)

    @staticmethod
    def create_model(
        input_schema: Schema, output_schema: Schema, options: Mapping[str, str], comment: str | None = None
    ) -> CatalogModel:
        """A model: its input, its output, and the options of its provider."""
        parts = {"input_schema": input_schema, "output_schema": output_schema, "comment": comment}
        return CatalogModel(parts | {"properties": dict(options)})

    def get_options(self) -> dict[str, str]:
        """The options of its provider."""
        return self.get_properties()


class Procedure:
    """A procedure of a Java catalog."""

    def __init__(self, j_procedure: Any) -> None:
        raise NotAvailableError(
            "Procedure is not available: procedures are Java objects. Call a Python function instead"
        )


@total_ordering
class ObjectPath:
    """A name in a catalog: database and object.

    >>> ObjectPath.from_string("db.t").get_object_name()
    't'
    """

    def __init__(
        self, database_name: str | None = None, object_name: str | None = None, j_object_path: Any = None
    ) -> None:
        if not database_name or not object_name:
            raise refuse(
                f"ObjectPath: found {database_name!r} and {object_name!r}, expected a database's name and one in it"
            )
        self._names = (database_name, object_name)

    def get_database_name(self) -> str:
        """The database."""
        return self._names[0]

    def get_object_name(self) -> str:
        """The object's name."""
        return self._names[1]

    def get_full_name(self) -> str:
        """Both names, joined by a dot."""
        return ".".join(self._names)

    @staticmethod
    def from_string(full_name: str) -> ObjectPath:
        """Parses a path `database.object`."""
        parts = full_name.split(".")
        if len(parts) != 2:
            raise refuse(f"ObjectPath: found {full_name!r}, expected 'database.object'")
        return ObjectPath(*parts)

    def __str__(self) -> str:
        return self.get_full_name()

    def __hash__(self) -> int:
        return hash(self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and self._names == other._names

    def compare_to(self, other: ObjectPath) -> int:
        """Compares the full names: negative, 0 or positive."""
        return (self.get_full_name() > other.get_full_name()) - (self.get_full_name() < other.get_full_name())

    def __lt__(self, other: object) -> bool:
        return self.compare_to(other) < 0 if isinstance(other, ObjectPath) else NotImplemented


class CatalogPartitionSpec:
    """A partition, by the values of its partition columns."""

    def __init__(self, partition_spec: Mapping[str, str]) -> None:
        self._spec = dict(partition_spec)

    def get_partition_spec(self) -> dict[str, str]:
        """The values by column."""
        return dict(self._spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CatalogPartitionSpec) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._spec.items())))

    def __str__(self) -> str:
        return f"CatalogPartitionSpec{{{self._spec}}}"


class CatalogTableStatistics:
    """The size of a table."""

    def __init__(
        self,
        row_count: int | None = None,
        field_count: int | None = None,
        total_size: int | None = None,
        raw_data_size: int | None = None,
        properties: Mapping[str, str] | None = None,
        j_catalog_table_statistics: Any = None,
    ) -> None:
        self._counts = (row_count, field_count, total_size, raw_data_size)
        self._properties = dict(properties or {})

    def get_row_count(self) -> int | None:
        """The number of rows."""
        return self._counts[0]

    def get_field_count(self) -> int | None:
        """The number of columns."""
        return self._counts[1]

    def get_total_size(self) -> int | None:
        """The number of bytes stored."""
        return self._counts[2]

    def get_raw_data_size(self) -> int | None:
        """The number of bytes of the values."""
        return self._counts[3]

    def get_properties(self) -> dict[str, str]:
        """Other statistics."""
        return dict(self._properties)

    def copy(self) -> CatalogTableStatistics:
        """A copy."""
        return CatalogTableStatistics(*self._counts, properties=self._properties)


class CatalogColumnStatistics:
    """Statistics of the values of columns."""

    def __init__(
        self,
        column_statistics_data: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
        j_catalog_column_statistics: Any = None,
    ) -> None:
        self._data = dict(column_statistics_data or {})
        self._properties = dict(properties or {})

    def get_column_statistics_data(self) -> dict[str, Any]:
        """The statistics, by column."""
        return dict(self._data)

    def get_properties(self) -> dict[str, str]:
        """Other statistics."""
        return dict(self._properties)

    def copy(self) -> CatalogColumnStatistics:
        """A copy."""
        return CatalogColumnStatistics(self._data, self._properties)


class CatalogDescriptor:
    """A catalog, described by a program."""

    def __init__(self, j_catalog_descriptor: Any) -> None:
        if not isinstance(j_catalog_descriptor, tuple):
            raise refuse("CatalogDescriptor: make one by CatalogDescriptor.of(name, configuration)")
        self._name, self._configuration, self._comment = j_catalog_descriptor

    @staticmethod
    def of(catalog_name: str, configuration: Configuration, comment: str | None = None) -> CatalogDescriptor:
        """A catalog with this name and these settings, such as {'type': 'generic_in_memory'}."""
        return CatalogDescriptor((catalog_name, configuration, comment))


class ObjectIdentifier:
    """A full name: catalog, database, object."""

    def __init__(self, j_object_identifier: Any) -> None:
        if not isinstance(j_object_identifier, tuple):
            raise refuse("ObjectIdentifier: make one by ObjectIdentifier.of(catalog, database, object)")
        self._path = j_object_identifier

    @staticmethod
    def of(catalog_name: str, database_name: str, object_name: str) -> ObjectIdentifier:
        """Creates an identifier from its three parts."""
        return ObjectIdentifier((catalog_name, database_name, object_name))

    def get_catalog_name(self) -> str:
        """The catalog."""
        return str(self._path[0])

    def get_database_name(self) -> str:
        """The database."""
        return str(self._path[1])

    def get_object_name(self) -> str:
        """The object's name."""
        return str(self._path[2])

    def to_object_path(self) -> ObjectPath:
        """Database and object."""
        return ObjectPath(self._path[1], self._path[2])

    def to_list(self) -> list[str]:
        """All parts."""
        return list(self._path)

    def as_serializable_string(self) -> str:
        """The name in SQL syntax."""
        return shown(self._path)

    def as_summary_string(self) -> str:
        """The name for display."""
        return ".".join(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectIdentifier) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __str__(self) -> str:
        return self.as_serializable_string()
