"""Converts changes to rows with an operation column, and back: at most one output row per input row, without state.

Operators emit net changes (`runtime.tables.changes`), so these are the changes from one epoch to the next.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.graph.changing_nodes import ChangesAsRows, RowsAsChanges
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, typed_schema
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.changes import attach_row_kinds

__all__ = ["ChangesAsRowsOperator", "RowsAsChangesOperator"]


class ChangesAsRowsOperator(Operator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, ChangesAsRows) and output_type is not None
        self._type, self._schema = output_type, typed_schema(output_type)
        self._codes = pa.array(operation.codes, pa.string())  # by kind

    def apply(self, batch: Batch) -> Batch | None:
        columns = batch.columns()
        at = columns.schema.get_field_index(KIND_COLUMN)
        kinds = columns.column(at) if at >= 0 else pa.array(np.zeros(len(batch), dtype=np.int8))
        codes = self._codes.take(kinds)
        arrays = [*(columns.columns[:at] if at >= 0 else columns.columns), codes]
        timestamps = batch.timestamps
        if codes.null_count:
            mapped = codes.is_valid()
            arrays = [column.filter(mapped) for column in arrays]
            timestamps = None if timestamps is None else timestamps[np.asarray(mapped)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Batch.of_columns(rows, self._type, timestamps) if rows.num_rows else None


class RowsAsChangesOperator(Operator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, RowsAsChanges) and output_type is not None
        self._operation = operation
        self._type, self._schema = output_type, typed_schema(output_type)
        self._codes = pa.array([code for code, _ in operation.kinds], pa.string())
        self._kinds = np.array([kind.value for _, kind in operation.kinds], dtype=np.int64)

    def apply(self, batch: Batch) -> Batch | None:
        columns, timestamps = batch.columns(), batch.timestamps
        kinds = pc.index_in(columns.column(self._operation.op).cast(pa.string()), value_set=self._codes)
        if kinds.null_count:
            known = kinds.is_valid()
            if not self._operation.skips:
                self._refuse(batch, int(np.flatnonzero(~np.asarray(known))[0]))
            columns, kinds = columns.filter(known), kinds.filter(known)
            timestamps = None if timestamps is None else timestamps[np.asarray(known)]
            if not len(kinds):
                return None
        rows = pa.RecordBatch.from_arrays(columns.columns, schema=self._schema)
        return Batch.of_columns(attach_row_kinds(rows, self._kinds[kinds.to_numpy()]), self._type, timestamps)

    def _refuse(self, batch: Batch, row: int) -> None:
        code = batch.columns().column(self._operation.op)[row].as_py()
        known = ", ".join(repr(each) for each in self._codes.to_pylist())
        error = ProgramError(
            f"FROM_CHANGELOG: the operation {code!r} is none of {known}. Add it to op_mapping, or skip such rows: "
            "invalid_op_handling => 'SKIP'"
        )
        raise self.call.failed(error, "changelog", tuple(batch.slice(row, 1).values()))
