"""Changes that exceed the memory limit are written before the epoch ends, without affecting reads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables import changes
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.storage import open_store

NAMES = itertools.count()
GROUPS = range(128)

# An epoch: puts of several keys at once, and removals. None as a value removes the key.
epochs = st.lists(st.lists(st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 99)), max_size=6), max_size=4)


class Table:
    """A table of numbers, run through epochs as by an operator."""

    def __init__(self) -> None:
        self.segments = OpenSegments(open_store(f"memory://overflowing-{next(NAMES)}"))
        self.table = StateTable("total", Types.LONG(), 128, StateCodec(Types.LONG(), "total"))
        self.refs: Sequence[SegmentRef] = ()

    def begin(self, epoch: int) -> StateTable:
        self.table.begin(TableSetting("count", epoch, 0, f"n{epoch}", GROUPS, 0, self.segments), self.refs)
        return self.table

    def content(self) -> dict[int, int]:
        table = self.begin(99)
        return {
            key: value for key, value in zip(range(10), table.read(list(range(10))), strict=True) if value is not None
        }


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(epochs, st.sampled_from([0, 60, 1 << 20]))
def test_a_table_equals_a_dictionary_however_early_its_changes_are_written(
    monkeypatch: pytest.MonkeyPatch, script: list[list[dict[int, int | None]]], bound: int
) -> None:
    monkeypatch.setattr(changes, "CHANGED_BYTES_MAX", bound)
    stored, reference = Table(), dict[int, int]()
    for number, steps in enumerate(script, start=1):
        table = stored.begin(number)
        for step in steps:
            puts = {key: value for key, value in step.items() if value is not None}
            removals = [key for key, value in step.items() if value is None]
            table.put(list(puts), list(puts.values()))
            table.delete(removals)
            reference.update(puts)
            for key in removals:
                reference.pop(key, None)
        stored.refs = table.end()
    assert stored.content() == reference


def test_buffered_changes_stay_bounded_and_the_version_lists_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "CHANGED_BYTES_MAX", 10_000)
    stored = Table()
    table = stored.begin(1)
    most = 0
    for first in range(0, 10_000, 500):
        keys = table.column(list(range(first, first + 500)))
        table.changes.put(keys, pa.array(np.arange(500)))  # as columnar operators do
        most = max(most, sum(batch.nbytes for batch in table.changes._batches))
    stored.refs = table.end()
    assert most <= 10_000
    assert sum(ref.rows for ref in stored.refs) == 10_000
    assert stored.begin(2).read([0, 499, 500, 9_999]) == [0, 499, 0, 499]
