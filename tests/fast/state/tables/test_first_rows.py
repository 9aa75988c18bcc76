"""The first rows of keys are the rows that a scan of the keys begins with, despite deletes and updates."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.state.keys.key_columns import key_column
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.storage import open_store

LAYOUT = TableLayout("values", None, pa.int64(), pa.int64())
ALL, KEYS = range(128), ["a", "b", "c"]
STORES = itertools.count()
CHANGE = st.tuples(st.sampled_from(["put", "put", "put", "delete", "clear"]), st.sampled_from(KEYS), st.integers(-9, 9))


def view_of(epochs: list[list[tuple[str, str, int]]], *, is_last_unwritten: bool) -> TableView:
    store = open_store(f"memory://first-rows-{next(STORES)}")
    refs, unwritten = [], None
    for number, epoch in enumerate(epochs):
        changes = TableChanges(LAYOUT)
        for (act, key), run in itertools.groupby(epoch, lambda change: change[:2]):
            subs = list(dict.fromkeys(sub for _, _, sub in run))
            column = key_column([key] * len(subs), None)
            if act == "clear":
                changes.clear(key_column([key], None))
            elif act == "delete":
                changes.delete(column, subs=pa.array(subs))
            else:
                changes.put(column, pa.array([number] * len(subs)), subs=pa.array(subs))
        if is_last_unwritten and number == len(epochs) - 1:
            unwritten = changes
            continue
        ref = changes.write(store, f"segments/{number}.arrow", number + 1, ALL, chunk_rows=4)
        refs += [] if ref is None else [ref]
    view = TableView(OpenSegments(store), LAYOUT, refs, ALL, 0)
    return view if unwritten is None else view.with_changes(unwritten)


@given(
    st.lists(st.lists(CHANGE, max_size=25), min_size=1, max_size=4),
    st.lists(st.sampled_from([*KEYS, "never there"]), unique=True),
    st.lists(st.integers(-10, 10), min_size=4, max_size=4),
    st.integers(1, 5),
    st.booleans(),
)
def test_first_rows_equal_the_start_of_a_scan(
    epochs: list[list[tuple[str, str, int]]], keys: list[str], begins: list[int], count: int, is_last_unwritten: bool
) -> None:
    view = view_of(epochs, is_last_unwritten=is_last_unwritten)
    column = key_column(keys, None)
    expected: list[tuple[int, int, int]] = []
    for position, rows in itertools.groupby(view.scan_keys(column).to_pylist(), lambda row: row["position"]):
        behind = [row for row in rows if row["sub"] >= begins[position]]
        expected += [(position, row["sub"], row["value"]) for row in behind[:count]]
    first_rows = view.first_rows(column, np.array(begins[: len(keys)], dtype=np.int64), count).to_pylist()
    assert [(row["position"], row["sub"], row["value"]) for row in first_rows] == expected


def test_thousands_of_deleted_rows_before_the_first_are_skipped() -> None:
    numbers, table = range(5_000), [("put", "a", number) for number in range(5_000)]
    view = view_of([table, [("delete", "a", number) for number in numbers[:4_990]]], is_last_unwritten=False)
    first_rows = view.first_rows(key_column(["a"], None), np.array([0]), 3)
    assert first_rows.column("sub").to_pylist() == [4_990, 4_991, 4_992]
