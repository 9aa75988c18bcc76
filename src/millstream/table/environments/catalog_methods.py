"""Methods of table environments for catalogs, databases, tables, views and functions.

Each method builds the syntax of the equivalent SQL statement and executes it, so both have one implementation.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.common.configuration import Configuration
from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import NotAvailableError, ProgramError
from millstream.expressions.functions.registry import definitions
from millstream.expressions.user_functions import UserFunction
from millstream.graph.site import refuse
from millstream.planner.definitions import table_entry
from millstream.planner.entries import FunctionEntry, TableEntry, ViewEntry
from millstream.planner.not_yet import NO_MODELS
from millstream.planner.session import PlannerSession
from millstream.planner.statements import run
from millstream.sql.parser import parse_expression
from millstream.sql.statements import CreateCatalog, CreateTable, Drop, Statement
from millstream.sql.syntax import Name
from millstream.table.catalogs.in_memory import Catalog
from millstream.table.catalogs.objects import CatalogDescriptor
from millstream.table.module import Module, ModuleEntry
from millstream.table.schema import Schema
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.udf import AggregateFunction, TableAggregateFunction, udaf, udtaf
from millstream.table.user_functions.function_classes import UserDefinedFunction
from millstream.table.user_functions.wrappers import UserDefinedFunctionWrapper

if TYPE_CHECKING:
    from millstream.table.model_descriptor import ModelDescriptor

__all__ = ["CatalogMethods"]

_NO_JAVA = "there is no JVM. Write the function in Python, with udf, udtf or udaf, and create_temporary_function"


class CatalogMethods:
    """Lists, adds and drops an environment's catalog objects."""

    _session: PlannerSession

    def _run(self, statement: Statement) -> None:
        with at_users_line():
            run(statement, self._session)

    def _path(self, path: str) -> tuple[str, ...]:
        """Parses a path as SQL does: `catalog.database.name`, with backquotes if needed."""
        if not isinstance(path, str) or not path.strip():
            raise refuse(f"found {path!r} as a path, expected text: [catalog.][database.]name")
        if "`" not in path:
            return tuple(part.strip() for part in path.split("."))
        node = parse_expression(path)
        if not isinstance(node, Name):
            raise refuse(f"found {path!r} as a path, expected [catalog.][database.]name")
        return node.parts

    # --- catalogs and modules -----------------------------------------------------------------------------------------

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Creates a catalog from a descriptor: {'type': 'generic_in_memory'}."""
        if not isinstance(catalog_descriptor, CatalogDescriptor):
            raise refuse(
                f"create_catalog: found {catalog_descriptor!r}, expected CatalogDescriptor.of(name, configuration)"
            )
        configuration: Configuration = catalog_descriptor._configuration
        options = tuple(configuration.to_dict().items())
        self._run(CreateCatalog(catalog_name, options, catalog_descriptor._comment))

    def register_catalog(self, catalog_name: str, catalog: Catalog) -> None:
        """Registers a catalog under a name."""
        if not isinstance(catalog, Catalog):
            raise refuse(f"register_catalog: found {catalog!r}, expected a Catalog")
        if catalog_name in self._session.store.catalogs:
            raise refuse(f"register_catalog: there is a catalog {catalog_name!r} already")
        self._session.store.catalogs[catalog_name] = catalog._catalog

    def get_catalog(self, catalog_name: str) -> Catalog | None:
        """The catalog with that name; None if it does not exist."""
        catalog = self._session.store.catalogs.get(catalog_name)
        return None if catalog is None else Catalog((catalog_name, catalog, self._session))

    def list_catalogs(self) -> list[str]:
        """The names of all catalogs."""
        return sorted(self._session.store.catalogs)

    def get_current_catalog(self) -> str:
        """The catalog in which unqualified names are resolved."""
        return self._session.catalog

    def use_catalog(self, catalog_name: str) -> None:
        """Makes a catalog current."""
        with at_users_line():
            self._session.use_catalog(catalog_name)

    def list_databases(self) -> list[str]:
        """The names of the databases of the current catalog."""
        return sorted(self._session.store.catalog(self._session.catalog).databases)

    def get_current_database(self) -> str:
        """The database in which unqualified names are resolved."""
        return self._session.database

    def use_database(self, database_name: str) -> None:
        """Makes a database of the current catalog current."""
        with at_users_line():
            self._session.use_database(self._session.catalog, database_name)

    def load_module(self, module_name: str, module: Module) -> None:
        """Loads a Java module of functions."""
        raise NotAvailableError(f"load_module is not available: modules are Java objects; {_NO_JAVA}")

    def unload_module(self, module_name: str) -> None:
        """Unloads a module of functions."""
        raise NotAvailableError("unload_module is not available: the only module is 'core', with all functions")

    def use_modules(self, *module_names: str) -> None:
        """Uses the functions of these modules; the only supported module is 'core'."""
        if module_names != ("core",):
            raise refuse(f"use_modules: found {', '.join(map(repr, module_names))}, expected 'core': there is no other")

    def list_modules(self) -> list[str]:
        """The names of the modules in use."""
        return ["core"]

    def list_full_modules(self) -> list[ModuleEntry]:
        """All modules."""
        return [ModuleEntry("core", True)]

    # --- functions ----------------------------------------------------------------------------------------------------

    def create_java_temporary_system_function(self, name: str, function_class_name: str) -> None:
        """A function of Java."""
        raise NotAvailableError(f"create_java_temporary_system_function is not available: {_NO_JAVA}")

    def create_java_function(self, path: str, function_class_name: str, ignore_if_exists: bool | None = None) -> None:
        """A function of Java."""
        raise NotAvailableError(f"create_java_function is not available: {_NO_JAVA}")

    def create_java_temporary_function(self, path: str, function_class_name: str) -> None:
        """A function of Java."""
        raise NotAvailableError(f"create_java_temporary_function is not available: {_NO_JAVA}")

    def create_temporary_system_function(self, name: str, function: Any) -> None:
        """Registers a function by name, for SQL and `call`, in all databases."""
        wrapper = _wrapped("create_temporary_system_function", function)
        self._session.store.add_system_function(name, FunctionEntry(name, _known_as(name, wrapper._user_function)))

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drops a temporary system function; returns whether it existed."""
        return self._session.store.temporary_system_functions.pop(name.lower(), None) is not None

    def create_temporary_function(self, path: str, function: Any) -> None:
        """Registers a function by path, for SQL and `call`."""
        wrapper = _wrapped("create_temporary_function", function)
        full_path = self._session.path_of(self._path(path))
        with at_users_line():
            entry = FunctionEntry(full_path[-1], _known_as(full_path[-1], wrapper._user_function))
            self._session.store.add_function(full_path, entry, temporary=True)

    def drop_temporary_function(self, path: str) -> bool:
        """Drops a temporary function; returns whether it existed."""
        *home, name = self._session.path_of(self._path(path))
        return self._session.store.temporary_functions.pop((*home, name.lower()), None) is not None

    def drop_function(self, path: str) -> bool:
        """Drops a function of the catalog; returns whether it existed."""
        catalog, database, name = self._session.path_of(self._path(path))
        return self._session.store.database(catalog, database).functions.pop(name.lower(), None) is not None

    def list_user_defined_functions(self) -> list[str]:
        """The names of all user functions."""
        return sorted({entry.name.lower() for entry in self._session.functions()})

    def list_functions(self) -> list[str]:
        """The names of all functions, including built-in ones."""
        return sorted({*self.list_user_defined_functions(), *(each.name.lower() for each in definitions())})

    # --- tables and views ---------------------------------------------------------------------------------------------

    def create_temporary_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool = False) -> None:
        """Creates a table that exists as long as the environment."""
        self._run(self._definition("create_temporary_table", path, descriptor, True, ignoreIfExists))

    def create_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool = False) -> None:
        """Creates a table in a catalog."""
        self._run(self._definition("create_table", path, descriptor, False, ignoreIfExists))

    def _definition(self, method: str, path: str, descriptor: Any, temporary: bool, if_not_exists: bool) -> CreateTable:
        if not isinstance(descriptor, TableDescriptor):
            raise refuse(f"{method}: found {descriptor!r}, expected TableDescriptor.for_connector(name)….build()")
        schema = descriptor.get_schema() or Schema()
        return CreateTable(
            self._path(path),
            schema._columns,
            schema._watermarks,
            () if schema._key is None else (schema._key,),
            descriptor.get_comment(),
            tuple(descriptor.get_partition_keys()),
            options=tuple(descriptor.get_options().items()),
            temporary=temporary,
            if_not_exists=if_not_exists,
        )

    def _entry_of(self, descriptor: TableDescriptor) -> TableEntry:
        """The table of a descriptor, which is not in a catalog."""
        statement = self._definition("from_descriptor", "anonymous", descriptor, True, False)
        entry = table_entry(statement, self._session)
        connector = entry.connector or "table"
        return TableEntry(**{**vars(entry), "path": (f"*anonymous_{connector}*",)})

    def list_tables(self) -> list[str]:
        """The names of the tables and views of the current database."""
        return [entry.path[-1] for entry in self._entries()]

    def list_views(self) -> list[str]:
        """The names of the views of the current database."""
        return [entry.path[-1] for entry in self._entries() if isinstance(entry, ViewEntry)]

    def list_materialized_tables(self) -> list[str]:
        """The names of the materialized tables of the current database."""
        return [entry.path[-1] for entry in self._entries() if isinstance(entry, TableEntry) and entry.definition]

    def list_temporary_tables(self) -> list[str]:
        """The names of the temporary tables and views of the current database."""
        return [entry.path[-1] for entry in self._entries() if entry.is_temporary]

    def list_temporary_views(self) -> list[str]:
        """The names of the temporary views of the current database."""
        return [entry.path[-1] for entry in self._entries() if entry.is_temporary and isinstance(entry, ViewEntry)]

    def _entries(self) -> list[TableEntry | ViewEntry]:
        return list(self._session.store.tables(self._session.catalog, self._session.database))

    def drop_temporary_table(self, table_path: str) -> bool:
        """Drops a temporary table; returns whether it existed."""
        return self._dropped("TABLE", table_path, temporary=True)

    def drop_table(self, table_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drops a table of a catalog; returns whether it existed."""
        return self._dropped("TABLE", table_path, is_required=not ignore_if_not_exists)

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drops a temporary view; returns whether it existed."""
        return self._dropped("VIEW", view_path, temporary=True)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drops a view of a catalog; returns whether it existed."""
        return self._dropped("VIEW", view_path, is_required=not ignore_if_not_exists)

    def _dropped(self, kind: str, path: str, temporary: bool = False, is_required: bool = False) -> bool:
        full_path, store = self._session.path_of(self._path(path)), self._session.store
        entry = store.temporary_tables.get(full_path) if temporary else store.permanent_table(full_path)
        is_there = isinstance(entry, ViewEntry if kind == "VIEW" else TableEntry)
        if is_there or is_required:
            self._run(Drop(kind, full_path, temporary=temporary))
        return is_there

    # --- models -------------------------------------------------------------------------------------------------------

    def list_models(self) -> list[str]:
        """Always empty: models are not supported."""
        return []

    def list_temporary_models(self) -> list[str]:
        """Always empty: models are not supported."""
        return []

    def create_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool | None = None
    ) -> None:
        """Creates a model of a Java provider."""
        raise NotAvailableError(f"create_model is not available: {NO_MODELS}")

    def create_temporary_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool | None = None
    ) -> None:
        """Creates a temporary model of a Java provider."""
        raise NotAvailableError(f"create_temporary_model is not available: {NO_MODELS}")

    def drop_temporary_model(self, model_path: str) -> bool:
        """Drops a temporary model, none of which can exist."""
        return False

    def drop_model(self, model_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Drops a model, none of which can exist."""
        if not ignore_if_not_exists:
            raise ProgramError(f"there is no model {model_path!r}: {NO_MODELS}")
        return False


def _known_as(name: str, function: UserFunction) -> UserFunction:
    """Gives an anonymous function its registered name, which identifies its state."""
    is_nameless = function.name == "<lambda>" or isinstance(function.function, functools.partial)
    return replace(function, name=name) if is_nameless else function


def _wrapped(method: str, function: Any) -> UserDefinedFunctionWrapper:
    """The wrapper of a function, as created by `udf` and similar; an aggregate declares its types itself."""
    if isinstance(function, UserDefinedFunctionWrapper):
        return function
    if isinstance(function, AggregateFunction):
        made: UserDefinedFunctionWrapper = udaf(function)
        return made
    if isinstance(function, TableAggregateFunction):
        made = udtaf(function)
        return made
    advice = "udf(f, result_type=...)"
    if isinstance(function, UserDefinedFunction) or callable(function):
        raise refuse(f"{method}: found {function!r}, expected a wrapper made by {advice}, which declares its types")
    raise refuse(f"{method}: found {function!r}, expected a function made by {advice}, udtf(...) or udaf(...)")
