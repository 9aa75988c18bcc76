"""The matching kernel of joins agrees with two nested loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.runtime.joins.matching import key_numbers, pairs, pairs_of_unique

_FAR = 2**63 - 1
_TIMES = st.one_of(st.integers(-20, 20), st.sampled_from([-_FAR - 1, -_FAR, _FAR - 1, _FAR]))
_CODES = st.one_of(st.integers(0, 3), st.sampled_from([2**40, 2**62]))


@settings(deadline=None)
@given(
    st.lists(st.tuples(_CODES, _TIMES, _TIMES), max_size=12),
    st.lists(st.tuples(_CODES, _TIMES), max_size=12),
    st.integers(1, 5),
)
def test_the_matching_kernel_agrees_with_two_loops_in_pieces_of_the_requested_size(
    lefts: list[tuple[int, int, int]], rights: list[tuple[int, int]], pairs_max: int
) -> None:
    by_time = sorted(range(len(rights)), key=lambda row: rights[row][1])
    expected = [
        (row, other)
        for row, (code, first, last) in enumerate(lefts)
        for other in by_time
        if rights[other][0] == code and first <= rights[other][1] <= last
    ]
    columns = [np.array(column, dtype=np.int64) for column in zip(*lefts, strict=True)] or [np.empty(0, np.int64)] * 3
    columns += [np.array(column, dtype=np.int64) for column in zip(*rights, strict=True)] or [np.empty(0, np.int64)] * 2
    pieces = [list(zip(a.tolist(), b.tolist(), strict=True)) for a, b in pairs(*columns, pairs_max=pairs_max)]
    assert [pair for piece in pieces for pair in piece] == expected
    assert all(len(piece) == pairs_max for piece in pieces[:-1])
    assert all(0 < len(piece) <= pairs_max for piece in pieces)


@pytest.mark.parametrize(
    "keys",
    [["a", None, "b"], [1.5, float("nan"), None], [[1, 2], [], None], [{"x": 1, "y": "a"}, {"x": None, "y": "b"}]],
)
def test_equal_keys_of_two_columns_have_one_number(keys: list[Any]) -> None:
    kind = pa.array(keys).type
    first, second = key_numbers([pa.array(keys, kind), pa.array(keys[::-1], kind)])
    assert first.tolist() == second.tolist()[::-1]
    assert len(set(first.tolist())) == len(keys)


@given(
    st.lists(st.none() | st.integers(0, 9), max_size=30),
    st.lists(st.none() | st.integers(0, 9), max_size=12),
    st.booleans(),
    st.integers(1, 7),
)
def test_keys_unique_on_one_side_are_paired_as_by_a_loop(
    many: list[int | None], few: list[int | None], are_texts: bool, pairs_max: int
) -> None:
    def column(keys: list[int | None]) -> pa.Array:
        values = [None if key is None else str(key) for key in keys] if are_texts else keys
        return pa.array(values, pa.string() if are_texts else pa.int64())

    for left, right in ((many, few), (few, many)):
        results = pairs_of_unique(column(left), column(right), pairs_max=pairs_max)
        smaller = min((right, left), key=len)
        if results is None:
            assert len(set(smaller)) < len(smaller)
            continue
        pieces = list(results)
        assert all(0 < len(a) == len(b) <= pairs_max for a, b in pieces)
        expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b and a is not None]
        matched_pairs = [(i, j) for a, b in pieces for i, j in zip(a.tolist(), b.tolist(), strict=True)]
        assert sorted(matched_pairs) == expected
        for side in (0, 1):  # the matches of one row are in row order
            by_row = sorted(matched_pairs, key=lambda pair: pair[side])
            assert [pair[1 - side] for pair in by_row] == [p[1 - side] for p in sorted(expected, key=lambda p: p[side])]


def test_keys_without_bytewise_equality_use_no_hash_table() -> None:
    assert pairs_of_unique(pa.array([0.0]), pa.array([-0.0])) is None
    assert pairs_of_unique(pa.array([1], pa.int64()), pa.array([1], pa.int32())) is None
