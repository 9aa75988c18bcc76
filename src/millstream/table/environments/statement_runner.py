"""Executes SQL statements: parses the text, then changes the catalog, plans, or starts a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from millstream.common.options import check_key
from millstream.errors import LATER, NotAvailableError, NotYetError
from millstream.expressions.types import LENGTH_MAX, VarCharType
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.planner.binder import bind_query
from millstream.planner.entries import TableEntry, ViewEntry
from millstream.planner.not_yet import NO_MODELS
from millstream.planner.relations import Field, Schema, Sink
from millstream.planner.statement_result import OK, StatementResult, text_rows
from millstream.planner.statements import bind_create_as, bind_insert, run
from millstream.records.table_type import TableRowType
from millstream.redaction import redacted_options
from millstream.sql import statements as sql
from millstream.sql.places import problem
from millstream.table.environments.job_statements import describe_job, show_jobs, stop_job
from millstream.table.environments.materialized_tables import MaterializedTables
from millstream.table.environments.plan_statements import compiled, plan_of_file, stored
from millstream.table.operations.query_runner import QueryRunner
from millstream.table.result_kind import ResultKind
from millstream.table.results.outcome import Outcome
from millstream.table.results.row_source import StoredRows
from millstream.table.table_config import TableConfig

__all__ = ["StatementRunner"]

_TEXT = VarCharType(LENGTH_MAX)


class StatementRunner:
    """Executes statements in one environment."""

    def __init__(self, runner: QueryRunner, config: TableConfig) -> None:
        self._runner = runner
        self._session = runner.session
        self._config = config
        self._materialized = MaterializedTables(runner)

    def execute(self, statement: sql.Statement) -> Outcome:
        """Executes a statement, as `execute_sql`."""
        act = _ACTS.get(type(statement))
        if act is not None:
            return act(self, statement)
        result = run(statement, self._session)
        if result is None:
            raise problem(f"the statement {type(statement).__name__} cannot be executed here", statement)
        return stored_outcome(result)

    def sinks_of(self, statement: sql.Statement) -> list[Sink] | None:
        """The sinks of an explainable statement; None for a query."""
        if isinstance(statement, sql.QueryStatement):
            return None
        if isinstance(statement, sql.Insert):
            return [bind_insert(statement, self._session)]
        if isinstance(statement, sql.StatementSet):
            return [bind_insert(each, self._session) for each in statement.statements]
        if isinstance(statement, sql.Execute) and statement.statement is not None:
            return self.sinks_of(statement.statement)
        raise problem("EXPLAIN takes a query, an INSERT, a CREATE TABLE … AS or a statement set", statement)

    def explained(self, statement: sql.Statement, details: Sequence[str]) -> str:
        """The text of EXPLAIN for a statement."""
        if isinstance(statement, sql.Explain):
            return self.explained(statement.statement, [*statement.details, *details])
        if isinstance(statement, sql.Execute) and statement.plan is not None:
            return self._runner.explained_plan(plan_of_file(statement.plan, self._session))
        if isinstance(statement, sql.CreateTable) and statement.materialized:
            return self._materialized.explained(statement, details)
        if isinstance(statement, sql.CreateTable) and statement.query is not None:
            return self._explained_create(statement, details)
        sinks = self.sinks_of(statement)
        if sinks is not None:
            return self._runner.explained(sinks, details)
        inner = statement.statement if isinstance(statement, sql.Execute) else statement
        assert isinstance(inner, sql.QueryStatement)
        return self._runner.explained_query(bind_query(inner.query, self._session), details)

    # --- kinds of statements ------------------------------------------------------------------------------------------

    def _query(self, statement: sql.QueryStatement) -> Outcome:
        return self._runner.collect(bind_query(statement.query, self._session))

    def _insert(self, statement: sql.Insert) -> Outcome:
        return self._runner.insert([bind_insert(statement, self._session)])

    def _statement_set(self, statement: sql.StatementSet) -> Outcome:
        return self._runner.insert([bind_insert(each, self._session) for each in statement.statements])

    def _create_table(self, statement: sql.CreateTable) -> Outcome:
        if statement.materialized:
            return stored_outcome(self._materialized.create(statement))
        if statement.query is None:
            return stored_outcome(run(statement, self._session) or OK)
        before = self._table_before(statement)
        sink = bind_create_as(statement, self._session)
        if sink is None:
            return stored_outcome(OK)
        try:
            return self._runner.insert([sink])
        except BaseException:
            # The table of a failed start is removed: the corrected statement can be run again.
            self._restore(statement, before)
            raise

    @contextmanager
    def prepared(self, statement: sql.Statement) -> Iterator[list[Sink]]:
        """The sinks of a statement whose job another process will run; empty if no job is needed. A table that the
        statement creates is dropped if the block fails."""
        if isinstance(statement, sql.Execute) and statement.plan is not None:
            yield list(plan_of_file(statement.plan, self._session))
        elif isinstance(statement, sql.CompilePlan):
            yield self._plannable(statement.statement)
        elif isinstance(statement, sql.CreateTable):
            before = self._table_before(statement)
            sink = bind_create_as(statement, self._session)
            try:
                yield [] if sink is None else [sink]
            except BaseException:
                self._restore(statement, before)
                raise
        else:
            yield self.sinks_of(statement) or []

    def _explained_create(self, statement: sql.CreateTable, details: Sequence[str]) -> str:
        """EXPLAIN of CREATE TABLE … AS; the table exists only during the call."""
        before = self._table_before(statement)
        sink = bind_create_as(statement, self._session)
        if sink is None:
            raise problem(f"the table {'.'.join(statement.name)} exists already: nothing would be written", statement)
        try:
            return self._runner.explained([sink], details)
        finally:
            self._restore(statement, before)

    def _table_before(self, statement: sql.CreateTable) -> TableEntry | ViewEntry | None:
        """The existing catalog entry with the new table's name."""
        store, path = self._session.store, self._session.path_of(statement.name)
        return store.temporary_tables.get(path) if statement.temporary else store.permanent_table(path)

    def _restore(self, statement: sql.CreateTable, before: TableEntry | ViewEntry | None) -> None:
        store, path = self._session.store, self._session.path_of(statement.name)
        store.drop_table(path, statement.temporary)
        if before is not None:
            store.add_table(path, before, statement.temporary)

    def _execute(self, statement: sql.Execute) -> Outcome:
        if statement.plan is not None:
            return self._runner.insert(plan_of_file(statement.plan, self._session), is_optimised=True)
        assert statement.statement is not None
        return self.execute(statement.statement)

    def _explain(self, statement: sql.Explain) -> Outcome:
        text = self.explained(statement, ())
        return _plain("result", [text])

    def _compile_plan(self, statement: sql.CompilePlan) -> Outcome:
        keeps = statement.if_not_exists or statement.execute
        stored(statement.file, compiled(self._plannable(statement.statement), self._session), self._session, keeps)
        if not statement.execute:
            return stored_outcome(OK)
        return self._runner.insert(plan_of_file(statement.file, self._session), is_optimised=True)

    def compiled(self, statement: sql.Statement) -> tuple[Sink, ...]:
        """The plan of an INSERT or a statement set, for storage."""
        return compiled(self._plannable(statement), self._session)

    def _plannable(self, statement: sql.Statement) -> list[Sink]:
        sinks = None if isinstance(statement, sql.CreateTable) else self.sinks_of(statement)
        if sinks is None:
            raise problem("COMPILE PLAN takes an INSERT or a STATEMENT SET: nothing else can be stored", statement)
        return sinks

    def _set(self, statement: sql.SetOption) -> Outcome:
        if statement.key is None:
            rows = sorted(redacted_options(self._config.to_map()).items())
            return stored_outcome(text_rows(["key", "value"], rows))
        assert statement.value is not None
        check_key(statement.key, at=str(here()))  # an unknown key would fail all later jobs
        self._config.set(statement.key, statement.value)
        return stored_outcome(OK)

    def _reset(self, statement: sql.ResetOption) -> Outcome:
        keys = [statement.key] if statement.key is not None else sorted(self._config.to_map())
        for key in keys:
            self._config.get_configuration().remove_config(key)
        return stored_outcome(OK)

    def _drop(self, statement: sql.Drop) -> Outcome:
        if statement.kind == "MATERIALIZED TABLE":
            return stored_outcome(self._materialized.drop(statement))
        return stored_outcome(run(statement, self._session) or OK)

    def _alter(self, statement: sql.Alter) -> Outcome:
        if statement.kind == "MATERIALIZED TABLE":
            return stored_outcome(self._materialized.alter(statement))
        return stored_outcome(run(statement, self._session) or OK)

    def _show(self, statement: sql.Show) -> Outcome:
        if statement.kind == "MATERIALIZED TABLES":
            return stored_outcome(self._materialized.show(statement))
        if statement.kind == "CREATE MATERIALIZED TABLE":
            return stored_outcome(self._materialized.show_create(statement))
        if statement.kind == "JOBS":
            return stored_outcome(show_jobs(self._runner))
        result = run(statement, self._session)
        if result is None:
            raise NotYetError.of(f"SHOW {statement.kind}", LATER)
        return stored_outcome(result)

    def _describe(self, statement: sql.Describe) -> Outcome:
        if statement.kind == "JOB":
            return stored_outcome(describe_job(self._runner, statement))
        return stored_outcome(run(statement, self._session) or OK)

    def _stop_job(self, statement: sql.StopJob) -> Outcome:
        return stored_outcome(stop_job(self._runner, statement))

    def _jar(self, statement: sql.JarStatement) -> Outcome:
        word = f"{statement.action} JAR"
        warn_once(word, f"{word} has no effect: there is no JVM, and connectors need no jars", here())
        return stored_outcome(OK)

    def _module(self, statement: sql.Module) -> Outcome:
        raise NotAvailableError(
            f"{statement.action} MODULE is not available: modules are Java objects, and all built-in functions are in "
            "'core'. Register functions of your own by CREATE FUNCTION … LANGUAGE PYTHON"
        )

    def _modify(self, statement: sql.Modify) -> Outcome:
        instead = "write the remaining rows into another table: INSERT INTO … SELECT … WHERE"
        raise NotYetError.of(f"{statement.kind} of a table", LATER, instead)

    def _analyze(self, statement: sql.AnalyzeTable) -> Outcome:
        raise NotAvailableError("ANALYZE TABLE is not available: the planner uses no statistics. Leave it out")

    def _model(self, statement: sql.CreateModel) -> Outcome:
        raise NotAvailableError(f"CREATE MODEL is not available: {NO_MODELS}")

    def _connection(self, statement: sql.CreateConnection) -> Outcome:
        raise NotAvailableError(
            "CREATE CONNECTION is not available: set addresses and credentials in the options of a table, WITH (…)"
        )

    def _procedure(self, statement: sql.CallProcedure) -> Outcome:
        raise NotAvailableError(
            f"CALL {'.'.join(statement.name)} is not available: procedures belong to Java catalogs. Call a Python "
            "function in the program instead"
        )

    def _client(self, statement: sql.ClientCommand) -> Outcome:
        raise problem(f"{statement.word} is a command of the SQL client: run it there (millstream sql)", statement)


