"""The outputs of a table: the screen, the program, other tables, pandas, or EXPLAIN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.planner.relations import Relation, Sink
from millstream.table.explain_detail import ExplainDetail
from millstream.table.results.frames import frame_of
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_pipeline import TablePipeline
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    import pandas as pd

    from millstream.table.table_environment import TableEnvironment

__all__ = ["TableOutputs", "details_of"]


class TableOutputs:
    """The methods of a table that run or explain it."""

    _relation: Relation
    _t_env: TableEnvironment

    def execute(self) -> TableResult:
        """Runs the query; the program reads its rows."""
        with at_users_line():
            return TableResult(self._t_env._runner.collect(self._relation))

    def execute_insert(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TableResult:
        """Writes the rows into a table, as a job that runs concurrently with the program. The result can be awaited."""
        with at_users_line():
            return TableResult(self._t_env._runner.insert([self._sink(table_path_or_descriptor, overwrite)]))

    def insert_into(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TablePipeline:
        """The rows and their target table; its `execute`, or that of a statement set, writes them."""
        with at_users_line():
            return TablePipeline(self._sink(table_path_or_descriptor, overwrite), self._t_env)

    def _sink(self, target: str | TableDescriptor, overwrite: bool) -> Sink:
        if isinstance(target, TableDescriptor):
            entry = self._t_env._entry_of(target)
            return operations.sink_entry(self._relation, entry, overwrite=overwrite)
        if not isinstance(target, str):
            raise refuse(f"found {target!r} as the table, expected its path as text, or a TableDescriptor")
        return operations.sink(self._relation, self._t_env._path(target), self._t_env._session, overwrite)

    def to_pandas(self) -> pd.DataFrame:
        """Runs the query to completion, and returns its rows as a pandas DataFrame."""
        with at_users_line():
            return frame_of(self._t_env._runner.collect(self._relation))

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The query's syntax tree and its plan."""
        with at_users_line():
            return self._t_env._runner.explained_query(self._relation, details_of(extra_details))

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Prints the query's plan."""
        print(self.explain(*extra_details))


def details_of(details: tuple[Any, ...]) -> list[str]:
    """The names of the requested details."""
    if wrong := [detail for detail in details if not isinstance(detail, ExplainDetail)]:
        raise refuse(f"explain: found {wrong[0]!r}, expected one of ExplainDetail")
    return [detail.name for detail in details]
