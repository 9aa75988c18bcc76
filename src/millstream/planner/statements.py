"""Executes catalog statements, such as DDL and SHOW: takes syntax and a session, returns rows to display.

INSERT and CREATE TABLE AS return relations (`bind_insert`, `bind_create_as`), which the caller optimises and lowers.
Statements about jobs, jars, options or the client are not executed here: `run` returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.errors import NotAvailableError, ProgramError, SqlError, did_you_mean
from millstream.expressions.row_expressions import Column
from millstream.planner.alterations import alter
from millstream.planner.binder import bind_query
from millstream.planner.binding.conflicts import one_row_per_key
from millstream.planner.binding.expressions import ExpressionBinder
from millstream.planner.binding.hints import hinted_options
from millstream.planner.binding.projections import project, renamed
from millstream.planner.binding.scope import Scope
from millstream.planner.catalog import IN_MEMORY
from millstream.planner.definitions import table_entry
from millstream.planner.entries import ColumnEntry, FunctionEntry, TableEntry, ViewEntry, shown
from millstream.planner.insert_places import InsertPlaces
from millstream.planner.listings import describe, show
from millstream.planner.not_yet import NO_MODELS
from millstream.planner.relations import Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.sinks import into_table
from millstream.planner.statement_result import OK, StatementResult
from millstream.sql import statements as sql
from millstream.sql.places import problem

__all__ = ["StatementResult", "bind_create_as", "bind_insert", "run"]


def run(statement: sql.Statement, session: PlannerSession) -> StatementResult | None:
    """Executes a definition, USE, SHOW or DESCRIBE. Returns None if the statement does not concern the catalog."""
    act = _ACTS.get(type(statement))
    if act is None:
        return None
    try:
        return act(statement, session)
    except SqlError:
        raise
    except ProgramError as error:
        # The store's errors have no position: use that of the statement.
        raise problem(error.message, statement) from None


# --- rows into tables -------------------------------------------------------------------------------------------------


def bind_insert(statement: sql.Insert, session: PlannerSession) -> Sink:
    """INSERT INTO: the query, cast to the table's columns, and the table."""
    entry, places, name = session.find_table(statement.table), InsertPlaces(statement), ".".join(statement.table)
    if entry is None:
        hint = session.table_hint(statement.table)
        raise problem(f"Cannot find table '{name}' to insert into.{hint}", places.table())
    if isinstance(entry, ViewEntry):
        raise problem(f"'{name}' is a view: rows cannot be written to it", places.table())
    if entry.definition is not None:
        raise problem(f"'{name}' is a materialized table: only its query writes rows to it", places.table())
    _check_conflicts(statement, entry)
    binder = ExpressionBinder(Scope(), session, "PARTITION")
    partition = {name: binder.bind(value) for name, value in statement.partition}
    if hinted := hinted_options(statement.hints):
        entry = with_options(entry, dict(hinted))
    relation = bind_query(statement.query, session)
    sink = into_table(relation, entry, places, statement.columns, partition, statement.overwrite)
    if statement.on_conflict not in ("NOTHING", "ERROR"):  # sinks by key deduplicate themselves
        return sink
    return replace(sink, input=one_row_per_key(sink.input, entry, statement))


def _check_conflicts(statement: sql.Insert, entry: TableEntry) -> None:
    """Rejects ON CONFLICT for tables without a key."""
    if statement.on_conflict is None:
        return
    if not entry.primary_key:
        words = "has no PRIMARY KEY, so its rows cannot conflict. Declare one, or leave ON CONFLICT out"
        raise problem(f"ON CONFLICT: '{'.'.join(statement.table)}' {words}", statement)


def with_options(entry: TableEntry, options: dict[str, str]) -> TableEntry:
    """The table with a hint's options."""
    return replace(entry, options=tuple((dict(entry.options) | options).items()))


