"""Statements of every kind, one or many: INSERT and statement sets, EXPLAIN and plans, and the dispatch to all
others."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import nearest
from millstream.sql.commands import CommandReader
from millstream.sql.keywords import STATEMENT_WORDS
from millstream.sql.places import problem
from millstream.sql.statements import (
    CompilePlan,
    Execute,
    Explain,
    Insert,
    Modify,
    QueryStatement,
    Statement,
    StatementSet,
)
from millstream.sql.syntax import Expression
from millstream.sql.tokens import TokenKind

__all__ = ["StatementReader"]

_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


class StatementReader(CommandReader):
    """Parses statements and scripts."""

    def script(self) -> tuple[Statement, ...]:
        """Statements separated by semicolons; empty ones are omitted."""
        statements: list[Statement] = []
        while True:
            while self.accept(";"):
                pass
            if self.at_end():
                return tuple(statements)
            statements.append(self.statement())
            if not self.at(";") and not self.at_end():
                self._fail_after()

    def finish(self) -> None:
        """Checks that only semicolons follow."""
        if self.at_end():
            return
        if not self.at(";"):
            self._fail_after()
        while self.accept(";"):
            pass
        if not self.at_end():
            raise problem("one statement is expected here, but another begins", self.span_of(self.token))

    def _fail_after(self) -> None:
        """Raises the error for a token that follows a possible end of the statement."""
        token = self.token
        if token.word in (")", "]", "}"):
            raise problem(f"this {token.word} closes nothing", self.span_of(token))
        if token.word in ("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER"):
            raise self.out_of_order()
        before, after = self.tokens[self.place - 1], self.ahead()
        if token.word == "-" and before.stop == token.start and token.stop == after.start:
            name = self.text[before.start : after.stop]
            raise problem(f"a name with a hyphen is put in backticks: `{name}`", self.span_of(token))
        self.fail()

    def statement(self) -> Statement:
        """One statement."""
        word = self.token.word
        reader = self._readers().get(word)
        if reader is not None:
            return reader()
        token = self.token
        if token.kind is TokenKind.END:
            self.fail(expected="a statement")
        if token.kind is TokenKind.WORD:
            likely = nearest(word, STATEMENT_WORDS, 0.6)
            hint = f" Did you mean {likely}?" if likely else " Statements begin with SELECT, INSERT, CREATE, SHOW …"
            raise problem(f"no statement begins with {token.value!r}.{hint}", self.span_of(token))
        self.fail(expected="a statement")

    def _readers(self) -> dict[str, Callable[[], Statement]]:
        queries = dict.fromkeys(("SELECT", "WITH", "VALUES", "(", "TABLE"), self._query_statement)
        words = dict.fromkeys(("HELP", "CLEAR", "QUIT", "EXIT"), self.client_command)
        return {
            **queries,
            **words,
            "INSERT": self.insert,
            "CREATE": self.create,
            "DROP": self.drop,
            "ALTER": self.alter,
            "EXECUTE": self._execute,
            "BEGIN": self._begin,
            "END": self._end,
            "EXPLAIN": self._explain,
            "COMPILE": self._compile,
            "DESCRIBE": self.describe,
            "DESC": self.describe,
            "SHOW": self.show,
            "USE": self.use,
            "SET": self.set_option,
            "RESET": self.reset_option,
            "LOAD": self.module,
            "UNLOAD": self.module,
            "ADD": self.jar,
            "REMOVE": self.jar,
            "STOP": self.stop_job,
            "CALL": self.call_procedure,
            "ANALYZE": self.analyze,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "TRUNCATE": self._truncate,
        }

    def _query_statement(self) -> Statement:
        start = self.token.start
        return QueryStatement(self.query(), span=self.since(start))

    # --- INSERT and similar -------------------------------------------------------------------------------------------

    def insert(self) -> Insert:
        start = self.token.start
        self.expect("INSERT")
        overwrite = self.expect_one("INTO", "OVERWRITE") == "OVERWRITE"
        self.accept("TABLE")
        table = self.path("a table's name")
        hints = self.hints()
        partition = self.partition_spec() if self.at("PARTITION") else ()
        columns: tuple[str, ...] = ()
        if self.at("(") and self.ahead().word not in ("SELECT", "WITH", "VALUES", "(", "TABLE"):
            columns = self.names("a column's name")
        if not self.at("SELECT", "WITH", "VALUES", "(", "TABLE"):
            self.fail(expected="a query (SELECT, VALUES or WITH)")
        query = self.query()
        conflict = None
        if self.accept("ON"):
            self.expect("CONFLICT", "DO")
            conflict = self.expect_one("ERROR", "NOTHING", "DEDUPLICATE")
        return Insert(table, query, columns, partition, overwrite, hints, conflict, span=self.since(start))

    def _update(self) -> Statement:
        start = self.take().start
        table = self.path("a table's name")
        self.expect("SET")
        assignments = self.separated(self._assignment)
        where = self.expression() if self.accept("WHERE") else None
        return Modify("UPDATE", table, assignments, where, span=self.since(start))

    def _assignment(self) -> tuple[str, Expression]:
        name = self.name("a column's name")
        self.expect("=")
        return name, self.expression()

    def _delete(self) -> Statement:
        start = self.take().start
        self.expect("FROM")
        table = self.path("a table's name")
        where = self.expression() if self.accept("WHERE") else None
        return Modify("DELETE", table, (), where, span=self.since(start))

    def _truncate(self) -> Statement:
        start = self.take().start
        self.expect("TABLE")
        return Modify("TRUNCATE", self.path("a table's name"), span=self.since(start))

    # --- statement sets -----------------------------------------------------------------------------------------------

    def _execute(self) -> Statement:
        start = self.take().start
        if self.accept("PLAN"):
            return Execute(plan=self.plain_text("a file in single quotes"), span=self.since(start))
        if self.accept("STATEMENT"):
            self.expect("SET")
            opening = self.expect("BEGIN")
            self.opened(opening, "END")
            return self._statement_set(start)
        if self.at("INSERT"):
            return Execute(self.insert(), span=self.since(start))
        if self.at("SELECT", "WITH", "VALUES", "("):
            return Execute(self._query_statement(), span=self.since(start))
        self.fail(expected="STATEMENT SET, PLAN, INSERT or SELECT")

    def _begin(self) -> Statement:
        """BEGIN STATEMENT SET; … END, the syntax of the SQL client."""
        opening = self.take()
        self.expect("STATEMENT", "SET")
        if self.token.kind is TokenKind.END or self._ends_after_semicolon():
            raise problem(
                "BEGIN STATEMENT SET is used alone: the set is one statement, followed by its INSERTs and END: "
                "BEGIN STATEMENT SET; INSERT …; END. In a program, t_env.create_statement_set() gathers INSERTs",
                self.span_of(opening),
            )
        self.expect(";")
        self.opened(opening, "END")
        return self._statement_set(opening.start)

    def _ends_after_semicolon(self) -> bool:
        return self.token.word == ";" and self.ahead().kind is TokenKind.END

    def _statement_set(self, start: int) -> StatementSet:
        inserts = []
        while not self.at("END"):
            if self.at("EXECUTE") and self.ahead().word == "INSERT":
                self.take()
            if not self.at("INSERT"):
                if self.token.kind is TokenKind.WORD and self.token.word in STATEMENT_WORDS:
                    raise problem("a statement set holds only INSERT statements", self.span_of(self.token))
                self.fail(expected="INSERT or END")
            inserts.append(self.insert())
            if not self.at(";"):
                self.fail(expected=";")
            while self.accept(";"):
                pass
        if not inserts:
            raise problem("this statement set is empty. It takes at least one INSERT", self.span_of(self.token))
        self.close()
        return StatementSet(tuple(inserts), span=self.since(start))

    def _end(self) -> Statement:
        raise problem("END closes nothing here: no BEGIN STATEMENT SET precedes it", self.span_of(self.token))

    # --- plans --------------------------------------------------------------------------------------------------------

    def _explain(self) -> Statement:
        start = self.take().start
        details: tuple[str, ...] = ()
        if self.accept("PLAN"):
            self.expect("FOR")
        elif self.at(*_DETAILS):
            details = self.separated(lambda: self.expect_one(*_DETAILS))
        return Explain(self._planned(), details, span=self.since(start))

    def _planned(self) -> Statement:
        """A statement with a plan: a query, an INSERT, a statement set, CREATE TABLE AS."""
        start = self.token.start
        if self.accept("STATEMENT"):
            self.expect("SET")
            self.opened(self.expect("BEGIN"), "END")
            return self._statement_set(start)
        if self.at("INSERT"):
            return self.insert()
        if self.at("EXECUTE"):
            return self._execute()
        if self.at("CREATE"):
            return self.create()
        if self.at("UPDATE", "DELETE"):
            return self._update() if self.token.word == "UPDATE" else self._delete()
        if not self.at("SELECT", "WITH", "VALUES", "(", "TABLE"):
            self.fail(expected="a query, INSERT or STATEMENT SET")
        return self._query_statement()

    def _compile(self) -> Statement:
        start = self.take().start
        execute = self.accept("AND")
        if execute:
            self.expect("EXECUTE")
        self.expect("PLAN")
        file = self.plain_text("a file in single quotes")
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        self.expect("FOR")
        return CompilePlan(file, self._planned(), if_not_exists, execute, span=self.since(start))
