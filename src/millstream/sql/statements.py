"""Statements other than queries: definitions, INSERT, and session commands. Frozen data, like `syntax`."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.sql.query_syntax import Hint, Query
from millstream.sql.syntax import Expression, Node, TypeName

__all__ = [
    "Alter",
    "Alteration",
    "AnalyzeTable",
    "CallProcedure",
    "ClientCommand",
    "ColumnDefinition",
    "CompilePlan",
    "CreateCatalog",
    "CreateConnection",
    "CreateDatabase",
    "CreateFunction",
    "CreateModel",
    "CreateTable",
    "CreateView",
    "Describe",
    "Distribution",
    "Drop",
    "Execute",
    "Explain",
    "Insert",
    "JarStatement",
    "KeyDefinition",
    "LikeClause",
    "Modify",
    "Module",
    "Options",
    "QueryStatement",
    "ResetOption",
    "SetOption",
    "Show",
    "Statement",
    "StatementSet",
    "StopJob",
    "Use",
    "WatermarkDefinition",
]

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Statement(Node):
    """One statement, without its semicolon."""


@dataclass(frozen=True)
class QueryStatement(Statement):
    query: Query


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDefinition(Node):
    """A physical (`type`), computed (`expression`) or metadata column (`metadata`: its key, "" if equal to the column's
    name)."""

    name: str
    type: TypeName | None = None
    expression: Expression | None = None
    metadata: str | None = None
    is_virtual: bool = False
    comment: str | None = None
    is_primary_key: bool = False
    is_enforced: bool = False  # whether the key is enforced


@dataclass(frozen=True)
class WatermarkDefinition(Node):
    column: tuple[str, ...]
    expression: Expression


@dataclass(frozen=True)
class KeyDefinition(Node):
    """PRIMARY KEY (columns) NOT ENFORCED."""

    columns: tuple[str, ...]
    name: str | None = None
    enforced: bool = False
    is_primary: bool = True


@dataclass(frozen=True)
class LikeClause(Node):
    """LIKE table (INCLUDING ALL, OVERWRITING OPTIONS, …): pairs of (how, subject)."""

    table: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Distribution(Node):
    """DISTRIBUTED BY HASH(a) INTO 4 BUCKETS."""

    kind: str | None = None
    columns: tuple[str, ...] = ()
    buckets: int | None = None


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE [TEMPORARY] TABLE; with `query`: CREATE TABLE AS. Many fields: one per clause."""

    name: tuple[str, ...]
    columns: tuple[ColumnDefinition, ...] = ()
    watermarks: tuple[WatermarkDefinition, ...] = ()
    keys: tuple[KeyDefinition, ...] = ()
    comment: str | None = None
    partitioned_by: tuple[str, ...] = ()
    distribution: Distribution | None = None
    options: Options = ()
    like: LikeClause | None = None
    query: Query | None = None
    temporary: bool = False
    if_not_exists: bool = False
    or_replace: bool = False
    named_columns: tuple[str, ...] = ()  # CREATE TABLE t (a, b) AS SELECT …
    materialized: bool = False
    freshness: Expression | None = None
    refresh_mode: str | None = None
    or_alter: bool = False


@dataclass(frozen=True)
class CreateView(Statement):
    name: tuple[str, ...]
    query: Query
    text: str
    columns: tuple[str, ...] = ()
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True)
class CreateFunction(Statement):
    """`language`: PYTHON, JAVA or SCALA."""

    name: tuple[str, ...]
    class_name: str
    language: str = "JAVA"
    jars: tuple[str, ...] = ()
    options: Options = ()
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateCatalog(Statement):
    name: str
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateDatabase(Statement):
    name: tuple[str, ...]
    comment: str | None = None
    options: Options = ()
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateModel(Statement):
    """CREATE MODEL m INPUT (…) OUTPUT (…) WITH (…)."""

    name: tuple[str, ...]
    inputs: tuple[ColumnDefinition, ...] = ()
    outputs: tuple[ColumnDefinition, ...] = ()
    comment: str | None = None
    options: Options = ()
    query: Query | None = None
    temporary: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateConnection(Statement):
    name: tuple[str, ...]
    comment: str | None = None
    options: Options = ()
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop(Statement):
    """`kind`: TABLE, VIEW, FUNCTION, CATALOG, DATABASE, MODEL, MATERIALIZED TABLE, CONNECTION."""

    kind: str
    name: tuple[str, ...]
    if_exists: bool = False
    temporary: bool = False
    system: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Alteration(Node):
    """One change of ALTER: `action` (RENAME, SET, RESET, ADD, MODIFY, DROP, AS, SUSPEND, RESUME, REFRESH…), its
    `subject` (TABLE, COLUMN, OPTIONS, WATERMARK, PRIMARY KEY, PARTITION, …), and its details as data. Many fields: one
    per possible detail."""

    action: str
    subject: str
    columns: tuple[ColumnDefinition, ...] = ()
    positions: tuple[str | None, ...] = ()  # per column: None, "FIRST", or "AFTER x"
    names: tuple[str, ...] = ()
    options: Options = ()
    watermark: WatermarkDefinition | None = None
    key: KeyDefinition | None = None
    query: Query | None = None
    text: str = ""
    expression: Expression | None = None  # SET FRESHNESS = INTERVAL …
    distribution: Distribution | None = None
    partitions: tuple[tuple[tuple[str, Expression], ...], ...] = ()
    if_exists: bool = False  # applies to the changed part; means IF NOT EXISTS for ADD


