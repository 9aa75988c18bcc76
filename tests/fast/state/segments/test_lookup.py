"""Row lookup: keys requested with many subkeys are searched separately, with equal results."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.state.keys.key_columns import KeyColumn, key_column
from millstream.state.segments import lookup
from millstream.state.segments.lookup import first_not_below
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.storage import open_store

NAMES = itertools.count()


@pytest.fixture(autouse=True, params=[2, 1000], ids=["two are many", "all in step"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MANY_SUBS", request.param)


@given(st.lists(st.tuples(st.lists(st.integers(0, 20)), st.lists(st.integers(-1, 21)))))
def test_the_first_row_not_below_the_bound_is_located_in_each_run(runs: list[tuple[list[int], list[int]]]) -> None:
    values, targets, bounds, expected = [-5], [], [], []
    for run, requested in runs:
        start = len(values)
        values += sorted(run)
        targets += requested
        bounds += [(start, len(values))] * len(requested)
        expected += [bisect.bisect_left(values, target, start, len(values)) for target in requested]
    starts, stops = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    positions = first_not_below(np.array(values), np.array(targets, dtype=np.int64), starts, stops)
    assert positions.tolist() == expected


@pytest.mark.parametrize("collide", [False, True], ids=["hashes", "one hash for all"])
@pytest.mark.parametrize(("key_kind", "sub_type"), [(int, pa.int64()), (str, pa.string())], ids=["numbers", "texts"])
@given(data=st.data())
def test_few_keys_with_many_subs_equal_a_dictionary(
    key_kind: type, sub_type: pa.DataType, collide: bool, data: st.DataObject
) -> None:
    def column(keys: list[Any]) -> KeyColumn:
        keyed = key_column([key_kind(key) for key in keys], None)
        return KeyColumn(np.full(len(keyed), 7), keyed.array) if collide else keyed

    def sub_column(subs: list[int]) -> pa.Array:
        return pa.array(subs).cast(sub_type)

    layout = TableLayout("values", None, sub_type, pa.int64())
    store, refs, expected = open_store(f"memory://test-lookup-{next(NAMES)}"), [], {}
    pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=25)
    for epoch in range(1, data.draw(st.integers(1, 3)) + 1):
        changes = TableChanges(layout)
        for key in data.draw(st.sets(st.integers(0, 3), max_size=1)):
            changes.clear(column([key]))
            expected = {pair: value for pair, value in expected.items() if pair[0] != key}
        for is_put, written in ((True, data.draw(pairs)), (False, data.draw(pairs)[:5])):
            keys, subs = column([key for key, _ in written]), sub_column([sub for _, sub in written])
            if is_put:
                changes.put(keys, pa.array(range(epoch * 100, epoch * 100 + len(written)), pa.int64()), subs=subs)
                expected.update(zip(written, range(epoch * 100, epoch * 100 + len(written)), strict=True))
            else:
                changes.delete(keys, subs=subs)
                expected = {pair: value for pair, value in expected.items() if pair not in written}
        ref = changes.write(store, f"segments/{epoch}.arrow", epoch, range(128), chunk_rows=8)
        refs += [ref] if ref is not None else []
    requested = data.draw(pairs)
    view = TableView(OpenSegments(store), layout, refs, range(128), 0)
    result = view.get_pairs(column([key for key, _ in requested]), sub_column([sub for _, sub in requested]))
    assert result.mask.tolist() == [pair in expected for pair in requested]
    assert result.values is not None
    assert result.values.to_pylist() == [expected[pair] for pair in requested if pair in expected]