def stored_outcome(result: StatementResult) -> Outcome:
    """The outcome of a catalog statement."""
    source = StoredRows(result.rows, TableRowType(result.schema.row_type))
    kind = ResultKind.SUCCESS if result.is_ok else ResultKind.SUCCESS_WITH_CONTENT
    return Outcome(result.schema, source, kind, is_plain=result.is_ok)


def _plain(name: str, lines: list[str]) -> Outcome:
    """Text lines, displayed unchanged."""
    schema = Schema((Field(name, _TEXT),))
    return Outcome(schema, StoredRows([[line] for line in lines], TableRowType(schema.row_type)), is_plain=True)


_ACTS: dict[type, Callable[[StatementRunner, Any], Outcome]] = {
    sql.QueryStatement: StatementRunner._query,
    sql.Insert: StatementRunner._insert,
    sql.StatementSet: StatementRunner._statement_set,
    sql.CreateTable: StatementRunner._create_table,
    sql.Execute: StatementRunner._execute,
    sql.Explain: StatementRunner._explain,
    sql.CompilePlan: StatementRunner._compile_plan,
    sql.Drop: StatementRunner._drop,
    sql.Alter: StatementRunner._alter,
    sql.SetOption: StatementRunner._set,
    sql.ResetOption: StatementRunner._reset,
    sql.Show: StatementRunner._show,
    sql.Describe: StatementRunner._describe,
    sql.StopJob: StatementRunner._stop_job,
    sql.JarStatement: StatementRunner._jar,
    sql.Module: StatementRunner._module,
    sql.Modify: StatementRunner._modify,
    sql.AnalyzeTable: StatementRunner._analyze,
    sql.CreateModel: StatementRunner._model,
    sql.CreateConnection: StatementRunner._connection,
    sql.CallProcedure: StatementRunner._procedure,
    sql.ClientCommand: StatementRunner._client,
}
