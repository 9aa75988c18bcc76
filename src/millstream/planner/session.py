"""The context in which statements are read: catalogs, the current catalog and database, options, and the time zone.

One session per TableEnvironment. It is the only mutable object in `planner`: USE and SET change it; DDL changes its
store. Plans do not reference it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from millstream.errors import ProgramError, did_you_mean
from millstream.planner.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE, CatalogStore
from millstream.planner.entries import FunctionEntry, ObjectPath, TableEntry, ViewEntry

__all__ = ["PlannerSession"]


@dataclass
class PlannerSession:
    """The context of name resolution."""

    store: CatalogStore = field(default_factory=CatalogStore)
    catalog: str = DEFAULT_CATALOG
    database: str = DEFAULT_DATABASE
    config: MutableMapping[str, str] = field(default_factory=dict)
    job_table: Callable[[ObjectPath], TableEntry | None] | None = None
    """Looks up a table of a job (catalog, job, table), if jobs can be queried."""
    job_databases: Callable[[str], list[str]] = lambda catalog: []
    """The jobs that are databases of a catalog."""
    job_tables: Callable[[str, str], list[str] | None] = lambda catalog, job: None
    """The tables of a job in a catalog; None if there is no such job."""

    @property
    def zone(self) -> str:
        """The session's time zone."""
        zone = self.config.get("table.local-time-zone", "UTC")
        return "UTC" if zone == "default" else zone

    @property
    def is_batch(self) -> bool:
        """Whether queries run over bounded input, to completion."""
        return self.config.get("execution.runtime-mode", "STREAMING").upper() == "BATCH"

    def at(self, catalog: str, database: str) -> PlannerSession:
        """A copy with a different current catalog and database, for the query of a view."""
        return replace(self, catalog=catalog, database=database)

    def use_catalog(self, name: str) -> None:
        """Makes a catalog current, with its default database."""
        self.database = self.store.catalog(name).default_database
        self.catalog = name

    def use_database(self, catalog: str, name: str) -> None:
        """Makes a database current."""
        if self.job_tables(catalog, name) is None:
            self.store.database(catalog, name)
        self.catalog, self.database = catalog, name

    def path_of(self, parts: Sequence[str]) -> ObjectPath:
        """The three-part path for a name of one to three parts."""
        if not 1 <= len(parts) <= 3:
            raise ProgramError(f"'{'.'.join(parts)}' has {len(parts)} parts: a path is [catalog.][database.]name")
        return ((self.catalog, self.database)[: 3 - len(parts)]) + tuple(parts)

    def find_table(self, parts: Sequence[str]) -> TableEntry | ViewEntry | None:
        """The table or view with a name."""
        if not 1 <= len(parts) <= 3:
            return None
        path = self.path_of(parts)
        entry = self.store.table(path)
        return entry if entry is not None or self.job_table is None else self.job_table(path)

    def table_hint(self, parts: Sequence[str]) -> str:
        """A hint that suggests the table with the most similar name."""
        if len(parts) > 3:
            return " A path is [catalog.][database.]name."
        path = self.path_of(parts)
        if path[0] not in self.store.catalogs:
            return f" There is no catalog '{path[0]}'.{did_you_mean(path[0], self.store.catalogs)}"
        databases = self.store.catalogs[path[0]].databases
        if path[1] not in databases:
            return f" There is no database '{path[1]}' in '{path[0]}'.{did_you_mean(path[1], databases)}"
        names = [entry.path[-1] for entry in self.store.tables(path[0], path[1])]
        near = did_you_mean(path[2], names)
        if near:
            return near
        same = next((name for name in names if name.lower() == path[2].lower()), None)
        if same:
            return f" Did you mean {same!r}? Names are case sensitive."
        return f" There {'is' if len(names) == 1 else 'are'}: {', '.join(sorted(names)[:10])}." if names else ""

    def find_function(self, name: str, path: Sequence[str] = ()) -> FunctionEntry | None:
        """The user function with a name, except temporary system functions."""
        return self.store.function(self.path_of((*path, name)))

    def functions(self) -> Iterator[FunctionEntry]:
        """All user functions that can be called without a path."""
        yield from self.store.temporary_system_functions.values()
        for path, entry in self.store.temporary_functions.items():
            if path[:2] == (self.catalog, self.database):
                yield entry
        yield from self.store.database(self.catalog, self.database).functions.values()

    def find_system_function(self, name: str) -> FunctionEntry | None:
        """The temporary system function with a name; it takes precedence over built-in functions."""
        return self.store.temporary_system_functions.get(name.lower())
