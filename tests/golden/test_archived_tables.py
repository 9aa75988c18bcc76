"""Rows that leave the state of a table are in its archive: no gap and no duplicate at any moment."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from stores.archived_tables import KINDS, killed_and_resumed, random_changes


@pytest.mark.parametrize("name", KINDS)
def test_state_and_archive_together_are_always_the_whole_table(name: str) -> None:
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
def test_a_crash_at_any_store_operation_and_a_rescale_lose_and_duplicate_nothing(
    name: str, seed: int, dies_at: int, parallelisms: tuple[int, int]
) -> None:
    changes = random_changes(Random(seed), KINDS[name], 8)
    assert not killed_and_resumed(changes, KINDS[name], dies_at, parallelisms).wrong
