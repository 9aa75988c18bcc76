"""Catalogs in memory: databases of tables, views and functions; temporary objects hide permanent ones.

The store's paths have three parts; a session completes shorter names (`PlannerSession.path_of`). The store rejects
duplicate and missing objects with Flink's messages; the statement handles IF EXISTS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from millstream.errors import ProgramError, did_you_mean
from millstream.planner.entries import (
    ColumnEntry,
    FunctionEntry,
    ObjectPath,
    Options,
    TableEntry,
    ViewEntry,
    WatermarkEntry,
    shown,
)

__all__ = [
    "IN_MEMORY",
    "Catalog",
    "CatalogStore",
    "ColumnEntry",
    "Database",
    "FunctionEntry",
    "ObjectPath",
    "TableEntry",
    "ViewEntry",
    "WatermarkEntry",
    "shown",
]

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"


@dataclass
class Database:
    """Tables and views share a namespace, as in Flink; functions have their own, which is case insensitive."""

    tables: dict[str, TableEntry | ViewEntry] = field(default_factory=dict)
    functions: dict[str, FunctionEntry] = field(default_factory=dict)
    comment: str | None = None
    options: Options = ()


IN_MEMORY = "generic_in_memory"
"""The default type of catalogs, that of the initial one."""


@dataclass
class Catalog:
    """Databases by name."""

    databases: dict[str, Database] = field(default_factory=dict)
    default_database: str = DEFAULT_DATABASE
    comment: str | None = None
    options: Options = ()


class CatalogStore:
    """All catalogs, and all temporary objects."""

    def __init__(self) -> None:
        self.catalogs: dict[str, Catalog] = {DEFAULT_CATALOG: Catalog({DEFAULT_DATABASE: Database()})}
        self.temporary_tables: dict[ObjectPath, TableEntry | ViewEntry] = {}
        self.temporary_functions: dict[ObjectPath, FunctionEntry] = {}
        self.temporary_system_functions: dict[str, FunctionEntry] = {}

    # --- catalogs and databases ---------------------------------------------------------------------------------------

    def catalog(self, name: str) -> Catalog:
        """The catalog of this name."""
        if name not in self.catalogs:
            hint = did_you_mean(name, self.catalogs)
            raise ProgramError(f"A catalog with name [{name}] does not exist.{hint}")
        return self.catalogs[name]

    def database(self, catalog: str, name: str) -> Database:
        """The database of this name."""
        databases = self.catalog(catalog).databases
        if name not in databases:
            hint = did_you_mean(name, databases)
            raise ProgramError(f"A database with name [{name}] does not exist in the catalog: [{catalog}].{hint}")
        return databases[name]

    def create_catalog(self, name: str, options: Options = (), comment: str | None = None) -> Catalog:
        """A new catalog in memory, with its default database."""
        if name in self.catalogs:
            raise ProgramError(f"Catalog {name} already exists.")
        default = dict(options).get("default-database", "default")
        self.catalogs[name] = Catalog({default: Database()}, default, comment, options)
        return self.catalogs[name]

    def drop_catalog(self, name: str) -> None:
        """Removes a catalog with its contents."""
        for database in self.catalog(name).databases.values():
            reject_materialized(database.tables.values())
        del self.catalogs[name]

    def create_database(self, catalog: str, name: str, options: Options = (), comment: str | None = None) -> Database:
        """A new database."""
        databases = self.catalog(catalog).databases
        if name in databases:
            raise ProgramError(f"Database {name} already exists in Catalog {catalog}.")
        databases[name] = Database(comment=comment, options=options)
        return databases[name]

    def drop_database(self, catalog: str, name: str, cascade: bool = False) -> None:
        """Removes a database; a non-empty one only with `cascade`."""
        database = self.database(catalog, name)
        if (database.tables or database.functions) and not cascade:
            raise ProgramError(f"Database {name} in catalog {catalog} is not empty. Drop it with CASCADE.")
        reject_materialized(database.tables.values())
        del self.catalogs[catalog].databases[name]

    # --- tables and views ---------------------------------------------------------------------------------------------

    def table(self, path: ObjectPath) -> TableEntry | ViewEntry | None:
        """The table or view at a path; temporary ones take precedence."""
        if path in self.temporary_tables:
            return self.temporary_tables[path]
        return self.permanent_table(path)

    def permanent_table(self, path: ObjectPath) -> TableEntry | ViewEntry | None:
        """The permanent table or view at a path."""
        catalog, database, name = path
        if catalog not in self.catalogs or database not in self.catalogs[catalog].databases:
            return None
        return self.catalogs[catalog].databases[database].tables.get(name)

    def add_table(
        self,
        path: ObjectPath,
        entry: TableEntry | ViewEntry,
        temporary: bool = False,
        replaces: bool = False,
        by_owner: bool = False,
    ) -> TableEntry | ViewEntry:
        """Adds a table or view. `replaces`: overwrites an existing one; a materialised table only with `by_owner`, that
        is, if the caller manages its job."""
        stored = replace(entry, path=path, is_temporary=temporary)
        word = "view" if isinstance(entry, ViewEntry) else "table"
        if temporary:
            if path in self.temporary_tables and not replaces:
                raise ProgramError(f"Temporary {word} {shown(path)} already exists")
            self.temporary_tables[path] = stored
            return stored
        tables = self.database(path[0], path[1]).tables
        if path[2] in tables and not replaces:
            raise ProgramError(f"Could not execute CreateTable in path {shown(path)}: the {word} already exists")
        if path[2] in tables and not by_owner:
            reject_materialized([tables[path[2]]])
        tables[path[2]] = stored
        return stored

    def drop_table(self, path: ObjectPath, temporary: bool = False, by_owner: bool = False) -> None:
        """Removes a table or view; `by_owner` as in `add_table`."""
        if temporary:
            del self.temporary_tables[path]
            return
        tables = self.database(path[0], path[1]).tables
        if not by_owner:
            reject_materialized([tables[path[2]]])
        del tables[path[2]]

    def tables(self, catalog: str, database: str) -> Iterator[TableEntry | ViewEntry]:
        """All visible tables and views of a database, by name."""
        names = dict(self.database(catalog, database).tables)
        for path, entry in self.temporary_tables.items():
            if path[:2] == (catalog, database):
                names[path[2]] = entry
        return iter([names[name] for name in sorted(names)])

    # --- functions ----------------------------------------------------------------------------------------------------

    def function(self, path: ObjectPath) -> FunctionEntry | None:
        """The function at a path: a temporary one, or that of the catalog."""
        catalog, database, name = path[0], path[1], path[2].lower()
        if (catalog, database, name) in self.temporary_functions:
            return self.temporary_functions[(catalog, database, name)]
        if catalog not in self.catalogs or database not in self.catalogs[catalog].databases:
            return None
        return self.catalogs[catalog].databases[database].functions.get(name)

    def add_function(self, path: ObjectPath, entry: FunctionEntry, temporary: bool = False) -> FunctionEntry:
        """Adds a function to a database."""
        key = (path[0], path[1], path[2].lower())
        stored = replace(entry, path=path, is_temporary=temporary)
        if temporary:
            if key in self.temporary_functions:
                raise ProgramError(f"Temporary catalog function {shown(path)} already exists.")
            self.temporary_functions[key] = stored
            return stored
        functions = self.database(path[0], path[1]).functions
        if key[2] in functions:
            raise ProgramError(f"Catalog function {shown(path)} already exists.")
        functions[key[2]] = stored
        return stored

    def add_system_function(self, name: str, entry: FunctionEntry) -> FunctionEntry:
        """Adds a temporary function without a database, which hides built-in ones."""
        stored = replace(entry, is_temporary=True, is_system=True)
        self.temporary_system_functions[name.lower()] = stored
        return stored


def reject_materialized(entries: Iterable[TableEntry | ViewEntry]) -> None:
    """Rejects the removal of a materialised table: its job would keep running without a name."""
    for entry in entries:
        if isinstance(entry, TableEntry) and entry.definition is not None:
            name = entry.path[-1]
            raise ProgramError(
                f"{name!r} is a materialized table, stored by a job. Change it by ALTER MATERIALIZED TABLE {name}, "
                f"or remove it by DROP MATERIALIZED TABLE {name}"
            )
