"""The source of generated rows: row i is made of its number, and is due at a moment that follows from it.

An offset is the number of the next row of a split, and the moment the table began, which is decided once, by the clock
of the first epoch, and kept in every manifest: so a row made again has the times it had. Rows are due at the rate of
the table; without one, all of them when the table began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.connectors.tables.datagen.fields import GeneratedField, Rows
from millstream.expressions.nested_types import RowType
from millstream.records.table_type import TableRowType

__all__ = ["DatagenSource"]

_BATCH_ROWS_MAX = 65_536


@dataclass(frozen=True)
class _NoFunction:
    """Rows are made in columns; nothing is called for each."""

    def __call__(self, index: int) -> None:
        raise NotImplementedError


class DatagenSource(Source):
    """Rows of fields; `count` of them, or without end."""

    keeps_starts = True

    def __init__(
        self, row_type: RowType, fields: Sequence[GeneratedField], count: int | None, rate_per_second: float | None
    ) -> None:
        self.type_info = TableRowType(row_type)
        self.bounded = count is not None
        self._schema = row_type.schema
        self._fields = tuple(fields)
        self._rate = rate_per_second
        # Which row is in which split, and how fast rows come, is what it says.
        self._numbers = DataGeneratorSource(_NoFunction(), count, rate_per_second)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [
            Split(split.name, {"row": 0, "began_ms": context.now_ms}, split.info)
            for split in self._numbers.splits(context)
        ]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return {**offset, "row": self._numbers.reach(split, offset["row"], budget, context)}

    def finished(self, split: Split, offset: Offset) -> bool:
        return self._numbers.finished(split, offset["row"])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        step = self._numbers.split_count
        for at in range(start["row"], stop["row"], _BATCH_ROWS_MAX):
            until = min(stop["row"], at + _BATCH_ROWS_MAX)
            numbers = np.arange(at, until, dtype=np.int64) * step + split.info
            rows = Rows(numbers, self._due_ms(numbers, start["began_ms"]))
            yield pa.RecordBatch.from_arrays([field.column(rows) for field in self._fields], schema=self._schema)
        return stop

    def _due_ms(self, numbers: np.ndarray, began_ms: int) -> np.ndarray:
        if self._rate is None:
            return np.full(len(numbers), began_ms, dtype=np.int64)
        return began_ms + (numbers * (1_000 / self._rate)).astype(np.int64)

    def describe(self) -> str:
        return self._numbers.describe()
