"""`StatementSet`: several INSERTs that run as one job, and share common parts of their plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.graph.site import refuse
from millstream.planner.passes import optimised
from millstream.planner.relations import Sink
from millstream.planner.statements import bind_insert
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.parser import parse_statement
from millstream.sql.statements import Insert
from millstream.table.explain_detail import ExplainDetail
from millstream.table.operations.table_outputs import details_of
from millstream.table.table import Table
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_pipeline import TablePipeline
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    from millstream.table.compiled_plan import CompiledPlan
    from millstream.table.table_environment import TableEnvironment

__all__ = ["StatementSet"]


class StatementSet:
    """INSERTs that run together."""

    def __init__(self, _j_statement_set: Any, t_env: TableEnvironment) -> None:
        self._sinks: list[Sink] = []
        self._t_env = t_env

    def add(self, table_pipeline: TablePipeline) -> StatementSet:
        """Adds a table's rows with their target."""
        if not isinstance(table_pipeline, TablePipeline):
            raise refuse(f"add: found {table_pipeline!r}, expected table.insert_into(path)")
        self._sinks.append(table_pipeline._sink)
        return self

    def add_insert_sql(self, stmt: str) -> StatementSet:
        """Adds an INSERT INTO statement."""
        with at_users_line():
            statement = parse_statement(stmt)
            if not isinstance(statement, Insert):
                raise refuse(f"add_insert_sql: found {stmt.strip()[:60]!r}, expected an INSERT INTO statement")
            self._sinks.append(bind_insert(statement, self._t_env._session))
        return self

    def add_insert(
        self, target_path_or_descriptor: str | TableDescriptor, table: Table, overwrite: bool = False
    ) -> StatementSet:
        """Adds a table's rows with their target table."""
        if not isinstance(table, Table):
            raise refuse(f"add_insert: found {table!r} as the rows, expected a table. The order is path, table")
        return self.add(table.insert_into(target_path_or_descriptor, overwrite))

    def attach_as_datastream(self) -> None:
        """Adds the INSERTs to the program's streams: they run with the job of `env.execute()`."""
        with at_users_line():
            self._t_env._runner.attach(self._removed_sinks())

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plan of the INSERTs."""
        with at_users_line():
            return self._t_env._runner.explained(self._sinks, details_of(extra_details))

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Prints the plan of the INSERTs."""
        print(self.explain(*extra_details))

    def execute(self) -> TableResult:
        """Runs all INSERTs as one job, concurrently with the program, and empties the set."""
        with at_users_line():
            return TableResult(self._t_env._runner.insert(self._removed_sinks()))

    def _removed_sinks(self) -> list[Sink]:
        sinks, self._sinks = self._sinks, []
        return sinks

    def compile_plan(self) -> CompiledPlan:
        """The plan as data that can be stored."""
        from millstream.table.compiled_plan import CompiledPlan

        with at_users_line():
            return CompiledPlan(optimised(self._sinks, self._t_env._session), self._t_env)


add_pyflink_names(globals())
