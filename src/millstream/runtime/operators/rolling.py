"""The operators of running aggregations: `reduce` runs per record; `sum` and the others are vectorised.

In STREAMING every record emits the current result of its key, with the record's timestamp. In BATCH only the final
result of each key is emitted, at the end of the input, in the order of the store, without a timestamp. In both modes
the state is the current result per key, so a restarted job resumes exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.rolling_columns import overflowing, roll
from millstream.aggregation.rolling_records import INTEGER_BITS, FieldReduce, mutable_copy, overflow_error
from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo
from millstream.errors import ProgramError
from millstream.graph.nodes import Reduce
from millstream.plan.operations import Rolling
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, typed_schema
from millstream.records.shapes import plain_type
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.keyed_backend import Visit
from millstream.runtime.keyed.states import ValueHandle
from millstream.runtime.operators.keyed_batches import ColumnarOperator
from millstream.runtime.operators.keyed_operator import KeyedOperator, Part, PerRecordOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.table_names import ROLLED
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import basic_type

__all__ = ["ReduceOperator", "RollingOperator"]


class _RunningOperator(KeyedOperator):
    """Emits a result per record, or in BATCH the final results at the end of the input."""

    def advance(self, watermark: int) -> int:
        ended_before = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        if self.setting.facts.batch and reached == MAX_WATERMARK and not ended_before:
            for batch in self._final_results():
                self.emit(batch)
        return reached

    def _final_results(self) -> Iterator[Batch]:
        raise NotImplementedError

    def _rows(self, table: StateTable) -> Iterator[pa.Array]:
        """All results, as columns, including the changes of this epoch."""
        with self.call.running("state"):
            table.settle()
            for rows in table.view.scan():
                yield rows.column("value")


class ReduceOperator(_RunningOperator, PerRecordOperator):
    """`reduce` with a user's function, or an aggregation without a columnar form."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, name = self.node.operation, self.node.name
        assert isinstance(operation, Reduce)
        function = operation.function
        self._first = function.first if isinstance(function, FieldReduce) else None
        # A callable with `reduce` is a reduce function only if it also has `open`: numpy's ufuncs have `reduce`.
        is_object = isinstance(function, FieldReduce) or hasattr(function, "open")
        self._reduce = function.reduce if is_object else function
        self._codec = task_codec(self.node.output_type, f"state '{ROLLED}' of '{name}'")
        table = self.backend.table(ROLLED, self.node.output_type)
        self._result = ValueHandle(table, self.backend.scope, False, self._codec)
        self.backend.keep(ROLLED, self._result)

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        values = batch.values()
        remaining = iter(values)
        out: list[Any] = []
        state, scope, step = self._result, self.backend.scope, self._step
        try:
            for scope.at, value in zip(numbers, remaining, strict=True):
                after = step(state.value(), value)
                state.update(after)
                out.append(after)
        except Exception as error:
            raise self.call.failed(error, "reduce", self.call.current(values, remaining)) from error
        if self.setting.facts.batch:
            return []
        return [(None, self.typed(out, batch.timestamps, self.node.output_type))]

    def _step(self, before: Any, value: Any) -> Any:
        if value is None:
            raise ProgramError("the record is None, which cannot be reduced. Filter such records out first")
        if before is None:
            return value if self._first is None else self._first(value)
        after = self._reduce(mutable_copy(before), value)
        if after is None:
            raise ProgramError("the reduce function returned None, expected a record like its arguments")
        return after

    def _final_results(self) -> Iterator[Batch]:
        for column in self._rows(self._result.table):
            yield self.typed(self._codec.decode(column), None, self.node.output_type)


class RollingOperator(_RunningOperator, ColumnarOperator):
    """`sum`, `min`, `max`, `min_by`, `max_by` of a typed stream, without Python code per record."""

    def __init__(self, setting: OperatorSetting) -> None:
        type_info = setting.node.output_type
        assert type_info is not None and isinstance(setting.node.operation, Rolling)
        super().__init__(setting, {ROLLED: type_info})
        self._operation = setting.node.operation
        self._type = type_info
        self._is_row = isinstance(plain_type(type_info), RowTypeInfo | TupleTypeInfo)
        self._schema = typed_schema(type_info)
        plain = plain_type(type_info)
        position = self._operation.position
        fields = plain.get_field_types() if isinstance(plain, RowTypeInfo | TupleTypeInfo) else [type_info]
        self._basic = basic_type(fields[position])
        # Other number types have no bounds that could overflow.
        self._is_strict = self._operation.is_strict and self._operation.kind == "sum" and self._basic in INTEGER_BITS

    def work(self, visit: Visit) -> Iterator[Part]:
        batch = visit.records
        self._check(batch)
        fields, before = batch.columns().columns[: len(self._schema)], self.columns()[ROLLED]
        has_result = np.asarray(before.is_valid())
        kind, position, fields_before = self._operation.kind, self._operation.position, self._fields_of(before)
        if self._is_strict:
            self._reject_overflow(
                batch, overflowing(fields[position], visit.codes, fields_before[position], has_result)
            )
        rolled = roll(kind, position, fields, visit.codes, fields_before, has_result)
        self.states[ROLLED].set(self._record_of(rolled.after))
        if not self.setting.facts.batch:
            columns = pa.RecordBatch.from_arrays(rolled.output, schema=self._schema)
            yield None, Batch.of_columns(columns, self._type, batch.timestamps)

    def _reject_overflow(self, batch: Batch, records: Int64s) -> None:
        if len(records):
            record = batch.slice(int(records[0]), 1).values()[0]
            assert self._basic is not None
            error = overflow_error(f"sum({self._operation.position})", self._basic)
            raise self.call.failed(error, "sum", (record,)) from error

    def _check(self, batch: Batch) -> None:
        """Rejects records that cannot be aggregated: None, changes other than INSERT, and None in the field itself."""
        columns, position = batch.columns(), self._operation.position
        bad: tuple[pa.Array, str] | None = None
        if columns.column(position).null_count:
            bad = (columns.column(position).is_null(), f"the value of field {position} is None")
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0:
            changes = columns.column(kinds)
            is_unfit = pa.array(np.asarray(changes.fill_null(1)) != 0)
            if is_unfit.true_count:
                bad = (is_unfit, "the record is None or no INSERT")
        if bad is not None:
            record = batch.slice(int(np.argmax(np.asarray(bad[0]))), 1).values()[0]
            what = self._operation.kind
            error = ProgramError(f"{what}: {bad[1]}, which has no {what}. Filter such records out, or map them")
            raise self.call.failed(error, what, (record,)) from error

    def _fields_of(self, records: pa.Array) -> list[pa.Array]:
        return [records.field(i) for i in range(len(self._schema))] if self._is_row else [records]

    def _record_of(self, fields: list[pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(fields, fields=list(self._schema)) if self._is_row else fields[0]

    def _final_results(self) -> Iterator[Batch]:
        for column in self._rows(self.states[ROLLED].table):
            columns = pa.RecordBatch.from_arrays(self._fields_of(column), schema=self._schema)
            yield Batch.of_columns(columns, self._type)
