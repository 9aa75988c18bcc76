"""Rows leave the state of a kept table for its archive: small runs, killed between stage, manifest and publication."""

from __future__ import annotations

from random import Random

import pytest
from archived_tables import KINDS, killed_and_resumed, random_changes


@pytest.mark.parametrize("dies_at", [None, 20, 27, 34, 41])
def test_a_table_that_is_killed_on_its_way_to_the_archive_is_whole_at_every_moment(dies_at: int | None) -> None:
    kind = KINDS["time in the key"]
    watch = killed_and_resumed(random_changes(Random(3), kind, 6), kind, dies_at)
    assert not watch.wrong
    assert watch.files, "nothing was archived, and nothing was shown"


@pytest.mark.parametrize("name", ["time beside the key", "counted by time"])
def test_late_changes_of_archived_rows_are_in_every_answer(name: str) -> None:
    watch = killed_and_resumed(random_changes(Random(5), KINDS[name], 6), KINDS[name], None)
    assert not watch.wrong and watch.files
