"""Catalogs in memory: databases of tables, views and functions; and what is temporary, which hides what is not.

The store knows paths of three parts only; a session completes what a program wrote (`PlannerSession.path_of`). It
refuses what is there already and what is not there, with Flink's sentences; whether that matters (IF EXISTS) is the
statement's affair.
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
    """Tables and views share names, as in Flink; functions have their own, whatever their case."""

    tables: dict[str, TableEntry | ViewEntry] = field(default_factory=dict)
    functions: dict[str, FunctionEntry] = field(default_factory=dict)
    comment: str | None = None
    options: Options = ()


IN_MEMORY = "generic_in_memory"
"""The type of a catalog that says none: the one that is there from the start."""


@dataclass
class Catalog:
    """Databases by name."""

    databases: dict[str, Database] = field(default_factory=dict)
    default_database: str = DEFAULT_DATABASE
    comment: str | None = None
    options: Options = ()


class CatalogStore:
    """All catalogs, and everything temporary."""

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
        """Forget a catalog and all in it."""
        for database in self.catalog(name).databases.values():
            refuse_kept(database.tables.values())
        del self.catalogs[name]

    def create_database(self, catalog: str, name: str, options: Options = (), comment: str | None = None) -> Database:
        """A new database."""
        databases = self.catalog(catalog).databases
        if name in databases:
            raise ProgramError(f"Database {name} already exists in Catalog {catalog}.")
        databases[name] = Database(comment=comment, options=options)
        return databases[name]

    def drop_database(self, catalog: str, name: str, cascade: bool = False) -> None:
        """Forget a database; one with something in it only with `cascade`."""
        database = self.database(catalog, name)
        if (database.tables or database.functions) and not cascade:
            raise ProgramError(f"Database {name} in catalog {catalog} is not empty. Drop it with CASCADE.")
        refuse_kept(database.tables.values())
        del self.catalogs[catalog].databases[name]

    # --- tables and views ---------------------------------------------------------------------------------------------

    def table(self, path: ObjectPath) -> TableEntry | ViewEntry | None:
        """The table or view at a path; what is temporary comes first."""
        if path in self.temporary_tables:
            return self.temporary_tables[path]
        return self.permanent_table(path)

    def permanent_table(self, path: ObjectPath) -> TableEntry | ViewEntry | None:
        """The table or view at a path that is not temporary."""
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
        by_keeper: bool = False,
    ) -> TableEntry | ViewEntry:
        """Enter a table or a view; `replaces`: what has the name goes, which must not be a materialised table unless
        it is done `by_keeper`, who has its job."""
        held = replace(entry, path=path, is_temporary=temporary)
        word = "view" if isinstance(entry, ViewEntry) else "table"
        if temporary:
            if path in self.temporary_tables and not replaces:
                raise ProgramError(f"Temporary {word} {shown(path)} already exists")
            self.temporary_tables[path] = held
            return held
        tables = self.database(path[0], path[1]).tables
        if path[2] in tables and not replaces:
            raise ProgramError(f"Could not execute CreateTable in path {shown(path)}: the {word} already exists")
        if path[2] in tables and not by_keeper:
            refuse_kept([tables[path[2]]])
        tables[path[2]] = held
        return held

    def drop_table(self, path: ObjectPath, temporary: bool = False, by_keeper: bool = False) -> None:
        """Forget a table or a view; `by_keeper` as of `add_table`."""
        if temporary:
            del self.temporary_tables[path]
            return
        tables = self.database(path[0], path[1]).tables
        if not by_keeper:
            refuse_kept([tables[path[2]]])
        del tables[path[2]]

    def tables(self, catalog: str, database: str) -> Iterator[TableEntry | ViewEntry]:
        """All tables and views of a database that can be named, by name."""
        names = dict(self.database(catalog, database).tables)
        for path, entry in self.temporary_tables.items():
            if path[:2] == (catalog, database):
                names[path[2]] = entry
        return iter([names[name] for name in sorted(names)])

    # --- functions ----------------------------------------------------------------------------------------------------

    def function(self, path: ObjectPath) -> FunctionEntry | None:
        """The function at a path: the temporary one, or the catalog's."""
        catalog, database, name = path[0], path[1], path[2].lower()
        if (catalog, database, name) in self.temporary_functions:
            return self.temporary_functions[(catalog, database, name)]
        if catalog not in self.catalogs or database not in self.catalogs[catalog].databases:
            return None
        return self.catalogs[catalog].databases[database].functions.get(name)

    def add_function(self, path: ObjectPath, entry: FunctionEntry, temporary: bool = False) -> FunctionEntry:
        """Enter a function of a database."""
        key = (path[0], path[1], path[2].lower())
        held = replace(entry, path=path, is_temporary=temporary)
        if temporary:
            if key in self.temporary_functions:
                raise ProgramError(f"Temporary catalog function {shown(path)} already exists.")
            self.temporary_functions[key] = held
            return held
        functions = self.database(path[0], path[1]).functions
        if key[2] in functions:
            raise ProgramError(f"Catalog function {shown(path)} already exists.")
        functions[key[2]] = held
        return held

    def add_system_function(self, name: str, entry: FunctionEntry) -> FunctionEntry:
        """Enter a temporary function that has no database and hides built-in ones."""
        held = replace(entry, is_temporary=True, is_system=True)
        self.temporary_system_functions[name.lower()] = held
        return held


def refuse_kept(entries: Iterable[TableEntry | ViewEntry]) -> None:
    """ProgramError for a materialised table: a job keeps it, which would go on with nobody to name it."""
    for entry in entries:
        if isinstance(entry, TableEntry) and entry.definition is not None:
            name = entry.path[-1]
            raise ProgramError(
                f"{name!r} is a materialized table, which a job keeps. Change it by ALTER MATERIALIZED TABLE {name}, "
                f"or remove it by DROP MATERIALIZED TABLE {name}"
            )
