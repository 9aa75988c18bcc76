"""Archiving rows of a stored table: small jobs, killed between staging, manifest and publication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from stores.archived_tables import (
    KINDS,
    SECOND,
    Changes,
    Watch,
    add_table,
    changed_row,
    killed_and_resumed,
    new_stores,
    random_changes,
    run_table,
)

from millstream import query
from millstream.common.types import RowKind
from millstream.connectors.archives.archive import Archive
from millstream.connectors.archives.archived_files import ENTRY_TYPE, FORM, ArchivedFile
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BigIntType
from millstream.jobs.replay.replay import replay
from millstream.runtime.tables import archiving
from millstream.runtime.tables.archiving import ArchivedTable, _DueRows
from millstream.state.keys.key_columns import KeyColumn
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, ManualClock, Pause, Watermark


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [None, 27, 34, 41])
def test_a_table_is_complete_after_a_kill_at_any_step_of_archiving(dies_at: int | None) -> None:
    kind = KINDS["time in the key"]
    watch = killed_and_resumed(random_changes(Random(3), kind, 6), kind, dies_at)
    assert not watch.wrong
    assert watch.files, "no row was archived, so the test shows nothing"


@pytest.mark.parametrize("name", ["time beside the key", "counted by time"])
def test_queries_include_late_changes_of_archived_rows(name: str) -> None:
    watch = killed_and_resumed(random_changes(Random(5), KINDS[name], 6), KINDS[name], None)
    assert not watch.wrong and watch.files


def test_a_job_of_an_older_version_continues_and_its_files_are_read_without_checksums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = KINDS["time beside the key"]
    changes, (store, archive), clock = random_changes(Random(5), kind, 9), new_stores(), ManualClock()
    known = [field for field in ENTRY_TYPE.fields if field.name not in ("crc32", "born")]
    old = RowType.of([field.name for field in known], [field.data_type for field in known], nullable=False)

    def old_column(entries: Sequence[ArchivedFile]) -> pa.Array:
        names = [field.name for field in known]
        written = [{name: asdict(replace(entry, form=2))[name] for name in names} for entry in entries]
        return pa.array(written, pa.struct(list(old.schema)))

    with monkeypatch.context() as yesterday:
        yesterday.setattr(archiving, "ENTRY_TYPE", old)
        yesterday.setattr(archiving, "entry_column", old_column)
        run_table(changes, kind, store, archive, clock, epochs=9)
    watch = Watch(changes, store)
    watch.look_back()
    assert not watch.wrong and watch.files, "the current reader with a job of an older version"
    run_table(changes, kind, store, archive, clock)
    watch.look_back()
    files = query.open(f"memory://{store}").newest().table("kept").archived_files
    assert not watch.wrong and {file.form for file in files} == {2, FORM}
    assert all((file.crc32 is None) == (file.form == 2) for file in files)


@pytest.mark.parametrize("begins_with", [True, False])
def test_an_archive_can_neither_be_added_to_nor_removed_from_stored_rows(begins_with: bool) -> None:
    archived = KINDS["time in the key"]
    plain = replace(archived, has_archive=False)
    changes, (store, archive), clock = random_changes(Random(3), archived, 8), new_stores(), ManualClock()
    run_table(changes, archived if begins_with else plain, store, archive, clock, epochs=6)
    with pytest.raises(MillstreamError) as error:
        run_table(changes, plain if begins_with else archived, store, archive, clock)
    message = "its options no longer name one" if begins_with else "was stored without an archive so far"
    assert message in str(error.value)


def test_an_epoch_that_archived_rows_is_replayed_and_writes_nothing_to_the_archive() -> None:
    kind = KINDS["time in the key"]
    changes, (store, archive), clock = random_changes(Random(3), kind, 6), new_stores(), ManualClock()
    run_table(changes, kind, store, archive, clock)
    files = MemoryStore(archive.removeprefix("memory://")).list("")
    newest = query.open(f"memory://{store}").newest().table("kept")
    env = StreamExecutionEnvironment()
    add_table(env, changes, kind, archive, clock)
    graph, settings = env._graph(None), env._job_settings()
    for epoch in {file.epoch for file in newest.archived_files}:
        results = replay(graph, settings, f"memory://{store}@{epoch}", "Table: kept")
        assert results.is_same, results.text()
    assert MemoryStore(archive.removeprefix("memory://")).list("") == files


def test_after_a_rescale_a_subtask_knows_rows_that_another_archived() -> None:
    # One subtask archives all rows in one file; three continue with them: each deletes some and archives others again.
    kind, changes, rows = KINDS["time beside the key"], Changes(), Counter()

    def change(row_kind: RowKind, row: tuple[int, int, int]) -> None:
        rows[row] += 1 if row_kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        changes.add(changed_row(row_kind, row), +rows)

    def end_epoch(second: int) -> None:
        changes.add(Watermark(second * SECOND), +rows)
        changes.add(EPOCH, +rows)

    for k in range(24):
        change(RowKind.INSERT, (0, k, k))
    end_epoch(20)
    for k in range(8):
        change(RowKind.DELETE, (0, k, k))
    for k in range(8, 16):
        change(RowKind.UPDATE_BEFORE, (0, k, k))
        change(RowKind.UPDATE_AFTER, (1, k, -k))
    end_epoch(30)
    for k in range(4):
        change(RowKind.INSERT, (31, k, 100 + k))
    end_epoch(50)
    end_epoch(60)
    (store, archive), clock = new_stores(), ManualClock()
    watch = Watch(changes, store)
    run_table(changes, kind, store, archive, clock, epochs=1)
    watch.look()
    assert len(watch.files) == 1
    run_table(changes, kind, store, archive, clock, parallelism=3)
    watch.look_back()
    assert not watch.wrong and len(watch.files) > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["time in the key", "time beside the key", "by the clock"])
@pytest.mark.parametrize("is_reinserted", [False, True])
def test_tombstones_of_archived_keys_are_removed_from_the_state(name: str, is_reinserted: bool) -> None:
    # Each epoch has keys of its own: they are archived and deleted, and some are inserted and archived again.
    kind, changes, rows = KINDS[name], Changes(), Counter()

    def change(row_kind: RowKind, row: tuple[int, int, int]) -> None:
        rows[row] += 1 if row_kind is RowKind.INSERT else -1
        changes.add(changed_row(row_kind, row), +rows)

    for epoch in range(12):
        for k in range(8):
            change(RowKind.INSERT, (epoch * 10, epoch * 8 + k, k))
        if epoch > 1:
            for k in range(8):
                change(RowKind.DELETE, ((epoch - 2) * 10, (epoch - 2) * 8 + k, k))
        if is_reinserted and epoch > 2:
            for k in range(0, 8, 2):
                change(RowKind.INSERT, ((epoch - 3) * 10, (epoch - 3) * 8 + k, -k))
        changes.add(Watermark(epoch * 10 * SECOND), +rows)
        changes.add(Pause(10 * SECOND), +rows)
        changes.add(EPOCH, +rows)
    watch = killed_and_resumed(changes, kind, None)
    assert not watch.wrong and len(watch.files) > 5
    assert watch.marks <= 16


@pytest.mark.slow
def test_a_reinserted_and_rearchived_key_stays_when_the_clock_is_set_back() -> None:
    # The tombstone has a later time than the row inserted after it.
    kind, changes, rows = KINDS["by the clock"], Changes(), Counter()

    def epoch(seconds: float, *changed: tuple[RowKind, tuple[int, int, int]]) -> None:
        for row_kind, row in changed:
            rows[row] += 1 if row_kind is RowKind.INSERT else -1
            changes.add(changed_row(row_kind, row), +rows)
        changes.add(Pause(int(seconds * SECOND)), +rows)
        changes.add(EPOCH, +rows)

    epoch(20, (RowKind.INSERT, (0, 1, 1)))
    epoch(20, (RowKind.INSERT, (0, 2, 1)))
    epoch(200.5, (RowKind.INSERT, (0, 3, 1)))
    epoch(2, (RowKind.DELETE, (0, 1, 1)))
    epoch(20, (RowKind.INSERT, (0, 1, 2)))
    for k in range(10, 18):
        epoch(60, (RowKind.INSERT, (0, k, 1)))
    store, archive = new_stores()
    run_table(changes, kind, store, archive, ManualClock(), epochs=7)  # an epoch without changes
    watch = Watch(changes, store)
    watch.look()
    assert watch.marks == 1
    run_table(changes, kind, store, archive, ManualClock())  # on a machine whose clock is minutes slow
    watch.look_back()
    assert not watch.wrong and watch.marks == 0 and len(watch.files) > 4


def test_a_row_whose_only_column_is_a_row_is_archived_unchanged() -> None:
    inner = RowType.of(["a", "b"], [BigIntType(), BigIntType()])
    archive = Archive("memory://unused", "parquet", RowType.of(["r"], [inner]), (), None, 0, 0)
    table = ArchivedTable.__new__(ArchivedTable)
    table._archive = archive
    keys = pa.array([{"a": 1, "b": 2}, None], inner.arrow)
    due = _DueRows(KeyColumn(np.zeros(2, dtype=np.int64), keys), pa.array([3, 1]), np.zeros(2, dtype=np.int64))
    assert table._file_rows(due, due.take(np.zeros(0, dtype=np.int64)), 7).to_pylist() == [
        {"r": {"a": 1, "b": 2}, "archived_version": 7, "archived_count": 3},
        {"r": None, "archived_version": 7, "archived_count": 1},
    ]
