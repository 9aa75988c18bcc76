"""Stored tables: the consolidated rows and deleted keys of an epoch's changes, against a slow reference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Types
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.stored_table import last_rows
from millstream.state.keys.key_columns import key_column

changes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=30)


def consolidate_slowly(rows: list[tuple[int, int, bool]]) -> tuple[dict[int, int], set[int]]:
    """One change after another: a row inserted and deleted again was never in the table."""
    added: list[tuple[int, int]] = []
    deleted: list[tuple[int, int]] = []
    for key, value, is_added in rows:
        same_kind, opposite = (added, deleted) if is_added else (deleted, added)
        if (key, value) in opposite:
            opposite.remove((key, value))
        else:
            same_kind.append((key, value))
    return dict(added), {key for key, _ in deleted} - {key for key, _ in added}


@given(changes)
def test_the_last_row_of_a_key_is_stored_and_a_key_with_only_deletes_is_removed(
    rows: list[tuple[int, int, bool]],
) -> None:
    keys = key_column([key for key, _, _ in rows], Types.LONG())
    contents = pa.array([{"v": value} for _, value, _ in rows], pa.struct([("v", pa.int64())]))
    signs = np.array([1 if is_added else -1 for _, _, is_added in rows], dtype=np.int64)
    net = SignedRows.of(keys, contents, signs).consolidated()
    current_rows, deleted_keys = last_rows(net)
    added, lost = consolidate_slowly(rows)
    results = net.take(current_rows)
    assert set(net.take(deleted_keys).keys.array.to_pylist()) == lost
    stored = dict(zip(results.keys.array.to_pylist(), (row["v"] for row in results.contents.to_pylist()), strict=True))
    assert stored.keys() == added.keys()
    for key, value in stored.items():
        # Of equal rows consolidation retains the last inserted ones: the last of all rows is the last of the remaining
        # ones.
        assert value in {row for each, row, is_added in rows if each == key and is_added}
