"""Window TVF without aggregation: every row, once for each of its windows, with the bounds of the window.

The operator is stateless and no row is late: a row's windows depend only on its time. Downstream, the time of a row is
the last time of its window, equal to window_time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millstream.graph.table_nodes import WindowRows
from millstream.records.batch import Batch
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.repeated_rows import RepeatingOperator, batch_with_columns
from millstream.state.segments.lookup import expanded
from millstream.state.windows.local_time import local_ms, moments_ms

__all__ = ["WindowRowsOperator"]


class WindowRowsOperator(RepeatingOperator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, WindowRows)
        self._windows, self._zone = operation.windows, operation.zone
        self._kinds = [self.schema.field(at).type for at in range(len(self.schema) - 3, len(self.schema))]

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        step = max(1, self.rows_max // self._windows.windows_per_time)
        for start in range(0, len(batch), step):
            yield self._in_windows(batch.slice(start, min(step, len(batch) - start)))

    def _in_windows(self, batch: Batch) -> Batch:
        windows = self._windows
        if windows.is_event_time:
            moments = window_times(batch, self.call, "window")
        else:
            moments = np.full(len(batch), self.time.now_ms, dtype=np.int64)
        panes = windows.pane_of(local_ms(moments, self._zone))
        first, last = windows.first_window(panes), windows.last_window(panes)
        if windows.is_tumbling:
            numbers, rows = last, None
        else:
            numbers, rows = expanded(first, np.maximum(last + 1, first))
        starts, ends = windows.starts(numbers), windows.ends(numbers)
        times = moments_ms(ends - 1, self._zone)
        bounds = [pa.array(each).view(kind) for each, kind in zip((starts, ends, times), self._kinds, strict=True)]
        stamps = times if windows.is_event_time else None
        return batch_with_columns(batch, rows, bounds, self.schema, self.output_type, stamps)
