"""Sort positions of rows: the fast sort agrees with the slow one, and dropping rows before the exchange does not change
the first rows.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.graph.table_nodes import OrderKey
from millstream.runtime.tables.ranking import ranks_of, sorted_rows

SMALL = st.integers(-3, 3)
ANY = st.one_of(SMALL, st.sampled_from([-(2**63), 2**63 - 1, 2**40]))
ROWS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), ANY), SMALL), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SMALL, ANY), max_size=20), st.booleans())
def test_rows_are_sorted_as_python_sorts_them(rows: list[tuple[int, int]], latest_first: bool) -> None:
    keys = [np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1)]
    places = range(len(rows))
    expected = sorted(places, key=lambda at: (*rows[at], -at if latest_first else at))
    assert sorted_rows(keys, latest_first=latest_first).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(
    ROWS,
    st.lists(st.integers(0, 30), max_size=3),
    st.sampled_from(["ROW_NUMBER", "RANK", "DENSE_RANK"]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_dropping_rows_per_batch_does_not_change_the_first_rows(
    rows: list[tuple[int, int | None, int]], cuts: list[int], kind: str, last: int, descending: bool, latest: bool
) -> None:
    order = [OrderKey(0, descending, nulls_first=descending), OrderKey(1)]

    def first(chosen: list[int]) -> list[int]:
        partitions = np.array([rows[at][0] for at in chosen], dtype=np.int64)
        columns = [pa.array([rows[at][field] for at in chosen], pa.int64()) for field in (1, 2)]
        ranks, _ = ranks_of(kind, partitions, columns, order, latest_first=latest)
        return [at for at, rank in zip(chosen, ranks.tolist(), strict=True) if rank <= last]

    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    batches = [list(range(start, end)) for start, end in pairwise(bounds)]
    assert first([at for batch in batches for at in first(batch)]) == first(list(range(len(rows))))
