"""Enforces a sink table's constraints: NOT NULL columns, and lengths of strings and bytes.

Both follow Flink's options. 'table.exec.sink.not-null-enforcer' decides whether a NULL in a NOT NULL column is an error
or the row is dropped. 'table.exec.sink.type-length-enforcer' decides whether strings and bytes are trimmed to their
length (and CHAR padded with blanks, BINARY with zeros), rejected, or left unchanged.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.types import BinaryType, CharType, VarBinaryType, VarCharType
from millstream.graph.table_nodes import EnforceRows
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType
from millstream.runtime.operators.operator import Operator, OperatorSetting

__all__ = ["EnforcementOperator"]


class EnforcementOperator(Operator):
    role = "sink"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, EnforceRows) and isinstance(output_type, TableRowType)
        self._operation, self._type = operation, output_type
        fields = list(enumerate(output_type.row_type.fields))
        self._present = [(at, field.name) for at, field in fields if not field.data_type.is_nullable]
        self._sized = [(at, field.name, field.data_type) for at, field in fields if _length(field.data_type)]

    def apply(self, batch: Batch) -> Batch | None:
        valid_rows = self._without_nulls(batch)
        if valid_rows is None or self._operation.lengths == "ignore":
            return valid_rows
        columns = valid_rows.columns()
        for at, name, data_type in self._sized:
            fitted = self._fitted(valid_rows, columns.column(at), name, data_type)
            columns = columns.set_column(at, columns.schema.field(at), fitted)
        return Batch.of_columns(columns, self._type, valid_rows.timestamps)

    def _without_nulls(self, batch: Batch) -> Batch | None:
        is_valid = None
        for at, name in self._present:
            column = batch.columns().column(at)
            if not column.null_count:
                continue
            valid = np.asarray(column.is_valid())
            if self._operation.nulls == "error":
                error = ProgramError(
                    f"Column '{name}' is NOT NULL, however, a null value is being written into it. You can set job "
                    "configuration 'table.exec.sink.not-null-enforcer'='DROP' to suppress this exception and drop such "
                    "records silently"
                )
                raise self.call.failed(error, "sink", tuple(batch.slice(int(valid.argmin()), 1).values()))
            is_valid = valid if is_valid is None else is_valid & valid
        if is_valid is None:
            return batch
        rows = np.flatnonzero(is_valid)
        return batch.take(rows) if len(rows) else None

    def _fitted(self, batch: Batch, column: pa.Array, name: str, data_type: DataType) -> pa.Array:
        """A column of strings or bytes, trimmed or padded to the declared length."""
        length = _length(data_type)
        is_text, is_filled = pa.types.is_string(column.type), isinstance(data_type, CharType | BinaryType)
        lengths = pc.utf8_length(column) if is_text else pc.binary_length(column)
        wrong = pc.greater(lengths, length)
        if is_filled:
            wrong = pc.not_equal(lengths, length)
        if not pc.any(wrong).as_py():
            return column
        if self._operation.lengths == "error":
            row = int(np.asarray(wrong.fill_null(False)).argmax())
            error = ProgramError(
                f"Column '{name}' is {data_type}, however, a string or binary value of length "
                f"{lengths[row].as_py()} is being written into it. You can set job configuration "
                "'table.exec.sink.type-length-enforcer'='TRIM_PAD' to trim or pad such values"
            )
            raise self.call.failed(error, "sink", tuple(batch.slice(row, 1).values()))
        if is_text:
            cut = pc.utf8_slice_codeunits(column, 0, length)
            return pc.utf8_rpad(cut, length, " ") if is_filled else cut
        cut = pc.binary_slice(column, 0, length)
        if not is_filled:
            return cut
        return pa.array([None if v is None else v.ljust(length, b"\0") for v in cut.to_pylist()], column.type)


def _length(data_type: DataType) -> int:
    """The length of a string or bytes type; 0 if unlimited."""
    if not isinstance(data_type, CharType | VarCharType | BinaryType | VarBinaryType):
        return 0
    return 0 if data_type.sql in ("STRING", "BYTES") else data_type.length
