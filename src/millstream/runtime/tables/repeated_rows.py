"""Base of operators that turn a row into several: repeats the input's columns and appends new ones.

Shared by window TVFs, UNNEST and table functions. Timestamps and row kinds are repeated with the rows. One row may
yield very many: results are produced and emitted in pieces, so that memory use is bounded by the input.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import RowExpression
from millstream.graph.table_nodes import TableSession
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, stream_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.expressions.draws import Draws
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.task_program import TaskProgram
from millstream.runtime.task.spec import EpochSpec
from millstream.state.keys.hashing import Int64s

__all__ = ["JoinCondition", "RepeatingOperator", "batch_with_columns", "with_missing_rows"]


class RepeatingOperator(Operator):
    """An operator that turns a row into several. `pieces` yields them, in batches of about `rows_max` at most."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        output_type = self.node.output_type
        assert output_type is not None
        schema = stream_schema(output_type)
        assert schema is not None
        self.output_type, self.schema = output_type, schema
        self.rows_max = setting.facts.batch_records_max
        self.draws = Draws(setting.facts.job_id, self.uid, setting.context.subtask)
        self.condition: JoinCondition | None = None

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self.draws.begin(spec.epoch)
        if self.condition is not None:
            self.condition.begin(spec.epoch)

    def join_condition(
        self, condition: RowExpression | None, input_types: Sequence[DataType], session: TableSession
    ) -> JoinCondition | None:
        """The condition of a join of rows with their results, if there is one."""
        if condition is None:
            return None
        assert isinstance(self.output_type, TableRowType)
        types = [*input_types, *self.output_type.row_type.types[len(input_types) :]]
        return JoinCondition(condition, types, session, self)

    def stateful(self) -> Any:
        return None

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        """The results of a batch."""
        raise NotImplementedError

    def take(self, batch: Batch) -> None:
        self.records_in += len(batch)
        results = self.pieces(batch)
        while True:
            started = time.perf_counter_ns()
            piece = next(results, None)
            self.busy_ns += time.perf_counter_ns() - started
            if piece is None:
                return
            if len(piece):
                self.emit(piece)


class JoinCondition:
    """The condition of a join of rows with their results, over the columns of both."""

    def __init__(
        self,
        condition: RowExpression,
        types: Sequence[DataType],
        session: TableSession,
        operator: RepeatingOperator,
    ) -> None:
        self._operator = operator
        setting = operator.setting
        self._draws = Draws(setting.facts.job_id, operator.uid, setting.context.subtask, "condition")
        self._program = TaskProgram([condition], types, None, session, operator.call, self._draws)

    def begin(self, epoch: int) -> None:
        self._draws.begin(epoch)

    def matches(self, batch: Batch, rows: Int64s, columns: Sequence[pa.Array]) -> Int64s:
        """The positions in `rows`, indices of rows of the batch, whose results in `columns` satisfy the condition."""
        operator = self._operator
        places = [np.zeros(0, np.int64)]
        for start in range(0, len(rows), operator.rows_max):
            piece = slice(start, start + operator.rows_max)
            chosen = [column[piece] for column in columns]
            pairs = batch_with_columns(batch, rows[piece], chosen, operator.schema, operator.output_type)
            clock = operator.time
            (truth,) = self._program.run(pairs, clock.now_ms, clock.watermark, "join condition").columns
            places.append(start + np.flatnonzero(truth.fill_null(False).to_numpy(zero_copy_only=False)))
        return np.concatenate(places)


def batch_with_columns(
    batch: Batch,
    rows: Int64s | None,
    new_columns: Sequence[pa.Array],
    schema: pa.Schema,
    type_info: TypeInformation,
    timestamps: Int64s | None = None,
) -> Batch:
    """The rows at `rows` (None: all rows, once), each with its values of `new_columns`; with new `timestamps`, or the
    rows' own."""
    columns, stamps = batch.columns(), batch.timestamps
    if rows is not None:
        columns = columns.take(pa.array(rows))
        stamps = None if stamps is None else stamps[rows]
    arrays, kinds = columns.columns, columns.schema.get_field_index(KIND_COLUMN)
    if kinds >= 0:
        arrays = [*arrays[:kinds], *new_columns, arrays[kinds]]
        schema = schema.append(pa.field(KIND_COLUMN, pa.int8()))
    else:
        arrays = [*arrays, *new_columns]
    result = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Batch.of_columns(result, type_info, stamps if timestamps is None else timestamps)


def with_missing_rows(rows: Int64s, count: int) -> tuple[Int64s, pa.Array | None]:
    """Row numbers from 0 to `count` - 1, in order, including missing ones; and the position of each in `rows`, NULL for
    missing ones (None: positions are unchanged).

    >>> with_missing_rows(np.array([0, 2, 2]), 4)[1].to_pylist()
    [0, None, 1, 2, None]
    """
    missing = np.setdiff1d(np.arange(count), rows)
    if not len(missing):
        return rows, None
    every = np.concatenate([rows, missing])
    order = np.argsort(every, kind="stable")
    return every[order], pa.array(order, mask=order >= len(rows))