def bind_create_as(statement: sql.CreateTable, session: PlannerSession) -> Sink | None:
    """CREATE TABLE … AS query: creates the table if the statement is valid, and returns the sink to run; None if the
    table exists already. Columns that the query does not provide are NULL."""
    assert statement.query is not None
    if _exists_already(statement, session):
        return None
    relation = _named_columns(bind_query(statement.query, session), statement)
    columns = tuple(ColumnEntry(field.name, field.type) for field in relation.schema.fields)
    entry = table_entry(statement, session, columns)
    path = session.path_of(statement.name)
    held = replace(entry, path=path, is_temporary=statement.temporary)
    sink = into_table(relation, held, InsertPlaces(statement), relation.schema.names)
    session.store.add_table(path, held, statement.temporary, statement.or_replace)
    return sink


def _named_columns(relation: Relation, statement: sql.CreateTable) -> Relation:
    if not statement.named_columns:
        return relation
    names = relation.schema.names
    if set(statement.named_columns) != set(names):
        return renamed(relation, statement.named_columns)
    # The query's names are in a different order: reorder its columns.
    chosen = [names.index(name) for name in statement.named_columns]
    expressions = [Column(relation.schema.fields[at].type, at) for at in chosen]
    return project(relation, expressions, list(statement.named_columns))


# --- definitions ------------------------------------------------------------------------------------------------------


def _exists_already(statement: sql.CreateTable | sql.CreateView, session: PlannerSession) -> bool:
    """Whether IF NOT EXISTS makes the statement a no-op."""
    path = session.path_of(statement.name)
    existing = session.store.temporary_tables.get(path) if statement.temporary else session.store.permanent_table(path)
    return statement.if_not_exists and existing is not None


def _create_table(statement: sql.CreateTable, session: PlannerSession) -> StatementResult | None:
    if statement.query is not None:
        return None
    if _exists_already(statement, session):
        return OK
    entry = table_entry(statement, session)
    session.store.add_table(session.path_of(statement.name), entry, statement.temporary, statement.or_replace)
    return OK


def _create_view(statement: sql.CreateView, session: PlannerSession) -> StatementResult:
    if _exists_already(statement, session):
        return OK
    relation = bind_query(statement.query, session)
    if statement.columns and len(statement.columns) != len(relation.schema):
        counts = f"VIEW definition and input fields not match: Def fields: {len(statement.columns)}; "
        raise problem(f"{counts}Input fields: {len(relation.schema)}.", statement)
    home = (session.catalog, session.database)
    names = statement.columns or relation.schema.names
    entry = ViewEntry(
        statement.text, statement.query, None, names, home, statement.comment, selected=relation.schema.names
    )
    path = session.path_of(statement.name)
    session.store.add_table(path, entry, statement.temporary, statement.or_replace)
    return OK


def _create_function(statement: sql.CreateFunction, session: PlannerSession) -> StatementResult:
    name = statement.name[-1]
    if statement.language.upper() != "PYTHON":
        raise problem(
            f"the function {name} is written in {statement.language}, but Millstream has no JVM. Write it in Python: "
            "CREATE FUNCTION … AS 'module.function' LANGUAGE PYTHON",
            statement,
        )
    entry = FunctionEntry(name, None, statement.class_name, "PYTHON")
    if statement.system:
        if statement.if_not_exists and session.find_system_function(name) is not None:
            return OK
        session.store.add_system_function(name, entry)
        return OK
    path = session.path_of(statement.name)
    if statement.if_not_exists and session.store.function(path) is not None:
        return OK
    session.store.add_function(path, entry, statement.temporary)
    return OK


def _create_catalog(statement: sql.CreateCatalog, session: PlannerSession) -> StatementResult:
    if statement.if_not_exists and statement.name in session.store.catalogs:
        return OK
    kind = dict(statement.options).get("type")
    if kind == "jobs" and "stores" not in dict(statement.options):
        raise problem("CREATE CATALOG of 'type' = 'jobs' needs 'stores': the folder with the jobs' stores", statement)
    if kind not in (IN_MEMORY, "jobs"):
        actual = f"'type' = '{kind}'" if kind else "no 'type'"
        raise problem(f"CREATE CATALOG has {actual}: there are 'generic_in_memory' and 'jobs'", statement)
    session.store.create_catalog(statement.name, statement.options, statement.comment)
    return OK


def _create_database(statement: sql.CreateDatabase, session: PlannerSession) -> StatementResult:
    catalog, name = _database(statement.name, session)
    if statement.if_not_exists and name in session.store.catalog(catalog).databases:
        return OK
    session.store.create_database(catalog, name, statement.options, statement.comment)
    return OK


