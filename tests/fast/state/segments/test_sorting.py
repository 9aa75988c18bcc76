"""Sorting rows by sort keys equals a stable sort, for evenly and unevenly distributed keys."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.state.segments import sorting
from millstream.state.segments.sorting import ascending, ascending_below

LAST = 2**64 - 1
ORDERS = st.integers(0, LAST) | st.integers(0, 5) | st.sampled_from([LAST, LAST - 1, 1 << 63, 1 << 55])


@given(st.lists(ORDERS, max_size=60))
def test_any_sort_keys_are_sorted_as_by_a_stable_sort(numbers: list[int]) -> None:
    orders = np.array(numbers, dtype=np.uint64)
    with patch.object(sorting, "_SPREAD_ROWS_MIN", 1), patch.object(sorting, "_RUNS_MAX", 1):
        assert ascending(orders).tolist() == np.argsort(orders, kind="stable").tolist()


@pytest.mark.parametrize("low, high", [(0, LAST), (7 << 55, 9 << 55), (0, 50)])
def test_many_sort_keys_of_any_range_are_sorted_as_by_a_stable_sort(low: int, high: int) -> None:
    orders = np.random.default_rng(7).integers(low, high, 5_000, dtype=np.uint64, endpoint=True)
    assert np.array_equal(ascending(orders), np.argsort(orders, kind="stable"))


@given(st.lists(st.integers(0, 2**62)), st.sampled_from([1, 2, 2**16, 2**16 + 1, 2**40, 2**62 + 1]))
def test_numbers_below_a_bound_are_sorted_as_by_a_stable_sort(numbers: list[int], bound: int) -> None:
    bounded = np.array(numbers, np.int64) % bound
    assert ascending_below(bound, bounded).tolist() == np.argsort(bounded, kind="stable").tolist()
