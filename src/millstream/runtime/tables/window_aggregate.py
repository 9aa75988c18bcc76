"""SQL windows on panes: partial and final window aggregation over tables.

These extend the operators for built-in aggregates (`runtime.windows`) in three ways: a key is any number of columns,
results have the columns that the query names, and windows may follow the local time of a time zone. Times are then
converted to local time upstream of the exchange, and everything downstream (panes, firing, expiry) uses local time;
only output timestamps and wake-up times are converted back. Processing-time windows end with the input, so that a query
over bounded input emits all its rows in either mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.pane_firing import FiredWindows
from millstream.plan.operations import TablePaneAggregate, TablePartialAggregate
from millstream.records.batch import Batch
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.group_keys import GroupKeys
from millstream.runtime.tables.user_aggregates import user_functions_of
from millstream.runtime.windows.pane_operator import PaneOperator
from millstream.runtime.windows.partial_aggregates import PartialAggregateOperator
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.windows.local_time import local_ms, moments_ms, reached_ms

__all__ = ["TablePaneOperator", "TablePartialOperator"]


class TablePartialOperator(PartialAggregateOperator):
    """Partial window aggregation of table rows."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, key_type = self.node.operation, self.node.inputs[0].key_type
        assert isinstance(operation, TablePartialAggregate) and key_type is not None
        self._group_keys, self._zone = GroupKeys(operation.keys, key_type), operation.zone

    def _keys(self, batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        return self._group_keys.of(columns)

    def _times(self, batch: Batch) -> Int64s:
        return local_ms(super()._times(batch), self._zone)


class TablePaneOperator(PaneOperator):
    """Final window aggregation of table rows."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, TablePaneAggregate)
        self._layout, self._zone, self._attached = operation.columns, operation.zone, operation.attached
        self._key_columns = operation.keys

    def user_functions(self) -> Iterable[Any]:
        return user_functions_of(self._operation.measures)

    def _time_before(self, accounts: Iterable[SubtaskAccount]) -> int:
        # In processing time it is derived from `_time_now`, which is already local time.
        before_ms = super()._time_before(accounts)
        return reached_ms(before_ms, self._zone) if self._windows.is_event_time else before_ms

    def _time_now(self) -> int:
        if self._windows.is_event_time or self._batch:
            return reached_ms(super()._time_now(), self._zone)
        if self.time.watermark == MAX_WATERMARK:  # the input has ended, and its windows with it, as in BATCH
            return MAX_WATERMARK
        return max(self._before_ms, reached_ms(self.time.now_ms - 1, self._zone))

    def _next_firing(self, now_ms: int) -> int | None:
        next_ms = super()._next_firing(now_ms)
        return None if next_ms is None else int(moments_ms(np.array([next_ms - 1]), self._zone)[0]) + 1

    def _results(self, fired: FiredWindows) -> Batch:
        ends = self._windows.ends(fired.windows)
        starts = self._windows.starts(fired.windows) if self._attached is None else self._attached.start_of(ends)
        last = moments_ms(ends - 1, self._zone)
        times = {"start": starts, "end": ends, "time": last}
        measures = self._accumulators.results(fired.parts)
        columns = []
        for column, field in zip(self._layout, self._schema, strict=True):
            if column.kind == "key":
                columns.append(fired.keys if self._key_columns == 1 else fired.keys.field(column.number))
            elif column.kind == "measure":
                columns.append(measures[column.number])
            elif column.kind == "proctime":
                now = np.full(len(ends), self.time.now_ms, dtype=np.int64)
                columns.append(pa.array(now).view(field.type))
            else:
                columns.append(pa.array(times[column.kind]).view(field.type))
        return Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=self._schema), self._type, last)
