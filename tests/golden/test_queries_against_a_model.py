"""Random queries: at every epoch of random input, every answer matches a plain model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.queryable import EPOCHS, OPERATIONS, TIMED_EPOCHS, WINDOWS, check_answers, check_windows

from millstream.common import Types


@settings(deadline=None)
@given(EPOCHS, st.booleans(), st.sampled_from([1, 3]), st.sampled_from([None, Types.STRING()]))
def test_answers_match_a_replay(
    epochs: list[list[tuple[str, int]]], crash: bool, parallelism: int, key_type: Any
) -> None:
    check_answers(epochs, crash, parallelism, key_type)


@pytest.mark.parametrize("windows", list(WINDOWS))
@pytest.mark.parametrize("operation", list(OPERATIONS))
@settings(deadline=None, max_examples=20)
@given(TIMED_EPOCHS, st.sampled_from([0, 15]), st.sampled_from([1, 2]))
def test_open_windows_of_random_jobs_match_the_records_so_far(
    operation: str, windows: str, epochs: list[list[tuple[str, int, int]]], lateness: int, parallelism: int
) -> None:
    check_windows(operation, epochs, windows, lateness, parallelism)
