"""UNNEST: joins every row with the elements of one of its collections.

A row element is expanded to its fields, a map entry to key and value; a multiset element repeats by its multiplicity.
WITH ORDINALITY numbers the elements from 1. A row with a NULL or empty collection is dropped, or padded with NULLs with
`keeps_all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.nested_types import MapType, MultisetType, RowType
from millstream.graph.table_nodes import UnnestRows
from millstream.records.batch import Batch
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.random_sequences import random_sequences
from millstream.runtime.tables.repeated_rows import RepeatingOperator, batch_with_columns, with_missing_rows
from millstream.runtime.tables.task_program import TaskProgram, functions_in
from millstream.state.keys.hashing import Int64s

__all__ = ["UnnestOperator", "unnested"]


class UnnestOperator(RepeatingOperator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, UnnestRows)
        self._operation = operation
        self._program = TaskProgram(
            [operation.collection], operation.input_types, None, operation.session, self.call, self.draws
        )

        self._sequences = random_sequences(self.draws, setting.context.subtask, operation.collection)
        self.condition = self.join_condition(operation.condition, operation.input_types, operation.session)

    def stateful(self) -> Any:
        return self._sequences

    def user_functions(self) -> Iterable[Any]:
        return functions_in(self._operation.collection, self._operation.condition)

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        operation = self._operation
        result = self._program.run(batch, self.time.now_ms, self.time.watermark, "UNNEST")
        rows, elements, ordinals = unnested(result.columns[0], operation.collection.type)
        if operation.with_ordinality:
            elements = [*elements, pa.array(ordinals.astype(np.int32))]
        if self.condition is not None:
            matches = self.condition.matches(batch, rows, elements)
            rows, elements = rows[matches], [column.take(pa.array(matches)) for column in elements]
        if operation.keeps_all:
            rows, places = with_missing_rows(rows, len(batch))
            elements = elements if places is None else [column.take(places) for column in elements]
        for start in range(0, len(rows), self.rows_max):
            piece = slice(start, start + self.rows_max)
            columns = [column[piece] for column in elements]
            yield batch_with_columns(batch, rows[piece], columns, self.schema, self.output_type)


def unnested(collections: pa.Array, data_type: Any) -> tuple[Int64s, list[pa.Array], Int64s]:
    """For all elements of all collections: the row position, the columns, and the ordinality."""
    offsets = collections.offsets.to_numpy().astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if collections.null_count:  # ignore values under a NULL
        lengths = np.where(np.asarray(collections.is_valid()), lengths, 0)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    ordinals = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    at = pa.array(np.repeat(starts, lengths) + ordinals - 1)
    if isinstance(data_type, MapType):
        return rows, [collections.keys.take(at), collections.items.take(at)], ordinals
    if isinstance(data_type, MultisetType):
        times = collections.items.take(at).to_numpy().astype(np.int64)
        rows, values = (
            np.repeat(rows, times),
            collections.keys.take(at).take(pa.array(np.repeat(np.arange(len(at)), times))),
        )
        sizes = np.bincount(rows, minlength=len(lengths))
        ordinals = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    else:
        values = collections.values.take(at)
    return rows, _columns_of(values, data_type.element_type), ordinals


def _columns_of(values: pa.Array, element_type: Any) -> list[pa.Array]:
    """Rows as their fields, NULL where the row is NULL."""
    return list(values.flatten()) if isinstance(element_type, RowType) else [values]
