"""A window TVF by itself: every row, once for each window it is in, with the bounds of the window.

Nothing is kept and no row is late: which windows a row is in follows from its time alone. Behind it, the time of a row
is the last moment of its window, as window_time says.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.graph.table_nodes import WindowRows
from millstream.records.batch import Batch
from millstream.records.columns import stream_schema
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.repeated_rows import batch_beside
from millstream.state.segments.lookup import expanded
from millstream.state.windows.local_time import local_ms, moments_ms

__all__ = ["WindowRowsOperator"]


class WindowRowsOperator(Operator):
    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, WindowRows) and output_type is not None
        self._windows, self._zone, self._type = operation.windows, operation.zone, output_type
        schema = stream_schema(output_type)
        assert schema is not None
        self._schema = schema

    def apply(self, batch: Batch) -> Batch | None:
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
        if not len(numbers):
            return None
        starts, ends = windows.starts(numbers), windows.ends(numbers)
        times = moments_ms(ends - 1, self._zone)
        kinds = [self._schema.field(at).type for at in range(len(self._schema) - 3, len(self._schema))]
        bounds = [pa.array(each).view(kind) for each, kind in zip((starts, ends, times), kinds, strict=True)]
        stamps = times if windows.is_event_time else None
        return batch_beside(batch, rows, bounds, self._schema, self._type, stamps)
