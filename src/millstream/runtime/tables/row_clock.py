"""The event times of rows and the watermark of a source, from expressions over its columns (WATERMARK FOR … AS …).

The expressions run over a whole batch. A row without a time is rejected, as in Flink; a NULL watermark is ignored. The
watermark of a batch is the largest watermark of its rows; nothing is subtracted from the user's expression.

A delete that carries only a key has no time, since its other columns are empty. It gets the smallest time, which is
replaced by the original one when the row is completed (`normalise`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.types import RowKind
from millstream.errors import ProgramError
from millstream.graph.table_nodes import ColumnWatermarks
from millstream.graph.time_columns import time_column
from millstream.records.batch import Batch, Timestamps
from millstream.records.columns import KIND_COLUMN
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.operators.user_code import UserCall
from millstream.runtime.tables.task_program import TaskProgram
from millstream.state.keys.key_columns import Bools

__all__ = ["RowClock"]

_ROLE = "watermark"
_PER_MS = {"us": 1_000, "ns": 1_000_000}


class RowClock:
    """Computes the times of batches of one source; compiled once for all its splits."""

    def __init__(self, strategy: ColumnWatermarks, call: UserCall) -> None:
        self._strategy, self._call = strategy, call
        self._program = TaskProgram(
            [strategy.rowtime, strategy.watermark], strategy.input_types, None, strategy.session, call
        )
        self._time_column = time_column(strategy.rowtime, strategy.watermark)
        self._delay: int | None = None  # a row's watermark minus its time, once known

    def times(self, batch: Batch, now_ms: int) -> tuple[Timestamps, int | None]:
        """The time of every row, and the watermark after them; None if the expressions yield none."""
        moments = self._plain_moments(batch)
        if moments is not None:
            numbers: Timestamps = moments.view(pa.int64()).to_numpy()
            return _ms(numbers, moments.type), self._mark_of_latest(batch, numbers, moments.type, now_ms)
        moments, marks = self._program.run(batch, now_ms, None, _ROLE).columns
        absent = np.asarray(moments.is_null())
        if (missing := absent & ~_deletes(batch)).any():
            row = int(missing.argmax())
            error = ProgramError(
                f"the rowtime '{self._strategy.name}' of this row is NULL: RowTime field should not be null. Filter "
                "such rows out before, or give the column a value"
            )
            raise self._call.failed(error, _ROLE, tuple(batch.slice(row, 1).values()))
        times = _ms(moments.view(pa.int64()).fill_null(0).to_numpy(), moments.type)
        return np.where(absent, MIN_WATERMARK, times), _largest_ms(marks)

    def _plain_moments(self, batch: Batch) -> pa.Array | None:
        """The time column, if the latest row has the largest watermark; None if every row must be evaluated."""
        if self._time_column is None or not len(batch):
            return None
        moments = batch.coded_columns().column(self._time_column)
        return None if moments.null_count else moments

    def _mark_of_latest(self, batch: Batch, numbers: Timestamps, kind: pa.DataType, now_ms: int) -> int | None:
        """The watermark of the latest row. Its distance from the row's time is constant, so the first one determines
        all."""
        if self._delay is not None:
            mark = int(numbers.max()) + self._delay
            if -(2**63) <= mark < 2**63:
                return int(_ms(mark, kind))
        latest = int(numbers.argmax())
        marks = self._program.run(batch.slice(latest, 1), now_ms, None, _ROLE).columns[1]
        if marks.type == kind and not marks.null_count:
            self._delay = int(marks.view(pa.int64())[0].as_py()) - int(numbers[latest])
        return _largest_ms(marks)


def _deletes(batch: Batch) -> Bools:
    """Mask of delete rows that carry only a key."""
    columns = batch.coded_columns()
    at = columns.schema.get_field_index(KIND_COLUMN)
    if at < 0:
        return np.zeros(len(batch), dtype=np.bool_)
    is_delete: Bools = columns.column(at).to_numpy(zero_copy_only=False) == RowKind.DELETE.value
    return is_delete


def _largest_ms(marks: pa.Array) -> int | None:
    latest = pc.max(marks)
    return int(_ms(latest.cast(pa.int64()).as_py(), marks.type)) if latest.is_valid else None


def _ms(numbers: Any, kind: pa.DataType) -> Any:
    """One or many times of this type as milliseconds since 1970, rounded down."""
    if kind.unit == "s":
        return numbers * 1_000
    return numbers if kind.unit == "ms" else numbers // _PER_MS[kind.unit]