def _database(parts: tuple[str, ...], session: PlannerSession) -> tuple[str, str]:
    return (parts[0], parts[1]) if len(parts) == 2 else (session.catalog, parts[0])


# --- DROP, USE --------------------------------------------------------------------------------------------------------


def _drop(statement: sql.Drop, session: PlannerSession) -> StatementResult:
    drop = _DROPS.get(statement.kind)
    if drop is None:
        raise NotAvailableError(f"DROP {statement.kind} is not available: {NO_MODELS}")
    drop(statement, session)
    return OK


def _drop_table(statement: sql.Drop, session: PlannerSession) -> None:
    path = session.path_of(statement.name)
    store, word = session.store, statement.kind.lower()
    wanted = ViewEntry if statement.kind == "VIEW" else TableEntry
    temporary = store.temporary_tables.get(path)
    existing = temporary if statement.temporary else store.permanent_table(path)
    if not statement.temporary and isinstance(temporary, wanted):
        raise problem(
            f"Temporary {word} with identifier '{shown(path)}' exists. Drop it first before removing the permanent "
            f"{word}: DROP TEMPORARY {statement.kind}",
            statement,
        )
    if not isinstance(existing, wanted):
        if statement.if_exists:
            return
        before = "Temporary " if statement.temporary else ""
        hint = session.table_hint(statement.name)
        name = f"{before}{word}" if before else word.capitalize()
        if existing is not None:
            other = "VIEW" if isinstance(existing, ViewEntry) else "TABLE"
            hint = f" '{path[-1]}' is a {other.lower()}: DROP {other}."
        raise problem(f"{name} with identifier '{'.'.join(path)}' does not exist.{hint}", statement)
    store.drop_table(path, statement.temporary)


def _drop_function(statement: sql.Drop, session: PlannerSession) -> None:
    store, name = session.store, statement.name[-1].lower()
    path = session.path_of(statement.name)
    key = (path[0], path[1], name)
    functions: dict[Any, FunctionEntry]
    at: Any
    if statement.system:
        functions, at = store.temporary_system_functions, name
    elif statement.temporary:
        functions, at = store.temporary_functions, key
    else:
        functions, at = store.database(path[0], path[1]).functions, name
    if at not in functions:
        if statement.if_exists:
            return
        known = [entry.name for entry in functions.values()]
        raise problem(f"Function {shown(path)} does not exist.{did_you_mean(name, known)}", statement)
    del functions[at]


def _drop_catalog(statement: sql.Drop, session: PlannerSession) -> None:
    name = statement.name[-1]
    if statement.if_exists and name not in session.store.catalogs:
        return
    if name == session.catalog:
        raise problem("Cannot drop a catalog which is currently in use.", statement)
    session.store.drop_catalog(name)


def _drop_database(statement: sql.Drop, session: PlannerSession) -> None:
    catalog, name = _database(statement.name, session)
    if statement.if_exists and name not in session.store.catalog(catalog).databases:
        return
    if (catalog, name) == (session.catalog, session.database):
        raise problem("Cannot drop a database which is currently in use.", statement)
    session.store.drop_database(catalog, name, statement.cascade)


def _use(statement: sql.Use, session: PlannerSession) -> StatementResult:
    if statement.kind == "CATALOG":
        session.use_catalog(statement.names[0])
    elif statement.kind == "DATABASE":
        session.use_database(*_database(statement.names, session))
    return OK


_DROPS: dict[str, Callable[[sql.Drop, PlannerSession], None]] = {
    "TABLE": _drop_table,
    "VIEW": _drop_table,
    "FUNCTION": _drop_function,
    "CATALOG": _drop_catalog,
    "DATABASE": _drop_database,
}
_ACTS: dict[type, Callable[[Any, PlannerSession], StatementResult | None]] = {
    sql.CreateTable: _create_table,
    sql.CreateView: _create_view,
    sql.CreateFunction: _create_function,
    sql.CreateCatalog: _create_catalog,
    sql.CreateDatabase: _create_database,
    sql.Drop: _drop,
    sql.Alter: alter,
    sql.Use: _use,
    sql.Show: show,
    sql.Describe: describe,
}
