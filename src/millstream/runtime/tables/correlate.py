"""Joins every row with the rows that a table function of the program returns for it (LATERAL TABLE).

The function is called once per row, with values of PyFlink's types, and yields rows: a `Row` or tuple for several
columns, a value for one. The results of a batch are converted to columns together. A row without results is dropped, or
padded with NULLs with `keeps_all`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.errors import ProgramError
from millstream.graph.table_nodes import Correlate
from millstream.records.batch import Batch
from millstream.records.columns import from_record_batch, stream_schema
from millstream.records.table_type import TableRowType, TableValueType
from millstream.records.unpickling import unpickled
from millstream.runtime.expressions.declared_results import first_violation
from millstream.runtime.expressions.expression_errors import shown_call
from millstream.runtime.expressions.python_values import rows_with_whole_numbers
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.random_sequences import random_sequences
from millstream.runtime.tables.repeated_rows import RepeatingOperator, batch_with_columns, with_missing_rows
from millstream.runtime.tables.task_program import TaskProgram, functions_in

__all__ = ["CorrelateOperator"]

_ROLE = "table function"


class CorrelateOperator(RepeatingOperator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, Correlate)
        self._operation = operation
        self._program = TaskProgram(
            operation.arguments, operation.input_types, None, operation.session, self.call, self.draws
        )
        self._arguments = Types.TUPLE([TableValueType(each.type.nullable()) for each in operation.arguments])
        self._results = TableRowType(operation.result_type)
        self._sequences = random_sequences(self.draws, setting.context.subtask, *operation.arguments)
        self.condition = self.join_condition(operation.condition, operation.input_types, operation.session)
        self._evaluate: Callable[..., Any] = operation.function.call

    def stateful(self) -> Any:
        return self._sequences

    def user_functions(self) -> Iterable[Any]:
        yield self._operation.function.function
        yield from functions_in(*self._operation.arguments, self._operation.condition)

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        counts: list[int] = []
        results: list[Any] = []
        first = 0
        for row, arguments in enumerate(self._argument_rows(batch)):
            before = len(results)
            try:
                self._call_with(arguments, results)
            except Exception as error:
                call = shown_call(self._operation.function.name, arguments)
                raise self.call.failed(error, _ROLE, tuple(batch.slice(row, 1).values()), call) from error
            counts.append(len(results) - before)
            if len(results) >= self.rows_max:
                yield self._joined(batch.slice(first, len(counts)), counts, results)
                first, counts, results = row + 1, [], []
        yield self._joined(batch.slice(first, len(counts)), counts, results)

    def _joined(self, batch: Batch, counts: list[int], results: list[Any]) -> Batch:
        """Rows joined with the results of their calls; `counts` is the number of results per row."""
        rows = np.repeat(np.arange(len(batch)), counts)
        function = self._operation.function
        results = rows_with_whole_numbers(results, self._operation.result_type.types, function)
        columns = self.typed(results, None, self._results, "result of the table function").columns().columns
        for column, field in zip(columns, self._operation.result_type.fields, strict=True):
            if (broken := first_violation(column, field.data_type)) is not None:
                raise ProgramError(f"the table function {self._operation.function.name}: {broken[1]}")
        if self.condition is not None:
            matches = self.condition.matches(batch, rows, columns)
            rows, columns = rows[matches], [column.take(pa.array(matches)) for column in columns]
        if self._operation.keeps_all:
            rows, places = with_missing_rows(rows, len(batch))
            columns = columns if places is None else [column.take(places) for column in columns]
        return batch_with_columns(batch, rows, columns, self.schema, self.output_type)

    def _argument_rows(self, batch: Batch) -> list[Any]:
        """The arguments of every call."""
        if not self._operation.arguments:
            return [()] * len(batch)
        columns = self._program.run(batch, self.time.now_ms, self.time.watermark, _ROLE).columns
        schema = stream_schema(self._arguments)
        return from_record_batch(pa.RecordBatch.from_arrays(columns, schema=schema), self._arguments, unpickled)

    def _call_with(self, arguments: tuple[Any, ...], results: list[Any]) -> None:
        """Append the results of one call."""
        returned = self._evaluate(*arguments)
        if returned is None:
            return
        is_single = len(self._operation.result_type.fields) == 1
        if isinstance(returned, Row | tuple | str | bytes) or not isinstance(returned, Iterable):
            returned = [returned]  # a single row returned instead of yielded, which PyFlink accepts
        for result in returned:
            if is_single and not isinstance(result, Row | tuple):
                results.append((result,))
            elif isinstance(result, Row | tuple | list):
                results.append(result)
            else:
                raise ProgramError(
                    f"the table function returned {result!r} ({type(result).__name__}), expected a Row or tuple of "
                    f"{len(self._operation.result_type.fields)} values"
                )
