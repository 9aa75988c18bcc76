"""Operators that depend on arrival order emit the same result however changes are cut into epochs and batches."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables import spilled_values

TYPE = Types.ROW_NAMED(["k", "v", "s"], [Types.INT(), Types.LONG(), Types.STRING()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
NUMBERED = "SELECT k, v, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t"
QUERIES = (
    "SELECT k, FIRST_VALUE(s), LAST_VALUE(s), FIRST_VALUE(v), LAST_VALUE(DISTINCT v) FROM t GROUP BY k",
    "SELECT k, FIRST_VALUE(s) FILTER (WHERE v > 1), LAST_VALUE(s) FILTER (WHERE v > 1) FROM t GROUP BY k",
    "SELECT k, LISTAGG(s), ARRAY_AGG(v), LISTAGG(DISTINCT s) FROM t GROUP BY k",
    "SELECT COLLECT(s), JSON_ARRAYAGG(s) FROM t",
    f"SELECT k, v, s, n FROM ({NUMBERED}) WHERE n <= 3",
    f"SELECT k, v, s FROM ({NUMBERED}) WHERE n <= 2",
    "SELECT k, v, s, LAG(s) OVER (PARTITION BY k ORDER BY v), ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) FROM t",
    "SELECT k, v, s, FIRST_VALUE(s) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
)


@cache
def plan_of(query: str) -> QueryPlan:
    return QueryPlan(query, ["t"], TYPE)


@st.composite
def changelogs(draw: Any) -> list[Row]:
    """Changes of few rows, which are inserted and deleted repeatedly."""
    live: list[tuple[Any, ...]] = []
    changes = []
    for number, text in draw(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b"])), max_size=16)):
        if live and number > 4:
            changes.append(Row.of_kind(RowKind.DELETE, *live.pop(number % len(live))))
        if number != 9:
            live.append((0, number % 2 + 1, text))
            changes.append(Row.of_kind(RowKind.UPDATE_AFTER if number > 4 else RowKind.INSERT, *live[-1]))
    return changes


def rows_of(query: str, epochs: list[list[Row]]) -> Counter[str]:
    task, left = QueryTask(plan_of(query)), Counter[str]()
    for number, rows in enumerate(epochs):
        for row in task.run({"t": rows}, reopened=bool(number % 2)):
            left[repr(tuple(row))] += 1 if row.get_row_kind() in ADDED else -1
    assert min(left.values(), default=0) >= 0
    return +left


@pytest.mark.slow
@pytest.mark.parametrize("values_in_row", [0, 256])
@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=changelogs(), cuts=st.lists(st.integers(0, 20), max_size=3))
def test_a_result_is_the_same_wherever_epochs_are_cut(
    query: str, values_in_row: int, changes: list[Row], cuts: list[int]
) -> None:
    ends = [*sorted(cuts), len(changes)]
    epochs = [changes[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
        one_by_one = rows_of(query, [[change] for change in changes])
        assert rows_of(query, epochs) == one_by_one
        assert rows_of(query, [changes]) == one_by_one


@pytest.mark.parametrize("epochs", [1, 2, 4], ids=["together", "apart", "one-by-one"])
def test_of_equal_rows_a_reinserted_one_is_last(epochs: int) -> None:
    rows = [Row(0, 1, "a"), Row(0, 1, "b"), Row.of_kind(RowKind.DELETE, 0, 1, "a"), Row(0, 1, "a")]
    cut = [rows[at : at + 4 // epochs] for at in range(0, 4, 4 // epochs)]
    assert rows_of(f"SELECT s, n FROM ({NUMBERED}) WHERE n <= 3", cut) == Counter(["('b', 1)", "('a', 2)"])