@dataclass(frozen=True)
class Alter(Statement):
    kind: str
    name: tuple[str, ...]
    changes: tuple[Alteration, ...]
    if_exists: bool = False


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT INTO | OVERWRITE table [PARTITION (…)] [(columns)] query."""

    table: tuple[str, ...]
    query: Query
    columns: tuple[str, ...] = ()
    partition: tuple[tuple[str, Expression], ...] = ()
    overwrite: bool = False
    hints: tuple[Hint, ...] = ()
    on_conflict: str | None = None


@dataclass(frozen=True)
class StatementSet(Statement):
    """EXECUTE STATEMENT SET BEGIN … END."""

    statements: tuple[Insert, ...]


@dataclass(frozen=True)
class Modify(Statement):
    """UPDATE, DELETE or TRUNCATE, which only batch tables support."""

    kind: str
    table: tuple[str, ...]
    assignments: tuple[tuple[str, Expression], ...] = ()
    where: Expression | None = None


@dataclass(frozen=True)
class AnalyzeTable(Statement):
    """ANALYZE TABLE t COMPUTE STATISTICS [FOR COLUMNS a, b]; `columns` is None for table statistics, () for all
    columns."""

    table: tuple[str, ...]
    partition: tuple[tuple[str, Expression], ...] = ()
    columns: tuple[str, ...] | None = None


# --- session commands -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explain(Statement):
    statement: Statement
    details: tuple[str, ...] = ()  # ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE


@dataclass(frozen=True)
class Execute(Statement):
    """EXECUTE <insert or query>, EXECUTE PLAN 'file' (`plan`)."""

    statement: Statement | None = None
    plan: str | None = None


@dataclass(frozen=True)
class CompilePlan(Statement):
    file: str
    statement: Statement
    if_not_exists: bool = False
    execute: bool = False


@dataclass(frozen=True)
class SetOption(Statement):
    """SET 'k' = 'v'; SET without arguments lists the options (`key` None)."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class ResetOption(Statement):
    key: str | None = None


@dataclass(frozen=True)
class Use(Statement):
    """`kind`: CATALOG, DATABASE, MODULES."""

    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Show(Statement):
    """`kind`: TABLES, VIEWS, FUNCTIONS, COLUMNS, CATALOGS, JOBS, CREATE TABLE, CURRENT CATALOG, …"""

    kind: str
    name: tuple[str, ...] = ()
    within: tuple[str, ...] = ()  # FROM | IN
    like: str | None = None
    negated: bool = False
    ignores_case: bool = False  # ILIKE
    user: bool = False  # USER FUNCTIONS
    full: bool = False  # FULL MODULES
    partition: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True)
class Describe(Statement):
    """DESCRIBE of a table, or another `kind`: CATALOG, DATABASE, FUNCTION, JOB, MODEL."""

    name: tuple[str, ...]
    kind: str = "TABLE"
    extended: bool = False


@dataclass(frozen=True)
class Module(Statement):
    """LOAD | UNLOAD MODULE."""

    action: str
    name: str
    options: Options = ()


@dataclass(frozen=True)
class JarStatement(Statement):
    action: str  # ADD, REMOVE
    path: str


@dataclass(frozen=True)
class StopJob(Statement):
    job: str
    with_savepoint: bool = False
    with_drain: bool = False


@dataclass(frozen=True)
class CallProcedure(Statement):
    name: tuple[str, ...]
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class ClientCommand(Statement):
    """HELP, CLEAR, QUIT, EXIT: only in the SQL client."""

    word: str
