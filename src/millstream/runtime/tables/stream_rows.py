"""Converts records of a stream to rows of a table. Columns that already have the table's types are passed unchanged.

A record of a ROW type is mapped by field name if the table has the same names, else by position; a tuple is mapped by
position; any other record is the only column. A value that does not fit its column fails the epoch with an error that
names the record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from millstream.common.types import Row, RowKind
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RawType, RowType
from millstream.graph.table_nodes import StreamRows
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, stream_schema
from millstream.records.shapes import plain_type
from millstream.records.table_type import TableRowType
from millstream.runtime.operators.operator import Operator, OperatorSetting

__all__ = ["StreamRowsOperator"]


class StreamRowsOperator(Operator):
    role = "rows of a table"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, StreamRows) and isinstance(output_type, TableRowType)
        self._type = output_type
        self._rowtime, self._only_grows = operation.rowtime, operation.only_grows
        fields = [field for at, field in enumerate(operation.row_type.fields) if at != operation.rowtime]
        self._record_type = TableRowType(RowType(fields, nullable=False))
        schema, fields_schema = stream_schema(output_type), stream_schema(self._record_type)
        assert schema is not None and fields_schema is not None
        self._schema, self._record_schema = schema, fields_schema
        self._order = self._places(setting.input_type)
        # A RAW column takes any Python value, tuples and dicts included.
        self._is_raw = self._order is None and [type(field.data_type) for field in fields] == [RawType]

    def _places(self, input_type: Any) -> list[int] | None:
        """The position of each column in a typed record; None if the record is a single value or untyped."""
        plain = Types.PICKLED_BYTE_ARRAY() if input_type is None else plain_type(input_type)
        names = list(self._record_schema.names)
        if isinstance(plain, RowTypeInfo) and set(names) <= set(plain.get_field_names()):
            return [plain.get_field_index(name) for name in names]
        if isinstance(plain, RowTypeInfo | TupleTypeInfo) and len(plain.get_field_types()) == len(names):
            return list(range(len(names)))
        return None

    def apply(self, batch: Batch) -> Batch:
        columns = self._columns(batch)
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        arrays = list(columns.columns[: len(self._record_schema)])
        if self._rowtime is not None:
            arrays.insert(self._rowtime, self._times(batch))
        schema = self._schema
        if kinds >= 0 and self._only_grows:
            self._reject_changes(batch, columns.column(kinds))
        elif kinds >= 0:
            arrays.append(columns.column(kinds))
            schema = schema.append(pa.field(KIND_COLUMN, pa.int8()))
        return Batch.of_columns(pa.RecordBatch.from_arrays(arrays, schema=schema), self._type, batch.timestamps)

    def _columns(self, batch: Batch) -> pa.RecordBatch:
        """The columns of the records, with their row kinds."""
        if batch.typed:
            columns = batch.columns()
            kinds = columns.schema.get_field_index(KIND_COLUMN)
            chosen = (
                [columns.column(at) for at in self._order] if self._order is not None else list(columns.columns[:1])
            )
            has_nulls = any(
                column.null_count and not field.data_type.is_nullable
                for column, field in zip(chosen, self._record_type.row_type.fields, strict=False)
            )
            if [column.type for column in chosen] == self._record_schema.types and not has_nulls:
                if kinds < 0:
                    return pa.RecordBatch.from_arrays(chosen, schema=self._record_schema)
                if not columns.column(kinds).null_count:
                    schema = self._record_schema.append(pa.field(KIND_COLUMN, pa.int8()))
                    return pa.RecordBatch.from_arrays([*chosen, columns.column(kinds)], schema=schema)
        rows = [self._row(value) for value in batch.values()]
        return self.typed(rows, None, self._record_type, "row of the table").columns()

    def _row(self, value: Any) -> Any:
        names = self._record_schema.names
        if self._is_raw:
            return (value,)
        if isinstance(value, Row):
            if value._fields is not None and set(names) <= set(value._fields):
                row = Row(*(value[name] for name in names))
                row.set_row_kind(value.get_row_kind())
                return row
            plain = Row(*value)
            plain.set_row_kind(value.get_row_kind())
            return plain
        if isinstance(value, tuple | dict):
            return value
        return (value,)

    def _reject_changes(self, batch: Batch, kinds: pa.Array) -> None:
        changed = np.asarray(pc.fill_null(pc.not_equal(kinds, RowKind.INSERT.value), False))
        if changed.any():
            row = int(changed.argmax())
            kind = RowKind(kinds[row].as_py()).name
            error = ProgramError(
                f"from_data_stream accepts only inserts, and this is a row of {kind}. Create the table with "
                "from_changelog_stream()"
            )
            raise self.call.failed(error, self.role, tuple(batch.slice(row, 1).values()))

    def _times(self, batch: Batch) -> pa.Array:
        assert self._rowtime is not None
        if batch.timestamps is None:
            error = ProgramError(
                "the table takes its rowtime from the stream, but the stream's records have no timestamps. Call "
                "assign_timestamps_and_watermarks() on it before"
            )
            raise self.call.failed(error, self.role, tuple(batch.slice(0, 1).values()))
        kind = self._schema.field(self._rowtime).type
        times = pa.array(batch.timestamps).view(pa.timestamp("ms", kind.tz))
        return times if times.type == kind else times.cast(kind)
