"""`TablePipeline`: a query with its target table, not yet run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.graph.site import refuse
from millstream.planner.entries import TableEntry
from millstream.planner.passes import optimised
from millstream.planner.relations import Sink
from millstream.pyflink_names import add_pyflink_names
from millstream.table.catalogs.objects import ObjectIdentifier
from millstream.table.explain_detail import ExplainDetail
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    from millstream.table.compiled_plan import CompiledPlan
    from millstream.table.table_environment import TableEnvironment

__all__ = ["TablePipeline"]


class TablePipeline:
    """The result of `Table.insert_into`."""

    def __init__(self, j_table_pipeline: Any, t_env: TableEnvironment) -> None:
        if not isinstance(j_table_pipeline, Sink):
            raise refuse("TablePipeline: Table.insert_into(...) gives one")
        self._sink = j_table_pipeline
        self._t_env = t_env

    def execute(self) -> TableResult:
        """Runs the query as a job, concurrently with the program."""
        with at_users_line():
            return TableResult(self._t_env._runner.insert([self._sink]))

    def explain(self, *extra_details: ExplainDetail) -> str:
        """Its plan."""
        from millstream.table.operations.table_outputs import details_of

        with at_users_line():
            return self._t_env._runner.explained([self._sink], details_of(extra_details))

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Prints its plan."""
        print(self.explain(*extra_details))

    def get_sink_identifier(self) -> ObjectIdentifier | None:
        """The path of the target table; None if it is not in a catalog."""
        target = self._sink.target
        if not isinstance(target, TableEntry) or len(target.path) != 3:
            return None
        return ObjectIdentifier.of(*target.path)

    def compile_plan(self) -> CompiledPlan:
        """The plan as data that can be stored."""
        from millstream.table.compiled_plan import CompiledPlan

        with at_users_line():
            return CompiledPlan(optimised([self._sink], self._t_env._session), self._t_env)


add_pyflink_names(globals())
