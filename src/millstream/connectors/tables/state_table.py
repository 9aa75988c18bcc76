"""Tables that a job keeps in its state, to be asked for live: `'connector' = 'state'`.

There is no system behind one. What is put into it is kept by the job that puts it there (`KeptTable`), and what
is asked of it is read from that job's store; so the planner makes neither a source nor a sink of this factory.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.connectors.contracts import Sink
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.errors import ProgramError
from millstream.expressions.row_expressions import RowExpression

__all__ = ["STATE_CONNECTOR", "StateFactory"]

STATE_CONNECTOR = "state"


class StateFactory(TableFactory):
    """A table in the state of a job."""

    name = STATE_CONNECTOR
    options = (TableOption("ttl", "how long a row is kept that nobody changes", default="for ever"),)

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        raise ProgramError(
            f"'{table.name}' is kept in the state of a job: it is asked by a SELECT over such tables alone, and no job "
            "reads it. Give the job the query that makes it, as a view"
        )

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        raise ProgramError(f"'{table.name}' is kept by the job itself, and has no sink")

    def takes_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ("+I", "-U", "+U", "-D")
