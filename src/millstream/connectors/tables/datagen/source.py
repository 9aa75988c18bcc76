"""The source of generated rows: each row, and the time at which it is due, is a function of its number.

An offset is the number of the next row of a split, and the start time of the table, which the clock of the first epoch
sets and every manifest stores: so a regenerated row has the same times. Rows are due at the rate of
the table; without one, all are due at the start time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.connectors.contracts import Offset, Read, SourceContext, Split
from millstream.connectors.program_sources import NumberedSource
from millstream.connectors.tables.datagen.fields import GeneratedField, Rows
from millstream.expressions.nested_types import RowType
from millstream.records.table_type import TableRowType

__all__ = ["DatagenSource"]


class DatagenSource(NumberedSource):
    """Generated rows; `count` of them, or unbounded."""

    keeps_starts = True

    def __init__(
        self, row_type: RowType, fields: Sequence[GeneratedField], count: int | None, rate_per_second: float | None
    ) -> None:
        super().__init__(count, rate_per_second)
        self.type_info = TableRowType(row_type)
        self._schema = row_type.schema
        self._fields = tuple(fields)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        start = {"row": 0, "began_ms": context.now_ms}
        return [Split(split.name, start, split.info) for split in super().splits(context)]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return {**offset, "row": super().reach(split, offset["row"], budget, context)}

    def finished(self, split: Split, offset: Offset) -> bool:
        return super().finished(split, offset["row"])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for numbers in self._numbers(split, start["row"], stop["row"]):
            at = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
            rows = Rows(at, self._due_ms(at, start["began_ms"]))
            yield pa.RecordBatch.from_arrays([field.column(rows) for field in self._fields], schema=self._schema)
        return stop

    def _due_ms(self, numbers: np.ndarray, began_ms: int) -> np.ndarray:
        if self.rate_per_second is None:
            return np.full(len(numbers), began_ms, dtype=np.int64)
        return began_ms + (numbers * (1_000 / self.rate_per_second)).astype(np.int64)
