"""`Catalog`: databases, tables, views and functions in memory, through PyFlink's methods.

A catalog in memory does not store partitions, statistics, procedures or models: listing them returns nothing, and
adding them raises an error.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import NotAvailableError, ProgramError, did_you_mean
from millstream.graph.site import refuse
from millstream.planner import catalog as stored
from millstream.planner.definitions import table_entry
from millstream.planner.entries import FunctionEntry, TableEntry, ViewEntry
from millstream.planner.session import PlannerSession
from millstream.sql.parser import parse_query
from millstream.sql.statements import ColumnDefinition, CreateTable, KeyDefinition, WatermarkDefinition
from millstream.table.catalogs.catalog_statistics import CatalogStatistics
from millstream.table.catalogs.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath
from millstream.table.schema import Schema
from millstream.util.exceptions import (
    DatabaseAlreadyExistException,
    DatabaseNotEmptyException,
    DatabaseNotExistException,
    FunctionAlreadyExistException,
    FunctionNotExistException,
    TableAlreadyExistException,
    TableNotExistException,
)

__all__ = ["Catalog", "HiveCatalog", "JdbcCatalog"]


class Catalog(CatalogStatistics):
    """A catalog, as returned by `TableEnvironment.get_catalog`."""

    def __init__(self, j_catalog: Any) -> None:
        if not isinstance(j_catalog, tuple):
            raise refuse(
                "Catalog: TableEnvironment.get_catalog(name) gives one; execute_sql('CREATE CATALOG …') makes one"
            )
        self._name: str = j_catalog[0]
        self._catalog: stored.Catalog = j_catalog[1]
        self._session: PlannerSession = j_catalog[2]

    # --- databases ------------------------------------------------------------------------------------------------

    def get_default_database(self) -> str:
        """The name of the default database."""
        return self._catalog.default_database

    def list_databases(self) -> list[str]:
        """The names of all databases."""
        return sorted(self._catalog.databases)

    def get_database(self, database_name: str) -> CatalogDatabase:
        """A database."""
        database = self._database(database_name)
        return CatalogDatabase.create_instance(dict(database.options), database.comment)

    def database_exists(self, database_name: str) -> bool:
        """Whether a database exists."""
        return database_name in self._catalog.databases

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool) -> None:
        """Creates a database."""
        if self.database_exists(name):
            if ignore_if_exists:
                return
            raise refuse(
                f"there is a database {name!r} in catalog {self._name!r} already", DatabaseAlreadyExistException
            )
        options = tuple(database.get_properties().items())
        self._catalog.databases[name] = stored.Database(comment=database.get_description(), options=options)

    def drop_database(self, name: str, ignore_if_exists: bool) -> None:
        """Drops an empty database."""
        if ignore_if_exists and not self.database_exists(name):
            return
        database = self._database(name)
        if database.tables or database.functions:
            raise refuse(
                f"database {name!r} is not empty: drop its tables and functions first", DatabaseNotEmptyException
            )
        del self._catalog.databases[name]

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool) -> None:
        """Changes the properties of a database."""
        if ignore_if_not_exists and not self.database_exists(name):
            return
        database = self._database(name)
        database.options = tuple(new_database.get_properties().items())
        database.comment = new_database.get_description()

    def _database(self, name: str) -> stored.Database:
        if name not in self._catalog.databases:
            hint = did_you_mean(name, self._catalog.databases)
            raise refuse(f"there is no database {name!r} in catalog {self._name!r}.{hint}", DatabaseNotExistException)
        return self._catalog.databases[name]

    # --- tables and views -----------------------------------------------------------------------------------------

    def list_tables(self, database_name: str) -> list[str]:
        """The names of all tables and views."""
        return sorted(self._database(database_name).tables)

    def list_views(self, database_name: str) -> list[str]:
        """The names of all views."""
        tables = self._database(database_name).tables
        return sorted(name for name, entry in tables.items() if isinstance(entry, ViewEntry))

    def list_materialized_tables(self, database_name: str) -> list[str]:
        """The names of all materialized tables."""
        tables = self._database(database_name).tables
        return sorted(name for name, entry in tables.items() if getattr(entry, "definition", None) is not None)

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """A table or a view."""
        entry = self._entry(table_path)
        if isinstance(entry, ViewEntry):
            return CatalogBaseTable.create_view(entry.text, entry.text, Schema(), {}, entry.comment)
        return CatalogBaseTable.create_table(
            _schema_of(entry), list(entry.partition_keys), dict(entry.options), entry.comment
        )

    def table_exists(self, table_path: ObjectPath) -> bool:
        """Whether a table or view exists."""
        database = self._catalog.databases.get(table_path.get_database_name())
        return database is not None and table_path.get_object_name() in database.tables

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drops a table or a view."""
        if ignore_if_not_exists and not self.table_exists(table_path):
            return
        stored.reject_materialized([self._entry(table_path)])
        del self._database(table_path.get_database_name()).tables[table_path.get_object_name()]

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool) -> None:
        """Renames a table or a view."""
        if ignore_if_not_exists and not self.table_exists(table_path):
            return
        entry = self._entry(table_path)
        stored.reject_materialized([entry])
        tables = self._database(table_path.get_database_name()).tables
        if new_table_name in tables:
            raise refuse(f"there is a table {new_table_name!r} already", TableAlreadyExistException)
        del tables[table_path.get_object_name()]
        self._put(ObjectPath(table_path.get_database_name(), new_table_name), entry)

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool) -> None:
        """Creates a table or view."""
        if self.table_exists(table_path):
            if ignore_if_exists:
                return
            raise refuse(f"there is a table {table_path} in catalog {self._name!r} already", TableAlreadyExistException)
        self._put(table_path, self._entry_of(table_path, table))

    def alter_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool) -> None:
        """Replaces a table's definition."""
        if ignore_if_not_exists and not self.table_exists(table_path):
            return
        stored.reject_materialized([self._entry(table_path)])
        self._put(table_path, self._entry_of(table_path, new_table))

    def _entry(self, path: ObjectPath) -> TableEntry | ViewEntry:
        tables = self._database(path.get_database_name()).tables
        if path.get_object_name() not in tables:
            hint = did_you_mean(path.get_object_name(), tables)
            raise refuse(f"there is no table {path} in catalog {self._name!r}.{hint}", TableNotExistException)
        return tables[path.get_object_name()]

    def _put(self, path: ObjectPath, entry: TableEntry | ViewEntry) -> None:
        full_path = (self._name, path.get_database_name(), path.get_object_name())
        placed = type(entry)(**{**vars(entry), "path": full_path})
        self._database(path.get_database_name()).tables[path.get_object_name()] = placed

    def _entry_of(self, path: ObjectPath, table: CatalogBaseTable) -> TableEntry | ViewEntry:
        parts = table._parts
        home = (self._name, path.get_database_name())
        if "query" in parts:
            with at_users_line():
                return ViewEntry(parts["query"], parse_query(parts["query"]), home=home, comment=parts["comment"])
        schema: Schema = parts["schema"]
        statement = CreateTable(
            (*home, path.get_object_name()),
            schema._columns,
            schema._watermarks,
            () if schema._key is None else (schema._key,),
            parts["comment"],
            tuple(parts["partition_keys"]),
            options=tuple(table.get_options().items()),
        )
        with at_users_line():
            return table_entry(statement, self._session.at(*home))

    # --- functions ------------------------------------------------------------------------------------------------

    def list_functions(self, database_name: str) -> list[str]:
        """The names of all functions."""
        return sorted(self._database(database_name).functions)

    def list_procedures(self, database_name: str) -> list[str]:
        """Always empty: the catalog stores no procedures."""
        return []

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        """A function."""
        entry = self._function(function_path)
        return CatalogFunction.create_instance(entry.class_name, entry.language)

    def get_procedure(self, procedure_path: ObjectPath) -> Any:
        """A procedure of Java."""
        raise NotAvailableError("Catalog.get_procedure is not available: procedures are Java objects. Call a function")

    def function_exists(self, function_path: ObjectPath) -> bool:
        """Whether a function exists."""
        database = self._catalog.databases.get(function_path.get_database_name())
        return database is not None and function_path.get_object_name().lower() in database.functions

    def create_function(self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool) -> None:
        """Adds a function by its Python name."""
        if self.function_exists(function_path):
            if ignore_if_exists:
                return
            raise refuse(f"there is a function {function_path} already", FunctionAlreadyExistException)
        self._put_function(function_path, function)

    def alter_function(
        self, function_path: ObjectPath, new_function: CatalogFunction, ignore_if_not_exists: bool
    ) -> None:
        """Replaces a function."""
        if ignore_if_not_exists and not self.function_exists(function_path):
            return
        self._function(function_path)
        self._put_function(function_path, new_function)

    def drop_function(self, function_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drops a function."""
        if ignore_if_not_exists and not self.function_exists(function_path):
            return
        self._function(function_path)
        del self._database(function_path.get_database_name()).functions[function_path.get_object_name().lower()]

    def _function(self, path: ObjectPath) -> FunctionEntry:
        functions = self._database(path.get_database_name()).functions
        name = path.get_object_name().lower()
        if name not in functions:
            hint = did_you_mean(name, functions)
            raise refuse(f"there is no function {path} in catalog {self._name!r}.{hint}", FunctionNotExistException)
        return functions[name]

    def _put_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        if function.get_function_language().upper() != "PYTHON":
            raise ProgramError(f"the function {path} is in {function.get_function_language()}; only Python runs here")
        full_path = (self._name, path.get_database_name(), path.get_object_name())
        entry = FunctionEntry(path.get_object_name(), None, function.get_class_name(), path=full_path)
        self._database(path.get_database_name()).functions[path.get_object_name().lower()] = entry


class HiveCatalog(Catalog):
    """Tables of Hive."""

    def __init__(
        self,
        catalog_name: str,
        default_database: str | None = None,
        hive_conf_dir: str | None = None,
        hadoop_conf_dir: str | None = None,
        hive_version: str | None = None,
    ) -> None:
        raise NotAvailableError(
            "HiveCatalog is not available: it needs Hive. Read its tables by Spark, with from_spark()"
        )


class JdbcCatalog(Catalog):
    """Tables of a database server."""

    def __init__(self, catalog_name: str, default_database: str, username: str, pwd: str, base_url: str) -> None:
        raise NotAvailableError(
            "JdbcCatalog is not available: it needs JDBC's jars. Read such tables by Spark, with from_spark()"
        )


def _schema_of(entry: TableEntry) -> Schema:
    """A table's columns as declared."""
    columns = []
    for column in entry.columns:
        type_: Any = None if column.is_computed else column.type
        columns.append(
            ColumnDefinition(column.name, type_, column.expression, column.metadata, column.is_virtual, column.comment)
        )
    mark = entry.watermark
    watermarks = () if mark is None else (WatermarkDefinition((mark.column,), mark.expression),)
    key = KeyDefinition(entry.primary_key, entry.key_name) if entry.primary_key else None
    return Schema(columns=columns, watermarks=watermarks, key=key)
