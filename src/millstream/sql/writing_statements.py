"""Statements as text, added to `written`. Tables are written over several lines, like SHOW CREATE TABLE."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.sql.statements import (
    Alter,
    Alteration,
    AnalyzeTable,
    ColumnDefinition,
    CompilePlan,
    CreateCatalog,
    CreateConnection,
    CreateDatabase,
    CreateFunction,
    CreateModel,
    CreateTable,
    CreateView,
    Distribution,
    Drop,
    Execute,
    Explain,
    Insert,
    KeyDefinition,
    LikeClause,
    Modify,
    Options,
    QueryStatement,
    StatementSet,
    WatermarkDefinition,
)
from millstream.sql.syntax import Expression
from millstream.sql.writing_expressions import commas, name_text, path_text, text_literal, written
from millstream.sql.writing_queries import hints_text

__all__ = ["joined_words", "options_text", "partition_text", "with_text"]


def joined_words(*parts: str | bool | None) -> str:
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _names(names: Iterable[str]) -> str:
    return f"({commas(map(name_text, names))})"


def _enforced(is_enforced: bool) -> str:
    return "ENFORCED" if is_enforced else "NOT ENFORCED"


def options_text(options: Options) -> str:
    """('key' = 'value', …), one per line if there are several."""
    pairs = [f"{text_literal(key)} = {text_literal(value)}" for key, value in options]
    if len(pairs) < 2:
        return f"({commas(pairs)})"
    return "(\n  " + ",\n  ".join(pairs) + "\n)"


def with_text(options: Options) -> str:
    return f"WITH {options_text(options)}" if options else ""


def _comment(comment: str | None) -> str:
    return "" if comment is None else f"COMMENT {text_literal(comment)}"


def partition_text(values: tuple[tuple[str, Expression], ...]) -> str:
    pairs = [f"{name_text(name)} = {written(value)}" for name, value in values]
    return f"PARTITION ({commas(pairs)})" if pairs else ""


# --- tables -----------------------------------------------------------------------------------------------------------


@written.register
def _column(node: ColumnDefinition) -> str:
    if node.expression is not None:
        return joined_words(name_text(node.name), "AS", written(node.expression), _comment(node.comment))
    metadata = ""
    if node.metadata is not None:
        metadata = "METADATA" + (f" FROM {text_literal(node.metadata)}" if node.metadata else "")
        metadata += " VIRTUAL" if node.is_virtual else ""
    key = f"PRIMARY KEY {_enforced(node.is_enforced)}" if node.is_primary_key else ""
    type_text = "" if node.type is None else written(node.type)
    return joined_words(name_text(node.name), type_text, metadata, key, _comment(node.comment))


@written.register
def _watermark(node: WatermarkDefinition) -> str:
    return f"WATERMARK FOR {path_text(node.column)} AS {written(node.expression)}"


@written.register
def _key(node: KeyDefinition) -> str:
    constraint = "" if node.name is None else f"CONSTRAINT {name_text(node.name)}"
    kind = "PRIMARY KEY" if node.is_primary else "UNIQUE"
    return joined_words(constraint, kind, _names(node.columns), _enforced(node.enforced))


@written.register
def _distribution(node: Distribution) -> str:
    by = f"BY {node.kind or ''}{_names(node.columns)}" if node.columns else ""
    return joined_words(by, f"INTO {node.buckets} BUCKETS" if node.buckets is not None else "")


@written.register
def _like(node: LikeClause) -> str:
    rules = " ".join(f"{how} {what}" for how, what in node.options)
    return joined_words("LIKE", path_text(node.table), f"({rules})" if rules else "")


@written.register
def _create_table(node: CreateTable) -> str:
    kind = "MATERIALIZED TABLE" if node.materialized else "TABLE"
    elements = [*map(name_text, node.named_columns)]
    elements += [written(each) for group in (node.columns, node.watermarks, node.keys) for each in group]
    parts = [
        joined_words(
            "CREATE",
            "OR REPLACE" if node.or_replace else "OR ALTER" if node.or_alter else "",
            node.temporary and "TEMPORARY",
            kind,
            node.if_not_exists and "IF NOT EXISTS",
            path_text(node.name),
            "(\n  " + ",\n  ".join(elements) + "\n)" if elements else "",
        ),
        _comment(node.comment),
        f"DISTRIBUTED {written(node.distribution)}" if node.distribution is not None else "",
        f"PARTITIONED BY {_names(node.partitioned_by)}" if node.partitioned_by else "",
        with_text(node.options),
        f"FRESHNESS = {written(node.freshness)}" if node.freshness is not None else "",
        f"REFRESH_MODE = {node.refresh_mode}" if node.refresh_mode else "",
        written(node.like) if node.like is not None else "",
        f"AS {written(node.query)}" if node.query is not None else "",
    ]
    return "\n".join(part for part in parts if part)


@written.register
def _create_view(node: CreateView) -> str:
    return joined_words(
        "CREATE",
        node.or_replace and "OR REPLACE",
        node.temporary and "TEMPORARY",
        "VIEW",
        node.if_not_exists and "IF NOT EXISTS",
        path_text(node.name),
        _names(node.columns) if node.columns else "",
        _comment(node.comment),
        "AS",
        node.text or written(node.query),
    )


@written.register
def _create_function(node: CreateFunction) -> str:
    jars = commas(f"JAR {text_literal(each)}" for each in node.jars)
    return joined_words(
        "CREATE",
        node.temporary and "TEMPORARY",
        node.system and "SYSTEM",
        "FUNCTION",
        node.if_not_exists and "IF NOT EXISTS",
        path_text(node.name),
        f"AS {text_literal(node.class_name)} LANGUAGE {node.language}",
        f"USING {jars}" if jars else "",
        with_text(node.options),
    )


@written.register
def _create_catalog(node: CreateCatalog) -> str:
    exists = node.if_not_exists and "IF NOT EXISTS"
    return joined_words("CREATE CATALOG", exists, name_text(node.name), _comment(node.comment), with_text(node.options))


@written.register
def _create_database(node: CreateDatabase) -> str:
    exists = node.if_not_exists and "IF NOT EXISTS"
    return joined_words(
        "CREATE DATABASE", exists, path_text(node.name), _comment(node.comment), with_text(node.options)
    )


@written.register
def _create_model(node: CreateModel) -> str:
    return joined_words(
        "CREATE",
        node.temporary and "TEMPORARY",
        "MODEL",
        node.if_not_exists and "IF NOT EXISTS",
        path_text(node.name),
        f"INPUT ({commas(written(each) for each in node.inputs)})" if node.inputs else "",
        f"OUTPUT ({commas(written(each) for each in node.outputs)})" if node.outputs else "",
        _comment(node.comment),
        with_text(node.options),
        f"AS {written(node.query)}" if node.query is not None else "",
    )


@written.register
def _create_connection(node: CreateConnection) -> str:
    flags = ("TEMPORARY" if node.temporary else "", "SYSTEM" if node.system else "")
    exists = node.if_not_exists and "IF NOT EXISTS"
    name = path_text(node.name)
    return joined_words("CREATE", *flags, "CONNECTION", exists, name, _comment(node.comment), with_text(node.options))


@written.register
def _drop(node: Drop) -> str:
    flags = ("TEMPORARY" if node.temporary else "", "SYSTEM" if node.system else "")
    exists = node.if_exists and "IF EXISTS"
    return joined_words("DROP", *flags, node.kind, exists, path_text(node.name), node.cascade and "CASCADE")


# --- ALTER ------------------------------------------------------------------------------------------------------------


@written.register
def _alter(node: Alter) -> str:
    head = joined_words("ALTER", node.kind, node.if_exists and "IF EXISTS", path_text(node.name))
    if len(node.changes) == 1:
        return f"{head} {written(node.changes[0])}"
    elements = [element for change in node.changes for element in _elements(change)]
    return f"{head} {node.changes[0].action} ({commas(elements)})"


def _elements(change: Alteration) -> list[str]:
    """The added or modified elements of a change, in parentheses."""
    positions = change.positions or (None,) * len(change.columns)
    elements = [
        joined_words(written(column), _position(at)) for column, at in zip(change.columns, positions, strict=True)
    ]
    return elements + [written(each) for each in (change.key, change.watermark) if each is not None]


def _position(position: str | None) -> str:
    if position is None or position == "FIRST":
        return position or ""
    return f"AFTER {name_text(position.removeprefix('AFTER '))}"


@written.register
def _alteration(node: Alteration) -> str:
    action, subject = node.action, node.subject
    if action == "RENAME" and subject == "COLUMN":
        return f"RENAME {name_text(node.names[0])} TO {name_text(node.names[1])}"
    if action == "RENAME":
        return f"RENAME TO {path_text(node.names)}"
    if subject == "OPTIONS":
        keys = f"({commas(map(text_literal, node.names))})"
        return f"{action} {keys if action == 'RESET' else options_text(node.options)}"
    if subject == "PARTITION":
        joined = (" " if action == "ADD" else ", ").join(partition_text(each) for each in node.partitions)
        exists = ("IF NOT EXISTS" if action == "ADD" else "IF EXISTS") if node.if_exists else ""
        return joined_words(action, exists, joined, with_text(node.options))
    if subject == "FUNCTION":
        return f"AS {text_literal(node.text)} LANGUAGE {node.names[0]}"
    if subject == "COMMENT":
        return _comment(node.text)
    if subject in ("FRESHNESS", "REFRESH_MODE"):
        return f"SET {subject} = {written(node.expression) if node.expression is not None else node.text}"
    if action == "AS" and node.query is not None:
        return f"AS {node.text or written(node.query)}"
    if subject == "DISTRIBUTION":
        return joined_words(action, subject, written(node.distribution) if node.distribution is not None else "")
    if action == "DROP":
        if subject == "COLUMN":
            return joined_words("DROP", node.if_exists and "IF EXISTS", _names(node.names))
        return joined_words("DROP", subject, *map(name_text, node.names))
    elements = _elements(node)
    if elements:
        return f"{action} ({commas(elements)})"
    return joined_words(action, *map(partition_text, node.partitions), with_text(node.options))


# --- data and plans ---------------------------------------------------------------------------------------------------


@written.register
def _query_statement(node: QueryStatement) -> str:
    return written(node.query)


@written.register
def _insert(node: Insert) -> str:
    return joined_words(
        "INSERT",
        "OVERWRITE" if node.overwrite else "INTO",
        path_text(node.table),
        hints_text(node.hints) if node.hints else "",
        partition_text(node.partition),
        _names(node.columns) if node.columns else "",
        written(node.query),
        f"ON CONFLICT DO {node.on_conflict}" if node.on_conflict else "",
    )


@written.register
def _statement_set(node: StatementSet) -> str:
    return f"EXECUTE {_set_text(node)}"


def _set_text(node: StatementSet) -> str:
    inserts = "".join(f"  {written(each)};\n" for each in node.statements)
    return f"STATEMENT SET BEGIN\n{inserts}END"


@written.register
def _modify(node: Modify) -> str:
    where = "" if node.where is None else f"WHERE {written(node.where)}"
    if node.kind == "UPDATE":
        values = commas(f"{name_text(name)} = {written(value)}" for name, value in node.assignments)
        return joined_words("UPDATE", path_text(node.table), f"SET {values}", where)
    return joined_words("DELETE FROM" if node.kind == "DELETE" else "TRUNCATE TABLE", path_text(node.table), where)


@written.register
def _analyze(node: AnalyzeTable) -> str:
    columns = ""
    if node.columns is not None:
        columns = f"FOR COLUMNS {commas(map(name_text, node.columns))}" if node.columns else "FOR ALL COLUMNS"
    return joined_words(
        "ANALYZE TABLE", path_text(node.table), partition_text(node.partition), "COMPUTE STATISTICS", columns
    )


@written.register
def _explain(node: Explain) -> str:
    inner = _set_text(node.statement) if isinstance(node.statement, StatementSet) else written(node.statement)
    return joined_words("EXPLAIN", commas(node.details), inner)


@written.register
def _execute(node: Execute) -> str:
    if node.statement is not None:
        return f"EXECUTE {written(node.statement)}"
    return f"EXECUTE PLAN {text_literal(node.plan or '')}"


@written.register
def _compile(node: CompilePlan) -> str:
    inner = _set_text(node.statement) if isinstance(node.statement, StatementSet) else written(node.statement)
    exists = node.if_not_exists and "IF NOT EXISTS"
    head = "COMPILE AND EXECUTE PLAN" if node.execute else "COMPILE PLAN"
    return joined_words(head, text_literal(node.file), exists, "FOR", inner)
