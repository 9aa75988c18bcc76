"""A range of panes is read with the newest write of each, however many epochs wrote them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation.pane_rows import Accumulators, PaneRows, accumulator_type
from millstream.common.typeinfo import Types
from millstream.runtime.keyed.states import Scope
from millstream.runtime.windows.pane_table import PaneHandle, PaneTable
from millstream.state.keys.key_columns import KeyColumn, key_column_of_arrow
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import TableSetting
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate
from millstream.state.windows.pane_windows import PaneWindows
from millstream.storage import open_store

MEASURES = [BoundAggregate("n", "count"), BoundAggregate("top", "max", (AggregateArgument(Types.LONG(), 0),))]
PANE_MS = 10
STORES = itertools.count()
Epoch = dict[tuple[int, int], int]
"""What is written in an epoch: by key and pane the value of both measures."""
EPOCHS = st.lists(
    st.tuples(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 6)), st.integers(1, 99)), st.integers(0, 3)),
    min_size=1,
    max_size=7,
)


class Panes:
    """The panes of one subtask, which writes epochs; segments are merged as in a job."""

    def __init__(self, windows: PaneWindows) -> None:
        codec = StateCodec(accumulator_type(MEASURES), "panes")
        self.table = PaneTable("panes", Types.LONG(), 128, codec, windows)
        self.handle = PaneHandle(self.table, Scope(), windows, Accumulators(MEASURES))
        self._segments = OpenSegments(open_store(f"memory://panes-{next(STORES)}"))
        self._refs: tuple[SegmentRef, ...] = ()
        self._epoch = 0

    def begin(self, time_ms: int) -> PaneHandle:
        self._epoch += 1
        self.table.time_ms = time_ms
        setting = TableSetting("windows", self._epoch, 0, "n", range(128), time_ms, self._segments)
        self.table.begin(setting, self._refs)
        return self.handle

    def write(self, rows: Epoch) -> None:
        keys = KeyColumn(None, pa.array([key for key, _ in rows], pa.int64()))
        values = pa.array(list(rows.values()), pa.int64())
        panes = np.array([pane * PANE_MS for _, pane in rows], dtype=np.int64)
        if rows:
            self.handle.put(PaneRows(keys, panes, [values, values]), np.arange(len(rows)))
        self._refs = self.table.end()


def readable_rows(rows: PaneRows) -> list[Any]:
    assert rows.keys.hashes.tolist() == key_column_of_arrow(rows.keys.array).hashes.tolist()
    columns = [rows.keys.array.to_pylist(), rows.panes.tolist(), *(part.to_pylist() for part in rows.parts)]
    return sorted(zip(*columns, strict=True))


@given(EPOCHS, st.integers(-2, 8), st.integers(-2, 8), st.sampled_from([PANE_MS, 3 * PANE_MS]))
def test_panes_that_end_in_a_time_range_are_read_as_last_written(
    epochs: list[tuple[Epoch, int]], after: int, length: int, size_ms: int
) -> None:
    panes = Panes(PaneWindows(size_ms, PANE_MS))
    newest: Epoch = {}
    time_ms = 0
    for rows, passed in epochs:
        panes.begin(time_ms)
        panes.write(rows)
        newest.update(rows)
        time_ms += passed
    handle = panes.begin(time_ms)
    after_ms = max(after * PANE_MS, time_ms)
    through_ms = after_ms + length * PANE_MS
    needed = [
        (key, pane * PANE_MS, value, value)
        for (key, pane), value in newest.items()
        if pane * PANE_MS + size_ms - 1 > time_ms
    ]
    ending = [row for row in needed if after_ms < row[1] + PANE_MS <= through_ms]
    assert readable_rows(handle.ending(after_ms, through_ms)) == sorted(ending)
    # Looked up one by one they are equal.
    keys = key_column_of_arrow(pa.array([key for key, _ in newest], pa.int64()))
    results = handle.of_pairs(keys, np.array([pane * PANE_MS for _, pane in newest], dtype=np.int64))
    assert readable_rows(results) == sorted(needed)


@pytest.mark.parametrize("epochs", [1, 2])
def test_thousands_of_panes_are_written_in_the_order_of_a_segment(epochs: int) -> None:
    panes = Panes(PaneWindows(PANE_MS, PANE_MS))
    for epoch in range(epochs):
        panes.begin(0)
        panes.write({(key, key % 3): key + epoch for key in range(5_000)})
    results = readable_rows(panes.begin(0).ending(0, 3 * PANE_MS))
    assert results == [(key, key % 3 * PANE_MS, *[key + epochs - 1] * 2) for key in range(5_000)]
