"""Changes due for an immediate merge are merged in memory: no unreferenced file is written, and the table content
is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

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
TTL_MS = 3

KEYS = st.integers(0, 30)
# The events of an epoch in order: keys with values to set, keys to remove, keys to clear.
steps = st.tuples(st.sampled_from(["put", "delete", "clear"]), st.dictionaries(KEYS, st.integers(0, 99), max_size=12))
epochs = st.lists(st.lists(steps, max_size=4), max_size=14)


class Table:
    """A state of one subtask, run through epochs as by an operator; `version` is the version in the manifest."""

    def __init__(self, *, is_list: bool = False, ttl_ms: int | None = None) -> None:
        self.store = open_store(f"memory://merged-unwritten-{next(NAMES)}")
        self.segments = OpenSegments(self.store)
        sub = StateCodec(Types.LONG(), "total") if is_list else None
        self.table = StateTable("total", Types.LONG(), 128, StateCodec(Types.LONG(), "total"), sub, ttl_ms=ttl_ms)
        self.version: Sequence[SegmentRef] = ()

    def run(self, epoch: int, act: Callable[[StateTable], None]) -> None:
        self.table.begin(TableSetting("count", epoch, 0, f"n{epoch}", GROUPS, epoch, self.segments), self.version)
        act(self.table)
        self.version = self.table.end()

    def content(self, now_ms: int) -> list[Any]:
        self.table.begin(TableSetting("count", 99, 0, "n99", GROUPS, now_ms, self.segments), self.version)
        if self.table.layout.sub_type is not None:
            return self.table.read_rows(list(range(31)))
        return self.table.read(list(range(31)))

    @property
    def named(self) -> set[str]:
        return {ref.file for ref in self.version}

    @property
    def files(self) -> set[str]:
        return set(self.store.list("segments"))


class WrittenFirst(Table):
    """The reference implementation: every change is written to a file before anything is merged."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.table._merged_unwritten = lambda: None  # type: ignore[method-assign]


def change(script: list[tuple[str, dict[int, int]]], table: StateTable) -> None:
    has_subs = table.layout.sub_type is not None
    for kind, values in script:
        keys = list(values)
        subs = table.encode_subs([value % 3 for value in values.values()]) if has_subs else None
        if kind == "put":
            table.put(keys, list(values.values()), subs)
        elif kind == "delete":
            table.delete(keys, subs)
        else:
            table.clear(keys)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(epochs, st.booleans(), st.sampled_from([None, TTL_MS]), st.sampled_from([500, 1 << 20]))
def test_content_does_not_depend_on_writing_changes_before_merging_them(
    monkeypatch: pytest.MonkeyPatch,
    script: list[list[tuple[str, dict[int, int]]]],
    is_list: bool,
    ttl_ms: int | None,
    bound: int,
) -> None:
    monkeypatch.setattr(changes, "CHANGED_BYTES_MAX", bound)
    tables = [kind(is_list=is_list, ttl_ms=ttl_ms) for kind in (Table, WrittenFirst)]
    for number, epoch in enumerate(script, start=1):
        for table in tables:
            table.run(number, lambda state: change(epoch, state))  # noqa: B023
        for now_ms in (number, number + 1, number + TTL_MS):
            assert tables[0].content(now_ms) == tables[1].content(now_ms)


@pytest.mark.parametrize("keys", [1, 500])
def test_every_file_written_in_an_epoch_is_listed_in_its_version(keys: int) -> None:
    table, reference = Table(), WrittenFirst()
    for number in range(1, 30):
        for one in (table, reference):
            before = one.files
            one.run(number, lambda state: state.put(list(range(keys)), [number] * keys))  # noqa: B023
            if one is table:
                assert one.files - before <= one.named
    assert len(table.files) < len(reference.files), "nothing was merged: the test proves nothing"
    assert len(table.named) == len(reference.named)


def test_merged_changes_are_readable_in_the_same_epoch() -> None:
    table = Table()
    for number in range(1, 9):
        table.run(number, lambda state: state.put([number], [number]))  # noqa: B023
        assert table.table.read([number]) == [number]
        assert table.segments.open_files == sorted(set(table.segments.open_files) & table.files)
