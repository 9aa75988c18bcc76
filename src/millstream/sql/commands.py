"""Session commands: SET, SHOW, USE, DESCRIBE, modules, jars, jobs and savepoints, procedures."""

from __future__ import annotations

from millstream.sql.alterations import AlterationReader
from millstream.sql.places import problem
from millstream.sql.statements import (
    AnalyzeTable,
    CallProcedure,
    ClientCommand,
    Describe,
    JarStatement,
    Module,
    ResetOption,
    SetOption,
    Show,
    Statement,
    StopJob,
    Use,
)
from millstream.sql.syntax import Expression
from millstream.sql.tokens import TokenKind

__all__ = ["CommandReader"]

_DESCRIBED = ("CATALOG", "DATABASE", "FUNCTION", "JOB", "MODEL", "CONNECTION")
_SHOWN = (
    *("TABLES", "VIEWS", "FUNCTIONS", "COLUMNS", "CATALOGS", "DATABASES", "CREATE", "CURRENT", "USER", "FULL"),
    *("MODULES", "PARTITIONS", "PROCEDURES", "MODELS", "JARS", "JOBS", "MATERIALIZED", "CONNECTIONS"),
)
_CREATED = ("TABLE", "VIEW", "CATALOG", "MATERIALIZED", "MODEL", "FUNCTION", "CONNECTION", "DATABASE")


