"""The event time of rows and the watermark of a source, as expressions over its columns say (WATERMARK FOR … AS …).

A batch is read at once. A row without a time is refused, as in Flink; a watermark that is NULL says nothing. The
watermark of a batch is the largest of its rows': it is the user's own promise, and nothing is taken off it.

A row that only says by its key that it is gone has no time, as it has no other column: it comes before all times, and
gets the time it had where it is made whole (`normalise`).
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
    """Reads the times of batches of one source, compiled once for all its splits."""

    def __init__(self, strategy: ColumnWatermarks, call: UserCall) -> None:
        self._strategy, self._call = strategy, call
        self._program = TaskProgram(
            [strategy.rowtime, strategy.watermark], strategy.input_types, None, strategy.session, call
        )
        self._time_column = time_column(strategy.rowtime, strategy.watermark)
        self._while: int | None = None  # from a row's time to its watermark, once it is known

    def times(self, batch: Batch, now_ms: int) -> tuple[Timestamps, int | None]:
        """The time of every row, and the watermark behind them (None: they give none)."""
        moments = self._plain_moments(batch)
        if moments is not None:
            numbers: Timestamps = moments.view(pa.int64()).to_numpy()
            return _ms(numbers, moments.type), self._mark_of_latest(batch, numbers, moments.type, now_ms)
        moments, marks = self._program.run(batch, now_ms, None, _ROLE).columns
        absent = np.asarray(moments.is_null())
        if (refused := absent & ~_are_gone(batch)).any():
            row = int(refused.argmax())
            error = ProgramError(
                f"the rowtime '{self._strategy.name}' of this row is NULL: RowTime field should not be null. Filter "
                "such rows out before, or give the column a value"
            )
            raise self._call.failed(error, _ROLE, tuple(batch.slice(row, 1).values()))
        times = _ms(moments.view(pa.int64()).fill_null(0).to_numpy(), moments.type)
        return np.where(absent, MIN_WATERMARK, times), _largest_ms(marks)

    def _plain_moments(self, batch: Batch) -> pa.Array | None:
        """The column of times, where the latest row has the largest watermark; None: every row has to be looked at."""
        if self._time_column is None or not len(batch):
            return None
        moments = batch.coded_columns().column(self._time_column)
        return None if moments.null_count else moments

    def _mark_of_latest(self, batch: Batch, numbers: Timestamps, kind: pa.DataType, now_ms: int) -> int | None:
        """The watermark of the latest row. It is the same while from the time of every row, so that the first one tells
        it for all."""
        if self._while is not None:
            mark = int(numbers.max()) + self._while
            if -(2**63) <= mark < 2**63:
                return int(_ms(mark, kind))
        latest = int(numbers.argmax())
        marks = self._program.run(batch.slice(latest, 1), now_ms, None, _ROLE).columns[1]
        if marks.type == kind and not marks.null_count:
            self._while = int(marks.view(pa.int64())[0].as_py()) - int(numbers[latest])
        return _largest_ms(marks)


def _are_gone(batch: Batch) -> Bools:
    """Which rows say that a row is gone."""
    columns = batch.coded_columns()
    at = columns.schema.get_field_index(KIND_COLUMN)
    if at < 0:
        return np.zeros(len(batch), dtype=np.bool_)
    gone: Bools = columns.column(at).to_numpy(zero_copy_only=False) == RowKind.DELETE.value
    return gone


def _largest_ms(marks: pa.Array) -> int | None:
    latest = pc.max(marks)
    return int(_ms(latest.cast(pa.int64()).as_py(), marks.type)) if latest.is_valid else None


def _ms(numbers: Any, kind: pa.DataType) -> Any:
    """Milliseconds since 1970 of times of that type, one or many; what is finer is cut."""
    if kind.unit == "s":
        return numbers * 1_000
    return numbers if kind.unit == "ms" else numbers // _PER_MS[kind.unit]
