"""`TableResult`: the result of a statement: its rows, the job that computes them, and its kind."""

from __future__ import annotations

import os
import sys
from typing import Any

from millstream.common.job_client import JobClient
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.table.catalogs.resolved_schema import ResolvedSchema
from millstream.table.result_kind import ResultKind
from millstream.table.results.outcome import Outcome
from millstream.table.results.row_iterator import CloseableIterator
from millstream.table.table_schema import TableSchema

__all__ = ["CloseableIterator", "TableResult"]


class TableResult:
    """The result of a statement. Its rows can be read once, with `collect` or `print`."""

    def __init__(self, j_table_result: Any) -> None:
        if not isinstance(j_table_result, Outcome):
            raise refuse("TableResult: execute_sql(), Table.execute() and StatementSet.execute() give one")
        self._outcome = j_table_result

    def get_job_client(self) -> JobClient | None:
        """A handle on the job; None if no job was needed."""
        job = self._outcome.source.job
        return None if job is None else JobClient(job)

    def wait(self, timeout_ms: int | None = None) -> None:
        """Waits until rows can be read, or until an INSERT is done. Raises the job's failure."""
        if timeout_ms is not None and (isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int)):
            raise refuse(f"wait: found {timeout_ms!r}, expected milliseconds, or None for no limit")
        if not self._outcome.source.wait(None if timeout_ms is None else timeout_ms / 1000):
            raise TimeoutError(f"no result after {timeout_ms} ms; the job continues")

    def get_table_schema(self) -> TableSchema:
        """The columns of the result."""
        return TableSchema(list(self._outcome.schema.names), list(self._outcome.schema.types))

    def get_resolved_schema(self) -> ResolvedSchema:
        """The columns of the result."""
        return ResolvedSchema.physical(self._outcome.schema.names, self._outcome.schema.types)

    def get_result_kind(self) -> ResultKind:
        """Whether the result has rows, or only reports success."""
        return self._outcome.kind

    def collect(self) -> CloseableIterator:
        """The rows, as they arrive. Closing the iterator, also by a `with` block, ends the job."""
        return CloseableIterator(self._outcome.source, type_info=self._outcome.type_info)

    def print(self) -> None:
        """Prints the rows as a table until they end; never returns for unbounded input."""
        try:
            for line in self._outcome.lines():
                print(line, flush=True)
        except BrokenPipeError:
            # The reader has closed the pipe (as `| head` does): end the job, and avoid a second error when Python
            # exits.
            self._outcome.source.close()
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            self._outcome.source.close()
            raise


add_pyflink_names(globals())
