"""A retracted row is exactly the row that was emitted, not one that is merely equal to it, such as with a zero of the
other sign.
"""

from __future__ import annotations

import struct
from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables import group_extremes, spilled_values
from millstream.runtime.tables.changes import changed_mask, consolidated_rows, difference, row_numbers

TYPE = Types.ROW_NAMED(["k", "x"], [Types.INT(), Types.DOUBLE()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
VALUES = (0.0, -0.0, None, 1.0, 0.1, 0.3, 1e16, float("nan"), OTHER_NAN)
NUMBERED = "SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS n FROM t"
AROUND = "(PARTITION BY k ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
QUERIES = (
    "SELECT k, FIRST_VALUE(x), LAST_VALUE(x), COUNT(*) FROM t GROUP BY k",
    "SELECT k, MIN(x), MAX(x), COUNT(*) FROM t GROUP BY k",
    "SELECT k, SUM(x), AVG(x), SUM(DISTINCT x), COUNT(DISTINCT x), -SUM(x) FROM t GROUP BY k",
    "SELECT k, ARRAY_AGG(x), COLLECT(x), ARRAY_AGG(DISTINCT x) FROM t GROUP BY k",
    "SELECT k, LAST_VALUE(r) FROM (SELECT k, ROW(k, x) AS r FROM t) q GROUP BY k",
    "SELECT x, COUNT(*) FROM t GROUP BY x",
    "SELECT DISTINCT k, x FROM t",
    "SELECT t.k, t.x, u.x FROM t JOIN u ON t.k = u.k",
    "SELECT t.k, t.x, u.x FROM t LEFT JOIN u ON t.x = u.x",
    "SELECT t.k, t.x, u.x FROM t FULL JOIN u ON t.k = u.k AND t.x >= u.x",
    "SELECT k, x FROM t WHERE k IN (SELECT k FROM u)",
    "SELECT k, x FROM t WHERE x NOT IN (SELECT x FROM u WHERE x IS NOT NULL)",
    f"SELECT k, x FROM ({NUMBERED}) q WHERE n <= 2",
    f"SELECT k, x, n FROM ({NUMBERED}) q WHERE n <= 2",
    f"SELECT k, x, LAG(x) OVER (PARTITION BY k ORDER BY x), SUM(x) OVER {AROUND}, MIN(x) OVER {AROUND} FROM t",
    "SELECT k, x FROM t UNION SELECT k, x FROM u",
    "SELECT k, x FROM t INTERSECT ALL SELECT k, x FROM u",
    "SELECT k, x FROM t EXCEPT ALL SELECT k, x FROM u",
    "SELECT k, CAST(x AS STRING), LEAST(x, 0.0), GREATEST(-x, x) FROM t",
    "SELECT s, COUNT(*) FROM (SELECT k, CAST(MAX(x) AS STRING) AS s FROM t GROUP BY k) q GROUP BY s",
)


@cache
def plan(query: str) -> QueryPlan:
    return QueryPlan(query, [name for name in ("t", "u") if f"FROM {name}" in query or f"JOIN {name}" in query], TYPE)


@st.composite
def changes(draw: Any) -> list[list[Row]]:
    """Changes of a table, in epochs: a deleted row is exactly a row that was inserted."""
    live: list[tuple[Any, ...]] = []
    epochs = []
    for size in draw(st.lists(st.integers(0, 6), min_size=3, max_size=4)):
        rows = []
        for _ in range(size):
            if live and draw(st.booleans()):
                rows.append(Row.of_kind(RowKind.DELETE, *live.pop(draw(st.integers(0, len(live) - 1)))))
            else:
                live.append((draw(st.integers(0, 1)), draw(st.sampled_from(VALUES))))
                rows.append(Row(*live[-1]))
        epochs.append(rows)
    return [*epochs, *([[]] * (4 - len(epochs)))]


def rows_left(emitted_rows: list[Row]) -> Counter[str]:
    """The remaining rows by their repr, which distinguishes zeros."""
    left: Counter[str] = Counter()
    for row in emitted_rows:
        left[repr(tuple(row))] += 1 if row.get_row_kind() in ADDED else -1
        assert left[repr(tuple(row))] >= 0, f"{tuple(row)} is retracted and was never emitted"
    return +left


@pytest.mark.slow
@pytest.mark.parametrize("values_in_row", [0, 256])
@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(t=changes(), u=changes(), reopened=st.booleans())
def test_retractions_equal_emitted_rows(
    query: str, values_in_row: int, t: list[list[Row]], u: list[list[Row]], reopened: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
        patch.setattr(group_extremes, "HEAD_VALUES", 1)
        patch.setattr(group_extremes, "HEAD_VALUES_MAX", 1 + values_in_row)
        task, emitted_rows = QueryTask(plan(query)), list[Row]()
        for rows, others in zip(t, u, strict=True):
            emitted_rows += task.run({"t": rows, "u": others}, reopened=reopened)
            rows_left(emitted_rows)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["SELECT t.k, t.x FROM t JOIN u ON t.k = u.k", "SELECT k, x FROM ({}) q WHERE n < 9"])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(t=changes())
def test_remaining_rows_have_the_zeros_that_were_inserted(query: str, t: list[list[Row]]) -> None:
    task, emitted_rows, inserted = QueryTask(plan(query.format(NUMBERED))), list[Row](), list[Row]()
    ones = [Row(0, 1.0), Row(1, 1.0)]
    for number, rows in enumerate(t):
        emitted_rows += task.run({"t": rows, "u": [] if number else ones})
        inserted += rows
        assert rows_left(emitted_rows) == rows_left(inserted)


def test_a_last_value_with_a_zero_of_the_other_sign_is_an_update() -> None:
    task = QueryTask(plan("SELECT LAST_VALUE(x) FROM t"))
    emitted_rows = [task.run({"t": [Row(0, value)]}) for value in (0.0, -0.0, 1.0)]
    assert [[repr(row[0]) for row in rows] for rows in emitted_rows] == [["0.0"], ["0.0", "-0.0"], ["-0.0", "1.0"]]


def test_equal_rows_have_zeros_of_the_same_sign_and_nans_of_any_bits() -> None:
    values = pa.array([0.0, -0.0, float("nan"), OTHER_NAN, None])
    nested = [
        values,
        values.cast(pa.float32()),
        pa.StructArray.from_arrays([values], names=["x"]),
        pa.array([[each] for each in values.to_pylist()], pa.list_(pa.float64())),
        pa.array([[("a", each)] for each in values.to_pylist()], pa.map_(pa.string(), pa.float64())),
    ]
    for column in nested:
        assert row_numbers([column])[0].tolist() == [0, 1, 2, 2, 3], column.type
        turned = column.take(pa.array([1, 1, 3, 2, 4]))
        assert changed_mask([column], [turned], 5).tolist() == [True, False, False, False, False], column.type
    rows = pa.RecordBatch.from_arrays([values[:2]], names=["x"])
    assert consolidated_rows(rows, row_numbers([values[:2]])[0] * -2 + 1)[0].num_rows == 2
    changed, kinds = difference(rows.slice(0, 1), rows.slice(1, 1))
    assert [repr(each) for each in changed.column(0).to_pylist()] == ["0.0", "-0.0"] and kinds.tolist() == [3, 0]


def test_lists_have_their_values_in_arrival_order_whatever_other_groups_have() -> None:
    type_info = Types.ROW_NAMED(["k", "s"], [Types.INT(), Types.STRING()])
    query = "SELECT k, LISTAGG(DISTINCT s), COLLECT(s), ARRAY_AGG(DISTINCT s) FROM t GROUP BY k"
    for only_grows in (True, False):
        task = QueryTask(QueryPlan(query, ["t"], type_info, only_grows=only_grows))
        emitted_rows = task.run({"t": [Row(0, "a"), Row(0, "b"), Row(1, "b"), Row(1, "a")]})
        assert [(*row[:2], list(row[2]), row[3]) for row in emitted_rows] == [
            (0, "a,b", ["a", "b"], ["a", "b"]),
            (1, "b,a", ["b", "a"], ["b", "a"]),
        ]
