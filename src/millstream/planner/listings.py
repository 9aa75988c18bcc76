"""SHOW and DESCRIBE: lists catalog objects, as rows with Flink's column names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from millstream.errors import LATER, NotYetError, did_you_mean
from millstream.expressions.functions.registry import definitions
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.sources import expand_view
from millstream.planner.catalog import IN_MEMORY
from millstream.planner.definitions import entry_schema
from millstream.planner.entries import ColumnEntry, TableEntry, ViewEntry, shown
from millstream.planner.relations import Field
from millstream.planner.session import PlannerSession
from millstream.planner.statement_result import StatementResult, text_rows
from millstream.planner.table_definitions import table_definition, table_factory
from millstream.redaction import redact_statement, redacted_options
from millstream.sql.places import problem
from millstream.sql.statements import Describe, Distribution, Show
from millstream.sql.writing import text_literal

__all__ = ["create_table_text", "describe", "show"]

_DESCRIBED = ("name", "type", "null", "key", "extras", "watermark")


def show(statement: Show, session: PlannerSession) -> StatementResult | None:
    """Executes SHOW for catalog objects; None for jobs and other objects."""
    lister = _LISTS.get(statement.kind)
    if lister is None:
        return None
    return lister(statement, session)


def _matching(names: Iterable[str], statement: Show) -> list[str]:
    """The names that match LIKE or ILIKE."""
    if statement.like is None:
        return list(names)
    parts = {"%": ".*", "_": "."}
    pattern = "".join(parts.get(letter) or re.escape(letter) for letter in statement.like)
    compiled = re.compile(pattern, re.DOTALL | (re.IGNORECASE if statement.ignores_case else 0))
    return [name for name in names if bool(compiled.fullmatch(name)) != statement.negated]


def _listed(column: str, names: Iterable[str], statement: Show) -> StatementResult:
    return text_rows([column], [(name,) for name in _matching(names, statement)])


def _home(statement: Show, session: PlannerSession) -> tuple[str, str]:
    parts = statement.within
    if len(parts) == 2:
        return parts[0], parts[1]
    return (session.catalog, parts[0]) if parts else (session.catalog, session.database)


def _tables(statement: Show, session: PlannerSession) -> StatementResult:
    home = _home(statement, session)
    of_job = session.job_tables(*home)
    if of_job is not None and home[1] not in session.store.catalog(home[0]).databases:
        return (
            _listed("view name", [], statement)
            if statement.kind == "VIEWS"
            else _listed("table name", of_job, statement)
        )
    entries = session.store.tables(*home)
    if statement.kind == "VIEWS":
        return _listed("view name", (each.path[-1] for each in entries if isinstance(each, ViewEntry)), statement)
    return _listed("table name", (each.path[-1] for each in entries), statement)


def _databases(statement: Show, session: PlannerSession) -> StatementResult:
    catalog = statement.within[0] if statement.within else session.catalog
    names = {*session.store.catalog(catalog).databases, *session.job_databases(catalog)}
    return _listed("database name", sorted(names), statement)


def _functions(statement: Show, session: PlannerSession) -> StatementResult:
    names = {entry.name for entry in session.functions()}
    if not statement.user:
        names |= {each.name.lower() for each in definitions() if each.name[0].isalpha() and " " not in each.name}
    return _listed("function name", sorted(names), statement)


def _modules(statement: Show, session: PlannerSession) -> StatementResult:
    if statement.full:
        return text_rows(["module name", "used"], [("core", True)], ["used"])
    return _listed("module name", ["core"], statement)


def _existing_table(
    parts: tuple[str, ...], session: PlannerSession, statement: Show | Describe
) -> TableEntry | ViewEntry:
    entry = session.find_table(parts)
    if entry is None:
        name = ".".join(session.path_of(parts))
        raise problem(
            f"Tables or views with the identifier '{name}' doesn't exist.{session.table_hint(parts)}", statement
        )
    return entry


def _columns(statement: Show, session: PlannerSession) -> StatementResult:
    result = _described(_existing_table(statement.name or statement.within, session, statement), session)
    wanted = set(_matching([row[0] for row in result.rows], statement))
    return StatementResult(result.schema, tuple(row for row in result.rows if row[0] in wanted))


def describe(statement: Describe, session: PlannerSession) -> StatementResult | None:
    """Executes DESCRIBE for a table, catalog, database or function."""
    if statement.kind == "TABLE":
        return _described(_existing_table(statement.name, session, statement), session)
    if statement.kind == "CATALOG":
        catalog = session.store.catalog(statement.name[0])
        kind = dict(catalog.options).get("type", IN_MEMORY)
        rows = [("name", statement.name[0]), ("type", kind), ("comment", catalog.comment or "")]
        return text_rows(["info name", "info value"], rows)
    if statement.kind == "DATABASE":
        parts = statement.name if len(statement.name) == 2 else (session.catalog, *statement.name)
        database = session.store.database(*parts)
        return text_rows(["info name", "info value"], [("name", parts[1]), ("comment", database.comment or "")])
    if statement.kind == "JOB":
        return None
    instead = "SHOW FUNCTIONS, and EXPLAIN of a query that calls it" if statement.kind == "FUNCTION" else ""
    raise NotYetError.of(f"DESCRIBE {statement.kind}", LATER, instead)


def _described(entry: TableEntry | ViewEntry, session: PlannerSession) -> StatementResult:
    if isinstance(entry, ViewEntry):
        fields = expand_view(entry, QueryContext(session)).schema.fields
        plain = [(each.name, _type_text(each), each.type.is_nullable, None, None, None) for each in fields]
        return text_rows(_DESCRIBED, plain, ["null"])
    key = f"PRI({', '.join(entry.primary_key)})" if entry.primary_key else None
    rows: list[tuple[object, ...]] = []
    for column, field in zip(entry.columns, entry_schema(entry, session).fields, strict=True):
        watermark = entry.watermark.text if entry.watermark and entry.watermark.column == column.name else None
        of_key = key if column.name in entry.primary_key else None
        rows.append((column.name, _type_text(field), field.type.is_nullable, of_key, _extras(column), watermark))
    names = [*_DESCRIBED]
    if any(column.comment for column in entry.columns):
        rows = [(*row, column.comment) for row, column in zip(rows, entry.columns, strict=True)]
        names.append("comment")
    return text_rows(names, rows, ["null"])


def _type_text(field: Field) -> str:
    return f"{field.type.nullable()}{f' *{field.time.value}*' if field.time else ''}"


def _extras(column: ColumnEntry) -> str | None:
    if column.is_computed:
        return f"AS {column.text}"
    if column.metadata is None:
        return None
    key = f" FROM '{column.metadata}'" if column.metadata != column.name else ""
    return f"METADATA{key}{' VIRTUAL' if column.is_virtual else ''}"


# --- SHOW CREATE ------------------------------------------------------------------------------------------------------


def _show_create(statement: Show, session: PlannerSession) -> StatementResult:
    entry = _existing_table(statement.name, session, statement)
    wanted = ViewEntry if statement.kind == "CREATE VIEW" else TableEntry
    if not isinstance(entry, wanted):
        word = "view" if isinstance(entry, ViewEntry) else "table"
        raise problem(f"SHOW {statement.kind}: {shown(entry.path)} is a {word}: SHOW CREATE {word.upper()}", statement)
    text = create_table_text(entry) if isinstance(entry, TableEntry) else create_view_text(entry)
    return text_rows(["result"], [(text,)])


def _show_create_catalog(statement: Show, session: PlannerSession) -> StatementResult:
    """The statement that creates a catalog."""
    catalog = session.store.catalog(statement.name[0])
    comment = f"\nCOMMENT {text_literal(catalog.comment)}" if catalog.comment else ""
    options = _options_text({"type": IN_MEMORY} | dict(catalog.options))
    return text_rows(["result"], [(f"CREATE CATALOG {shown(statement.name)}{comment}\n{options}",)])


def _options_text(options: Mapping[str, str], *, with_secrets: bool = False) -> str:
    shown_options = (options if with_secrets else redacted_options(options)).items()
    lines = ",\n".join(f"  {text_literal(name)} = {text_literal(value)}" for name, value in shown_options)
    return f"WITH (\n{lines}\n)\n"


def create_view_text(entry: ViewEntry) -> str:
    """The statement that creates a view."""
    word = "TEMPORARY VIEW" if entry.is_temporary else "VIEW"
    names = ", ".join(shown((name,)) for name in entry.names)
    comment = f"\nCOMMENT {text_literal(entry.comment)}" if entry.comment else ""
    return f"CREATE {word} {shown(entry.path)}({names}){comment}\nAS {redact_statement(entry.text)}\n"


def create_table_text(entry: TableEntry, *, with_secrets: bool = False) -> str:
    """The statement that creates a table. `with_secrets`: for execution by another process, never for display."""
    lines = [f"  {_column_text(column)}" for column in entry.columns]
    if entry.watermark is not None:
        lines.append(f"  WATERMARK FOR {shown((entry.watermark.column,))} AS {entry.watermark.text}")
    if entry.primary_key:
        names = ", ".join(shown((name,)) for name in entry.primary_key)
        lines.append(f"  CONSTRAINT {shown((entry.key_name or '',))} PRIMARY KEY ({names}) NOT ENFORCED")
    word = "TEMPORARY TABLE" if entry.is_temporary else "TABLE"
    text = f"CREATE {word} {shown(entry.path)} (\n" + ",\n".join(lines) + "\n)"
    if entry.comment:
        text += f" COMMENT {text_literal(entry.comment)}"
    if entry.distribution is not None:
        text += f"\nDISTRIBUTED {_distribution_text(entry.distribution)}"
    if entry.partition_keys:
        text += "\nPARTITIONED BY (" + ", ".join(shown((name,)) for name in entry.partition_keys) + ")"
    return f"{text}\n{_options_text(dict(entry.options), with_secrets=with_secrets)}"


def _distribution_text(distribution: Distribution) -> str:
    names = ", ".join(shown((name,)) for name in distribution.columns)
    by = [f"BY {distribution.kind or ''}({names})"] if names else []
    into = [f"INTO {distribution.buckets} BUCKETS"] if distribution.buckets is not None else []
    return " ".join(by + into)


def _column_text(column: ColumnEntry) -> str:
    comment = f" COMMENT {text_literal(column.comment)}" if column.comment else ""
    if column.is_computed:
        return f"{shown((column.name,))} AS {column.text}{comment}"
    extras = f" {_extras(column)}" if column.metadata is not None else ""
    type_ = "VARCHAR(2147483647)" if column.type.nullable().sql == "STRING" else column.type.sql
    nulls = "" if column.type.is_nullable else " NOT NULL"
    return f"{shown((column.name,))} {type_}{nulls}{extras}{comment}"


def _partitions(statement: Show, session: PlannerSession) -> StatementResult:
    """SHOW PARTITIONS: `day=2026-11-16/hour=7`, restricted to the values in PARTITION."""
    entry = _existing_table(statement.name, session, statement)
    name = ".".join(statement.name)
    if not isinstance(entry, TableEntry) or not entry.partition_keys:
        raise problem(f"Table {name} is not partitioned: it has no PARTITIONED BY", statement)
    wanted = {key: str(getattr(value, "value", value)) for key, value in statement.partition}
    for key in wanted:
        if key not in entry.partition_keys:
            hint = did_you_mean(key, entry.partition_keys)
            raise problem(
                f"'{key}' is not a partition column of {name}: {', '.join(entry.partition_keys)}.{hint}", statement
            )
    try:
        partitions = table_factory(entry).partitions(table_definition(entry, session))
    except NotImplementedError:
        raise problem(
            f"partitions of '{entry.connector}' cannot be listed: only those of 'filesystem'", statement
        ) from None
    chosen = [each for each in partitions if all(each[key] == value for key, value in wanted.items())]
    return text_rows(["partition name"], [("/".join(f"{key}={each[key]}" for key in each),) for each in chosen])


_LISTS: dict[str, Callable[[Show, PlannerSession], StatementResult]] = {
    "CATALOGS": lambda statement, session: _listed("catalog name", sorted(session.store.catalogs), statement),
    "DATABASES": _databases,
    "TABLES": _tables,
    "VIEWS": _tables,
    "FUNCTIONS": _functions,
    "COLUMNS": _columns,
    "PARTITIONS": _partitions,
    "MODULES": _modules,
    # Always empty: these are Java features.
    "JARS": lambda statement, session: _listed("jars", [], statement),
    "PROCEDURES": lambda statement, session: _listed("procedure name", [], statement),
    "MODELS": lambda statement, session: _listed("model name", [], statement),
    "CURRENT CATALOG": lambda statement, session: text_rows(["current catalog name"], [(session.catalog,)]),
    "CURRENT DATABASE": lambda statement, session: text_rows(["current database name"], [(session.database,)]),
    "CREATE CATALOG": _show_create_catalog,
    "CREATE TABLE": _show_create,
    "CREATE VIEW": _show_create,
}
