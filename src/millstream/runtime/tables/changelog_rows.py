"""Changes as rows that tell them, and such rows as changes: a row in, at most one out, nothing is kept.

What an operator gives in an epoch is net (`runtime.tables.changes`), so these are the changes between epochs.
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
            told = codes.is_valid()
            arrays = [column.filter(told) for column in arrays]
            timestamps = None if timestamps is None else timestamps[np.asarray(told)]
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
        found = pc.index_in(columns.column(self._operation.op).cast(pa.string()), value_set=self._codes)
        if found.null_count:
            known = found.is_valid()
            if not self._operation.skips:
                self._refuse(batch, int(np.flatnonzero(~np.asarray(known))[0]))
            columns, found = columns.filter(known), found.filter(known)
            timestamps = None if timestamps is None else timestamps[np.asarray(known)]
            if not len(found):
                return None
        rows = pa.RecordBatch.from_arrays(columns.columns, schema=self._schema)
        return Batch.of_columns(attach_row_kinds(rows, self._kinds[found.to_numpy()]), self._type, timestamps)

    def _refuse(self, batch: Batch, row: int) -> None:
        code = batch.columns().column(self._operation.op)[row].as_py()
        known = ", ".join(repr(each) for each in self._codes.to_pylist())
        error = ProgramError(
            f"FROM_CHANGELOG: the operation {code!r} is none of {known}. Add it to op_mapping, or leave such rows out: "
            "invalid_op_handling => 'SKIP'"
        )
        raise self.call.failed(error, "changelog", tuple(batch.slice(row, 1).values()))
