"""Rows that left the state of a table are found in its archive: no gap, no double, whenever one looks."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from stores.archived_tables import KINDS, killed_and_resumed, random_changes


@pytest.mark.parametrize("name", KINDS)
def test_at_every_moment_state_and_archive_together_are_the_whole_table(name: str) -> None:
    changes = random_changes(Random(name), KINDS[name], 12)
    watch = killed_and_resumed(changes, KINDS[name], None, (1, 2))
    assert not watch.wrong
    assert len(watch.files) > 1, "nothing was archived, and nothing was shown"


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 10_000),
    st.integers(1, 90),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_a_job_that_dies_at_any_operation_of_a_store_and_goes_on_at_another_parallelism_loses_and_doubles_nothing(
    name: str, seed: int, dies_at: int, parallelisms: tuple[int, int]
) -> None:
    changes = random_changes(Random(seed), KINDS[name], 8)
    assert not killed_and_resumed(changes, KINDS[name], dies_at, parallelisms).wrong
