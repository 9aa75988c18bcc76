"""Rows leave the state of a kept table for its archive: small runs, killed between stage, manifest and publication."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from archived_tables import KINDS, add_table, killed_and_resumed, new_stores, random_changes, run_table

from millstream import query
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError
from millstream.jobs.replay.replay import replay
from millstream.storage.memory import MemoryStore
from millstream.testing import ManualClock


@pytest.mark.parametrize("dies_at", [None, 27, 34, 41])
def test_a_table_that_is_killed_on_its_way_to_the_archive_is_whole_at_every_moment(dies_at: int | None) -> None:
    kind = KINDS["time in the key"]
    watch = killed_and_resumed(random_changes(Random(3), kind, 6), kind, dies_at)
    assert not watch.wrong
    assert watch.files, "nothing was archived, and nothing was shown"


@pytest.mark.parametrize("name", ["time beside the key", "counted by time"])
def test_late_changes_of_archived_rows_are_in_every_answer(name: str) -> None:
    watch = killed_and_resumed(random_changes(Random(5), KINDS[name], 6), KINDS[name], None)
    assert not watch.wrong and watch.files


@pytest.mark.parametrize("begins_with", [True, False])
def test_an_archive_is_neither_given_to_rows_without_one_nor_taken_from_rows_with_one(begins_with: bool) -> None:
    archived = KINDS["time in the key"]
    plain = replace(archived, has_archive=False)
    changes, (store, archive), clock = random_changes(Random(3), archived, 8), new_stores(), ManualClock()
    run_table(changes, archived if begins_with else plain, store, archive, clock, epochs=6)
    with pytest.raises(MillstreamError) as error:
        run_table(changes, plain if begins_with else archived, store, archive, clock)
    told = "its options name none any more" if begins_with else "was kept without an archive so far"
    assert told in str(error.value)


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
        found = replay(graph, settings, f"memory://{store}@{epoch}", "Table: kept")
        assert found.is_same, found.text()
    assert MemoryStore(archive.removeprefix("memory://")).list("") == files
