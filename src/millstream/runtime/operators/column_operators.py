"""Operators that process columns and never convert records to Python values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.graph.nodes import MapBatches, Project
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, checked_batch, stream_schema
from millstream.runtime.operators.operator import Operator, OperatorSetting

__all__ = ["CacheOperator", "MapBatchesOperator", "ProjectOperator"]


class CacheOperator(Operator):
    """Forwards its records. A job that reads the cache has a source in its place."""

    def apply(self, batch: Batch) -> Batch:
        return batch


class ProjectOperator(Operator):
    def apply(self, batch: Batch) -> Batch:
        assert isinstance(self.node.operation, Project) and self.node.output_type is not None
        columns = batch.columns()
        schema = stream_schema(self.node.output_type)
        assert schema is not None
        chosen = [columns.column(i) for i in self.node.operation.indexes]
        kind = columns.schema.get_field_index(KIND_COLUMN)
        if kind >= 0:
            chosen.append(columns.column(kind))
            schema = schema.append(columns.schema.field(kind))
        return Batch.of_columns(
            pa.RecordBatch.from_arrays(chosen, schema=schema), self.node.output_type, batch.timestamps
        )


class MapBatchesOperator(Operator):
    """Calls the user's function with Arrow record batches. If the row count is unchanged, rows keep their
    timestamps."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, MapBatches) and self.node.output_type is not None
        self._map = self.node.operation.function
        self._schema = stream_schema(self.node.output_type)

    def apply(self, batch: Batch) -> Batch | None:
        assert self.node.output_type is not None
        try:
            result = self._map(batch.columns())
            # The usual case costs almost nothing: one batch of the declared schema.
            as_declared = isinstance(result, pa.RecordBatch) and result.schema.equals(self._schema)
            parts = [result] if as_declared else self._parts_of(result)
        except Exception as error:
            raise self.call.failed(error, "map_batches") from error
        parts = [part for part in parts if part.num_rows]
        if not parts:
            return None
        columns = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        stamps = batch.timestamps if columns.num_rows == len(batch) else None
        return Batch.of_columns(columns, self.node.output_type, stamps)

    def _parts_of(self, result: Any) -> list[pa.RecordBatch]:
        assert self.node.output_type is not None
        return [checked_batch(part, self.node.output_type) for part in _batches(result)]


def _batches(result: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.combine_chunks().to_batches()
    elif isinstance(result, Iterable):
        for item in result:
            yield from _batches(item)
    else:
        raise ProgramError(
            "map_batches must return a pyarrow RecordBatch, a Table, or an iterable of them; "
            f"got {type(result).__name__}"
        )
