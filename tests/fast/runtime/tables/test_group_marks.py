"""DISTINCT aggregates of an insert-only table: values in lists, in spilled rows, or in both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.references.changes import table_after
from millstream.runtime.tables.references.groups import distinct_values, grouped_rows, present_values

TYPE = Types.ROW_NAMED(["k", "v", "s"], [Types.INT(), Types.LONG(), Types.STRING()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
NUMBERS = [-(2**63), -2, -1, 0, 1, 2, 2**63 - 1]
ROW = st.tuples(
    st.integers(0, 1), st.none() | st.sampled_from(NUMBERS), st.none() | st.sampled_from(["", "a", "b", "ü"])
)


def number_of(column: int, condition: Callable[[Any], Any] | None = None) -> Callable[[Any], int]:
    return lambda rows: len(distinct_values(present_values(rows, column, condition)))


def sum_of_small(rows: Any) -> int | None:
    values = distinct_values(present_values(rows, 1, lambda row: row[1] is not None and abs(row[1]) < 3))
    return sum(values) if values else None


MEASURES: dict[str, Callable[[Any], Any]] = {
    "COUNT(DISTINCT v)": number_of(1),
    "COUNT(DISTINCT s) FILTER (WHERE v > 0)": number_of(2, lambda row: row[1] is not None and row[1] > 0),
    "COUNT(DISTINCT v) FILTER (WHERE s = 'a')": number_of(1, lambda row: row[2] == "a"),
    "COUNT(*)": len,
    "COUNT(DISTINCT v) FILTER (WHERE s = 'b')": number_of(1, lambda row: row[2] == "b"),
    "SUM(DISTINCT v) FILTER (WHERE v > -3 AND v < 3)": sum_of_small,
    "COUNT(DISTINCT s)": number_of(2),
    "COUNT(DISTINCT k)": number_of(0),
}


@cache
def plan() -> QueryPlan:
    query = f"SELECT k, {', '.join(MEASURES)} FROM t GROUP BY k"
    return QueryPlan(query, ["t"], TYPE, only_grows=True, is_timed=False)


@pytest.mark.slow
@pytest.mark.parametrize("values_in_row", [0, 1, 3, 256])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    epochs=st.lists(st.lists(ROW, max_size=10), min_size=4, max_size=4),
    reopened=st.lists(st.booleans(), min_size=4, max_size=4),
)
# A value that a second aggregate reads, and the first one again.
@example(epochs=[[(0, 1, "a")], [(0, 1, "b")], [(0, 1, "a")], [(0, 1, "b"), (0, 2, "a")]], reopened=[True] * 4)
def test_results_agree_with_all_rows_so_far(values_in_row: int, epochs: list[list[Any]], reopened: list[bool]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
        task, emitted_rows, so_far = QueryTask(plan()), list[Row](), list[Any]()
        for rows, is_reopened in zip(epochs, reopened, strict=True):
            emitted_rows += task.run({"t": [Row(*row) for row in rows]}, reopened=is_reopened)
            so_far += rows
            left = table_after((tuple(row), row.get_row_kind() in ADDED) for row in emitted_rows)
            assert Counter(left) == Counter(grouped_rows(so_far, (0,), list(MEASURES.values())))
