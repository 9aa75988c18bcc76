"""CREATE and DROP: tables with their columns, watermarks and keys; views, functions, catalogs, databases, models."""

from __future__ import annotations

from millstream.sql.places import problem
from millstream.sql.queries import QueryReader
from millstream.sql.query_syntax import Query
from millstream.sql.statements import (
    ColumnDefinition,
    CreateCatalog,
    CreateConnection,
    CreateDatabase,
    CreateFunction,
    CreateModel,
    CreateTable,
    CreateView,
    Distribution,
    Drop,
    KeyDefinition,
    LikeClause,
    Options,
    Statement,
    WatermarkDefinition,
)
from millstream.sql.syntax import Expression, Span
from millstream.sql.tokens import TokenKind

__all__ = ["DefinitionReader", "TableElements"]

_LIKE_PARTS = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
_KINDS = ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL", "MATERIALIZED", "CONNECTION")


class TableElements:
    """The elements between the parentheses of a table, sorted by kind."""

    def __init__(self) -> None:
        self.columns: list[ColumnDefinition] = []
        self.positions: list[str | None] = []
        self.watermarks: list[WatermarkDefinition] = []
        self.keys: list[KeyDefinition] = []
        self.names: list[str] = []
        self.name_spans: list[Span] = []


class DefinitionReader(QueryReader):
    """Parses CREATE and DROP."""

    def create(self) -> Statement:
        start = self.take().start
        or_replace = self.accept("OR", "REPLACE")
        or_alter = not or_replace and self.accept("OR", "ALTER")
        temporary = self.accept("TEMPORARY")
        system = temporary and self.accept("SYSTEM")
        kind = self.expect_one(*_KINDS)
        if kind == "MATERIALIZED":
            self.expect("TABLE")
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        if self.at_words("IF", "EXISTS"):
            raise problem("CREATE takes IF NOT EXISTS, not IF EXISTS", self.span_of(self.token))
        if kind in ("TABLE", "MATERIALIZED"):
            flags = {"temporary": temporary, "if_not_exists": if_not_exists, "or_replace": or_replace}
            return self._create_table(start, kind == "MATERIALIZED", {**flags, "or_alter": or_alter})
        if kind == "VIEW":
            return self._create_view(start, temporary, if_not_exists, or_replace)
        if kind == "FUNCTION":
            return self._create_function(start, temporary, system, if_not_exists)
        if kind == "MODEL":
            return self._create_model(start, temporary, if_not_exists)
        if kind == "CONNECTION":
            name = self.path("a connection's name")
            comment, options = self.comment(), self.with_options()
            return CreateConnection(name, comment, options, temporary, system, if_not_exists, span=self.since(start))
        if kind == "CATALOG":
            catalog = self.name("a catalog's name")
            comment = self.comment()
            return CreateCatalog(catalog, self.with_options(), comment, if_not_exists, span=self.since(start))
        path = self.path("a database's name")
        comment = self.comment()
        return CreateDatabase(path, comment, self.with_options(), if_not_exists, span=self.since(start))

    def drop(self) -> Statement:
        start = self.take().start
        temporary = self.accept("TEMPORARY")
        system = temporary and self.accept("SYSTEM")
        kind = self.expect_one(*_KINDS)
        if kind == "MATERIALIZED":
            self.expect("TABLE")
            kind = "MATERIALIZED TABLE"
        if_exists = self.accept("IF", "EXISTS")
        if self.at_words("IF", "NOT", "EXISTS"):
            raise problem("DROP takes IF EXISTS, not IF NOT EXISTS", self.span_of(self.token))
        name = self.path(f"the name of the {kind.lower()}")
        cascade = self.accept_one("CASCADE", "RESTRICT") == "CASCADE" if kind == "DATABASE" else False
        return Drop(kind, name, if_exists, temporary, system, cascade, span=self.since(start))

    # --- tables -------------------------------------------------------------------------------------------------------

    def _create_table(self, start: int, materialized: bool, flags: dict[str, bool]) -> Statement:
        name = self.path("a table's name")
        elements = self.table_elements() if self.at("(") else TableElements()
        comment = self.comment()
        distribution = self.distribution() if self.accept("DISTRIBUTED") else None
        partitioned: tuple[str, ...] = ()
        if self.accept("PARTITIONED"):
            self.expect("BY")
            partitioned = self.names("a column's name")
        options = self.with_options()
        freshness, refresh_mode = self._refreshing() if materialized else (None, None)
        like: LikeClause | None = None
        query: Query | None = None
        if materialized:
            self.expect("AS")
            query = self.query()
        elif self.at("LIKE"):
            like = self._like_clause()
        elif self.accept("AS"):
            query = self.query()
        self._check_clause_order()
        if elements.names and query is None:
            raise problem(
                f"column {elements.names[0]!r} has no type. Only CREATE TABLE … AS SELECT may leave it out",
                elements.name_spans[0],
            )
        return CreateTable(
            name,
            tuple(elements.columns),
            tuple(elements.watermarks),
            tuple(elements.keys),
            comment,
            partitioned,
            distribution,
            options,
            like,
            query,
            named_columns=tuple(elements.names),
            materialized=materialized,
            freshness=freshness,
            refresh_mode=refresh_mode,
            **flags,
            span=self.since(start),
        )

    def _check_clause_order(self) -> None:
        if self.at("COMMENT", "DISTRIBUTED", "PARTITIONED", "WITH"):
            raise problem(
                f"{self.token.word} is misplaced. The order is (columns), COMMENT, DISTRIBUTED BY, "
                "PARTITIONED BY, WITH, then LIKE or AS",
                self.span_of(self.token),
            )

    def _refreshing(self) -> tuple[Expression | None, str | None]:
        """FRESHNESS = INTERVAL '1' MINUTE, REFRESH_MODE = FULL."""
        freshness: Expression | None = None
        mode = None
        if self.accept("FRESHNESS"):
            self.expect("=")
            if not self.at("INTERVAL"):
                self.fail(expected="INTERVAL")
            freshness = self.interval()
        if self.accept("REFRESH_MODE"):
            self.expect("=")
            mode = self.expect_one("FULL", "CONTINUOUS")
        return freshness, mode

    def table_elements(self) -> TableElements:
        """(columns, watermarks and keys)."""
        elements = TableElements()
        self.opening()
        while True:
            self.table_element(elements)
            if self.accept(","):
                if self.at(")"):
                    raise problem("nothing follows this comma", self.span_of(self.tokens[self.place - 1]))
                continue
            if not self.at(")"):
                self.fail(expected=", or )")
            self.close()
            return elements

    def table_element(self, elements: TableElements) -> None:
        """One column, watermark or key."""
        start = self.token.start
        if self.at("WATERMARK"):
            elements.watermarks.append(self.watermark())
        elif self.at("CONSTRAINT", "PRIMARY", "UNIQUE"):
            elements.keys.append(self._key())
        else:
            self.note_bare_alias()
            name = self.name("a column's name")
            if self.at(",", ")"):
                elements.names.append(name)
                elements.name_spans.append(self.since(start))
                return
            elements.columns.append(self._column(name, start))
            elements.positions.append(self.position())

    def position(self) -> str | None:
        """FIRST, or AFTER column; only in ALTER TABLE."""
        if self.accept("FIRST"):
            return "FIRST"
        return f"AFTER {self.name('a column')}" if self.accept("AFTER") else None

    def watermark(self) -> WatermarkDefinition:
        start = self.take().start
        self.expect("FOR")
        column = self.path("a column's name")
        self.expect("AS")
        return WatermarkDefinition(column, self.expression(), span=self.since(start))

    def _key(self) -> KeyDefinition:
        start = self.token.start
        name = self.name("the constraint's name") if self.accept("CONSTRAINT") else None
        is_primary = self.expect_one("PRIMARY", "UNIQUE") == "PRIMARY"
        if is_primary:
            self.expect("KEY")
        columns = self.names("a column's name")
        return KeyDefinition(columns, name, self._enforced(), is_primary, span=self.since(start))

    def _enforced(self) -> bool:
        if self.accept("NOT"):
            self.expect("ENFORCED")
            return False
        self.accept("ENFORCED")
        return True  # in the standard and in Flink, a key without this clause is enforced

    def _column(self, name: str, start: int) -> ColumnDefinition:
        if self.accept("AS"):
            expression = self.expression()
            return ColumnDefinition(name, expression=expression, comment=self.comment(), span=self.since(start))
        type_name = self.type_name()
        metadata = None
        is_virtual = is_key = is_enforced = False
        if self.accept("METADATA"):
            metadata = self.plain_text("the key of the metadata in single quotes") if self.accept("FROM") else ""
            is_virtual = self.accept("VIRTUAL")
        else:
            is_key, is_enforced = self._column_key()
            if self.at("DEFAULT", "AUTO_INCREMENT", "GENERATED", "REFERENCES", "CHECK"):
                raise problem(
                    f"columns have no {self.token.word} here. A column is a type, an expression (AS …) or METADATA",
                    self.span_of(self.token),
                )
        comment = self.comment()
        span = self.since(start)
        return ColumnDefinition(name, type_name, None, metadata, is_virtual, comment, is_key, is_enforced, span=span)

    def _column_key(self) -> tuple[bool, bool]:
        """Whether the column is a key, and whether the key is enforced."""
        if not self.at("CONSTRAINT", "PRIMARY"):
            return False, False
        if self.accept("CONSTRAINT"):
            self.name("the constraint's name")
        self.expect("PRIMARY", "KEY")
        return True, self._enforced()

    def distribution(self) -> Distribution:
        """BY HASH(a) INTO 4 BUCKETS, after DISTRIBUTED."""
        start = self.token.start
        kind = None
        columns: tuple[str, ...] = ()
        if self.accept("BY"):
            kind = self.accept_one("HASH", "RANGE")
            columns = self.names("a column's name")
        buckets = None
        if not columns and not self.at("INTO"):
            self.fail(expected="BY or INTO")
        if self.accept("INTO"):
            buckets = self.whole_number("the number of buckets")
            self.expect("BUCKETS")
        return Distribution(kind, columns, buckets, span=self.since(start))

    def _like_clause(self) -> LikeClause:
        start = self.take().start
        table = self.path("a table's name")
        rules: list[tuple[str, str]] = []
        if self.at("("):
            self.opening()
            while not self.at(")"):
                how = self.expect_one("INCLUDING", "EXCLUDING", "OVERWRITING")
                rules.append((how, self.expect_one(*_LIKE_PARTS)))
            self.close()
        return LikeClause(table, tuple(rules), span=self.since(start))

    # --- options and comments -----------------------------------------------------------------------------------------

    def comment(self) -> str | None:
        return self.plain_text() if self.accept("COMMENT") else None

    def with_options(self) -> Options:
        """Parses WITH ('key' = 'value', …), if it is next."""
        return self.options() if self.accept("WITH") else ()

    def options(self) -> Options:
        """('key' = 'value', …)."""
        keys: set[str] = set()

        def option() -> tuple[str, str]:
            token = self.token
            key = self.plain_text("an option's key in single quotes")
            if key in keys:
                raise problem(f"option '{key}' is set twice", self.span_of(token))
            keys.add(key)
            self.expect("=")
            value = self.token
            if value.kind in (TokenKind.NUMBER, TokenKind.WORD):
                raise problem(f"the value of '{key}' is put in single quotes: '{value.value}'", self.span_of(value))
            return key, self.plain_text("the option's value in single quotes")

        return self.listed(option, may_be_empty=True)

    # --- views, functions, models -------------------------------------------------------------------------------------

    def _create_view(self, start: int, temporary: bool, if_not_exists: bool, or_replace: bool) -> Statement:
        name = self.path("a view's name")
        columns = self.names("a column's name") if self.at("(") else ()
        comment = self.comment()
        self.expect("AS")
        place = self.token.start
        query = self.query()
        text = self.since(place).text
        return CreateView(
            name, query, text, columns, comment, temporary, if_not_exists, or_replace, span=self.since(start)
        )

    def _create_function(self, start: int, temporary: bool, system: bool, if_not_exists: bool) -> Statement:
        name = self.path("a function's name")
        self.expect("AS")
        class_name = self.plain_text("the class or Python function in single quotes")
        language = "JAVA"
        if self.accept("LANGUAGE"):
            language = self.expect_one("PYTHON", "JAVA", "SCALA")
        jars: list[str] = []
        if self.accept("USING"):
            while True:
                self.expect_one("JAR", "FILE", "ARCHIVE")
                jars.append(self.plain_text("a path in single quotes"))
                if not self.accept(","):
                    break
        options = self.with_options()
        return CreateFunction(
            name, class_name, language, tuple(jars), options, temporary, system, if_not_exists, span=self.since(start)
        )

    def _create_model(self, start: int, temporary: bool, if_not_exists: bool) -> Statement:
        name = self.path("a model's name")
        inputs = tuple(self.table_elements().columns) if self.accept("INPUT") else ()
        outputs = tuple(self.table_elements().columns) if self.accept("OUTPUT") else ()
        comment = self.comment()
        options = self.with_options()
        query = self.query() if self.accept("AS") else None
        return CreateModel(
            name, inputs, outputs, comment, options, query, temporary, if_not_exists, span=self.since(start)
        )
