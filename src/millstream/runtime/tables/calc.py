"""Filters rows and computes expressions. Nothing runs per row except the program's functions.

Timestamps and row kinds are passed on with the remaining rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from millstream.graph.table_nodes import Calc
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, typed_schema
from millstream.runtime.expressions.draws import Draws
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.random_sequences import random_sequences
from millstream.runtime.tables.task_program import TaskProgram, functions_in
from millstream.runtime.task.spec import EpochSpec

__all__ = ["CalcOperator"]


class CalcOperator(Operator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, Calc) and output_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._draws = Draws(setting.facts.job_id, self.uid, setting.context.subtask)
        self._sequences = random_sequences(
            self._draws, setting.context.subtask, *operation.expressions, operation.condition
        )
        self._program = TaskProgram(
            operation.expressions, operation.input_types, operation.condition, operation.session, self.call, self._draws
        )

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._draws.begin(spec.epoch)

    def user_functions(self) -> Iterable[Any]:
        return functions_in(*self._operation.expressions, self._operation.condition)

    def stateful(self) -> Any:
        return self._sequences

    def apply(self, batch: Batch) -> Batch | None:
        result = self._program.run(batch, self.time.now_ms, self.time.watermark, "expression", emit_dictionaries=True)
        chosen, stamps = result.selected, batch.timestamps
        if chosen is not None:
            if not len(chosen):
                return None
            stamps = None if stamps is None else stamps[chosen]
        columns, schema = result.columns, self._schema
        input_columns = batch.coded_columns()
        kinds = input_columns.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0:
            column = input_columns.column(kinds)
            columns = [*columns, column if chosen is None else column.take(pa.array(chosen))]
            schema = schema.append(pa.field(KIND_COLUMN, pa.int8()))
        if any(isinstance(column, pa.DictionaryArray) for column in columns):
            schema = pa.schema([field.with_type(each.type) for field, each in zip(schema, columns, strict=True)])
        return Batch.of_coded_columns(pa.RecordBatch.from_arrays(columns, schema=schema), self._type, stamps)
