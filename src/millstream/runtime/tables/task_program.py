"""Expressions in a task: compiled once when the operator is created, and evaluated on batches in the context of the
epoch.

A failing evaluation fails the epoch, and the error names the operator, the expression and the record. The program's
functions in them open and close with the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from millstream.errors import MillstreamError
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import RowExpression, UserCall, walk
from millstream.graph.table_nodes import TableSession
from millstream.records.batch import Batch
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.draws import Draws
from millstream.runtime.expressions.frames import DistinctResults
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.runtime.expressions.program import Result
from millstream.runtime.operators import user_code

__all__ = ["TaskProgram", "functions_in"]


def functions_in(*expressions: RowExpression | None) -> Iterator[Any]:
    """The distinct user functions in expressions."""
    seen = set()
    for whole in expressions:
        for part in walk(whole) if whole is not None else ():
            if isinstance(part, UserCall):
                function = getattr(part.function, "function", part.function)
                if id(function) not in seen:
                    seen.add(id(function))
                    yield function


class TaskProgram:
    """Expressions over the columns of an operator's input, in one subtask."""

    def __init__(
        self,
        outputs: Sequence[RowExpression],
        input_types: Sequence[DataType],
        condition: RowExpression | None,
        session: TableSession,
        call: user_code.UserCall,
        draws: Draws | None = None,
    ) -> None:
        self._session, self._call, self._width, self._draws = session, call, len(input_types), draws
        self._results: DistinctResults = {}
        with call.running("expressions"):
            self._program = compile_program(outputs, input_types, condition)

    def run(
        self, batch: Batch, now_ms: int, watermark_ms: int | None, role: str, *, emit_dictionaries: bool = False
    ) -> Result:
        """The output columns of the rows that satisfy the condition; strings are dictionary-encoded if allowed."""
        session = self._session
        if self._draws is not None:
            self._draws.next_batch(len(batch))
        facts = SessionFacts(
            session.zone,
            now_ms * 1_000,
            watermark_ms,
            session.catalog,
            session.database,
            self._draws,
            session.options,
        )
        try:
            columns = batch.coded_columns().columns[: self._width]
            return self._program.run(columns, len(batch), facts, self._results, emit_dictionaries=emit_dictionaries)
        except MillstreamError as error:
            row = getattr(error, "row", None)
            record = tuple(batch.slice(row, 1).values()) if isinstance(row, int) and 0 <= row < len(batch) else ()
            raise self._call.failed(error, role, record) from error
        except Exception as error:
            raise self._call.failed(error, role) from error