class CommandReader(AlterationReader):
    """Parses commands."""

    def set_option(self) -> Statement:
        """SET; SET 'key' = 'value'."""
        start = self.take().start
        if self._at_statement_end():
            return SetOption(span=self.since(start))
        if self.token.kind is not TokenKind.TEXT:
            raise self._unquoted_option()
        key = self.plain_text()
        self.expect("=")
        if self.token.kind is not TokenKind.TEXT:
            value = self.token
            if value.kind in (TokenKind.WORD, TokenKind.NUMBER):
                raise problem(f"the value of '{key}' is put in single quotes: '{value.value}'", self.span_of(value))
            self.fail(expected="the value in single quotes")
        return SetOption(key, self.plain_text(), span=self.since(start))

    def _unquoted_option(self) -> Exception:
        """The error for the obsolete syntax SET table.local-time-zone = UTC, which shows the current syntax."""
        start, place = self.token, self.place
        while self.tokens[place].word not in ("=", ";") and self.tokens[place].kind is not TokenKind.END:
            place += 1
        key = self.text[start.start : self.tokens[place - 1].stop] if place > self.place else ""
        end = place
        while self.tokens[end].word != ";" and self.tokens[end].kind is not TokenKind.END:
            end += 1
        value = self.text[self.tokens[place].stop : self.tokens[end - 1].stop].strip().strip("'") if end > place else ""
        stop = self.tokens[max(place - 1, self.place)]
        span = self.span_of(start)
        return problem(
            f"keys and values of SET are put in single quotes: SET '{key.replace(chr(10), ' ')}' = '{value or '…'}'",
            type(span)(start.start, stop.stop, self.text),
        )

    def reset_option(self) -> Statement:
        start = self.take().start
        key = None if self._at_statement_end() else self.plain_text("an option's key in single quotes")
        return ResetOption(key, span=self.since(start))

    def use(self) -> Statement:
        start = self.take().start
        if self.token.word == "MODULES":
            self.take()
            modules = self.separated(lambda: self.name("a module's name"))
            return Use("MODULES", modules, span=self.since(start))
        if self.token.word == "CATALOG" and self.ahead().kind in (TokenKind.WORD, TokenKind.QUOTED):
            self.take()
            return Use("CATALOG", (self.name("a catalog's name"),), span=self.since(start))
        self.at("CATALOG", "MODULES")
        return Use("DATABASE", self.path("a database's name"), span=self.since(start))

    def _at_statement_end(self) -> bool:
        return self.at_end() or self.token.word == ";"

    # --- SHOW and DESCRIBE --------------------------------------------------------------------------------------------

    def show(self) -> Statement:
        start = self.take().start
        word = self.expect_one(*_SHOWN)
        if word == "CREATE":
            kind = self.expect_one(*_CREATED)
            if kind == "MATERIALIZED":
                self.expect("TABLE")
                kind = "MATERIALIZED TABLE"
            name = self.path(f"the name of the {kind.lower()}")
            return Show(f"CREATE {kind}", name, span=self.since(start))
        if word == "CURRENT":
            return Show(f"CURRENT {self.expect_one('CATALOG', 'DATABASE')}", span=self.since(start))
        user, full = word == "USER", word == "FULL"
        if user:
            self.expect("FUNCTIONS")
            word = "FUNCTIONS"
        elif full:
            self.expect("MODULES")
            word = "MODULES"
        elif word == "MATERIALIZED":
            self.expect("TABLES")
            word = "MATERIALIZED TABLES"
        name = self.path("a table's name") if word == "PARTITIONS" else ()
        partition = self.partition_spec() if word == "PARTITIONS" and self.at("PARTITION") else ()
        within: tuple[str, ...] = ()
        if word in ("MODULES", "JARS", "JOBS"):
            return Show(word, user=user, full=full, span=self.since(start))
        if self.accept_one("FROM", "IN"):
            within = self.path("a table's name" if word == "COLUMNS" else "the name of a catalog or database")
        elif word == "COLUMNS":
            self.fail(expected="FROM or IN")
        like, negated, ignores_case = self._show_like()
        return Show(word, name, within, like, negated, ignores_case, user, full, partition, span=self.since(start))

    def _show_like(self) -> tuple[str | None, bool, bool]:
        negated = self.accept("NOT")
        how = self.accept_one("LIKE", "ILIKE")
        if how is None:
            if negated:
                self.fail(expected="LIKE or ILIKE")
            return None, False, False
        return self.plain_text("a pattern in single quotes"), negated, how == "ILIKE"

    def describe(self) -> Statement:
        start = self.take().start
        kind = "TABLE"
        following = self.ahead()
        if self.token.word in _DESCRIBED and following.kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.TEXT):
            kind = self.take().word
        extended = self.accept("EXTENDED")
        if kind == "JOB":
            return Describe((self._job(),), kind, span=self.since(start))
        name = self.path(f"the name of the {kind.lower()}")
        return Describe(name, kind, extended, span=self.since(start))

    # --- modules, jars, jobs ------------------------------------------------------------------------------------------

    def module(self) -> Statement:
        start = self.take()
        self.expect("MODULE")
        name = self.name("a module's name")
        options = self.with_options() if start.word == "LOAD" else ()
        return Module(start.word, name, options, span=self.since(start.start))

    def jar(self) -> Statement:
        start = self.take()
        self.expect("JAR")
        path = self.plain_text("a path in single quotes")
        return JarStatement(start.word, path, span=self.since(start.start))

    def stop_job(self) -> Statement:
        start = self.take().start
        self.expect("JOB")
        job = self._job()
        with_savepoint = self.accept("WITH", "SAVEPOINT")
        with_drain = self.accept("WITH", "DRAIN")
        if self.at("WITH"):
            self.take()
            self.fail(expected="DRAIN" if with_savepoint else "SAVEPOINT or DRAIN")
        return StopJob(job, with_savepoint, with_drain, span=self.since(start))

    def _job(self) -> str:
        return self.plain_text("the job's id in single quotes")

    def call_procedure(self) -> Statement:
        start = self.take().start
        name = self.path("a procedure's name")
        arguments: tuple[Expression, ...] = self.listed(self.argument, may_be_empty=True)
        return CallProcedure(name, arguments, span=self.since(start))

    def analyze(self) -> Statement:
        start = self.take().start
        self.expect("TABLE")
        table = self.path("a table's name")
        partition = self.partition_spec() if self.at("PARTITION") else ()
        self.expect("COMPUTE", "STATISTICS")
        columns: tuple[str, ...] | None = None
        if self.accept("FOR"):
            if self.accept("ALL"):
                self.expect("COLUMNS")
                columns = ()
            else:
                self.expect("COLUMNS")
                columns = self.separated(lambda: self.name("a column's name"))
        return AnalyzeTable(table, partition, columns, span=self.since(start))

    def client_command(self) -> Statement:
        token = self.take()
        return ClientCommand(token.word, span=self.span_of(token))
