"""When a row expires: the event time from which no later row of the other side can match the row.

A row whose time is NULL never matches: the condition compares with it, and no comparison with NULL is true.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.expressions.nested_types import RowType
from millstream.graph.table_nodes import Expiry, TableSession
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.buffer import moved_times
from millstream.runtime.operators.user_code import UserCall
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.task_program import TaskProgram
from millstream.state.keys.hashing import Int64s

__all__ = ["RowExpiry", "milliseconds_of"]

_NEVER_MATCHED = -(2**63)


class RowExpiry:
    """Computes expiry times of one side's rows: the earliest of several times."""

    def __init__(self, expiries: Sequence[Expiry], row_type: RowType, session: TableSession, call: UserCall) -> None:
        self._expiries = tuple(expiries)
        self._type = TableRowType(row_type)
        moments = [each.moment for each in expiries]
        self._program = TaskProgram(moments, row_type.types, None, session, call)

    def of(self, rows: SignedRows, now_ms: int) -> Int64s:
        """The event time at which each row expires."""
        names = list(self._type.row_type.names)
        batch = Batch.of_columns(pa.RecordBatch.from_arrays(rows.contents.flatten(), names=names), self._type)
        columns = self._program.run(batch, now_ms, None, "time").columns
        first = np.full(len(rows), 2**63 - 1, dtype=np.int64)
        for column, expiry in zip(columns, self._expiries, strict=True):
            times = moved_times(milliseconds_of(column, _NEVER_MATCHED), expiry.offset_ms)
            first = np.minimum(first, times)
        return first


def milliseconds_of(column: pa.Array, absent_ms: int) -> Int64s:
    """Timestamps as whole milliseconds, rounded down; `absent_ms` for NULL.

    >>> milliseconds_of(pa.array([1_999, -1, None], pa.timestamp("us")), 7).tolist()
    [1, -1, 7]
    """
    units = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    numbers = np.asarray(column.cast(pa.int64()).fill_null(0))
    times = numbers * 1_000 if units == 0 else numbers // units
    return np.where(np.asarray(column.is_null()), absent_ms, times)
