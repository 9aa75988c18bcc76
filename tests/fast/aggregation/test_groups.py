"""Fast grouping agrees with slow grouping: by pairs at once, and the first and last row of each group."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation import groups as groups_module
from millstream.aggregation.groups import Groups, groups_of, groups_of_pairs, pair_groups

KEYS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])),
    (pa.int64(), st.integers(-3, 3) | st.none()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(5, 9)),
    (pa.float64(), st.sampled_from([0.0, -0.0, float("nan"), 1.5, None])),
    (pa.string(), st.sampled_from(["a", "b", None])),
    (
        pa.struct({"a": pa.int64(), "b": pa.string()}),
        st.fixed_dictionaries({"a": st.integers(0, 1), "b": st.just("x")}),
    ),
]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[pa.Array, pa.Array]:
    """A column of keys, and one of panes."""
    kind, keys = draw(st.sampled_from(KEYS))
    rows = draw(st.lists(st.tuples(keys, st.sampled_from([-2_000, 0, 2_000, 2**40])), min_size=1, max_size=40))
    return pa.array([key for key, _ in rows], kind), pa.array([pane for _, pane in rows], pa.int64())


def members(groups: Groups) -> set[tuple[int, ...]]:
    """The rows of each group, which are never empty."""
    results = {tuple(np.flatnonzero(groups.codes == code).tolist()) for code in range(groups.count)}
    assert () not in results and len(results) == groups.count and len(groups.codes) == sum(map(len, results))
    return results


@given(pairs(), st.sampled_from([1, 1_024]), st.sampled_from([1, 4, 64]))
def test_numbering_pairs_at_once_agrees_with_numbering_columns(
    columns: tuple[pa.Array, pa.Array], rows_min: int, room_per_row: int
) -> None:
    keys, panes = columns
    expected = members(pair_groups(groups_of(keys), groups_of(panes)))
    with (
        patch.object(groups_module, "_PLACED_ROWS_MIN", rows_min),
        patch.object(groups_module, "_ROOM_PER_ROW", room_per_row),
    ):
        assert members(groups_of_pairs(keys, panes)) == expected
        assert members(pair_groups(groups_of(keys), groups_of(panes))) == expected


@pytest.mark.parametrize("keys", [90, 3_000, 10**6, 10**15])
def test_pairs_of_many_rows_are_numbered_by_key_and_pane(keys: int) -> None:
    chance = np.random.default_rng(3)
    left, right = chance.integers(0, keys, 4_000), chance.integers(0, 3, 4_000) * 2_000
    results = groups_of_pairs(pa.array(left), pa.array(right))
    named = set(zip(left.tolist(), right.tolist(), results.codes.tolist(), strict=True))
    assert len(named) == results.count == len({pair[:2] for pair in named}) == len({pair[2] for pair in named})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.sampled_from([1, 2, 64]))
def test_first_rows_last_rows_and_sizes_agree_with_the_rows_of_each_group(codes: list[int], searched: int) -> None:
    groups = groups_of(pa.array(codes))
    rows = [np.flatnonzero(groups.codes == code) for code in range(groups.count)]
    with patch.object(groups_module, "_ROWS_PER_FIRST", searched):
        assert groups.firsts().tolist() == [results[0] for results in rows]
    assert groups.lasts().tolist() == [results[-1] for results in rows]
    assert groups.sizes.tolist() == [len(results) for results in rows]
