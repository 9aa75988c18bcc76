"""The first rows of windows agree with a slow reference, epoch by epoch, wherever epochs are cut and operators
restored; and a plan shows which windows emit their first rows once.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.one_task import QueryPlan, QueryTask

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.graph.table_nodes import OrderKey
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.tables.references.ranks import first_rows
from millstream.table import EnvironmentSettings, TableEnvironment

TYPE = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
WINDOWED = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.010' SECOND, INTERVAL '0.020' SECOND))"
SLIDE_MS, SIZE_MS = 10, 20
EPOCH = dt.datetime(1970, 1, 1)
ROWS = st.lists(st.tuples(st.none() | st.integers(0, 1), st.none() | st.integers(0, 3), st.integers(0, 60)), max_size=8)


@cache
def plan_of(kind: str, first: int, last: int) -> QueryPlan:
    numbered = (
        f"SELECT k, v, {kind}() OVER (PARTITION BY window_end, window_start, k ORDER BY v DESC NULLS LAST) AS n, "
        f"window_end FROM {WINDOWED}"
    )
    query = f"SELECT k, v, n, window_end FROM ({numbered}) WHERE n BETWEEN {first} AND {last}"
    return QueryPlan(query, ["t"], TYPE, is_timed=True, only_grows=True)


@pytest.mark.parametrize("kind", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
@pytest.mark.parametrize("bounds", [(1, 1), (1, 2), (2, 3)], ids=str)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=st.lists(st.tuples(ROWS, st.integers(0, 25), st.booleans()), min_size=1, max_size=5))
def test_window_top_n_agrees_with_the_reference(kind: str, bounds: tuple[int, int], epochs: list[Any]) -> None:
    task, reached = QueryTask(plan_of(kind, *bounds)), MIN_WATERMARK
    waiting: list[tuple[Any, ...]] = []
    for rows, step, reopened in epochs:
        before, reached = reached, max(reached, 0) + step
        values, times = [Row(k, v) for k, v, _ in rows], [time for *_, time in rows]
        emitted = task.run({"t": values}, times={"t": times}, watermark=reached, reopened=reopened)
        for k, v, time in rows:
            last_end = time // SLIDE_MS * SLIDE_MS + SIZE_MS
            ends = range(last_end, time, -SLIDE_MS)
            waiting += [(k, v, end) for end in ends if end - 1 > before]
        over = [row for row in waiting if row[2] - 1 <= reached]
        waiting = [row for row in waiting if row[2] - 1 > reached]
        order = [OrderKey(1, descending=True, nulls_first=False)]
        expected = [(k, v, n, end) for k, v, end, n in first_rows(kind, over, [2, 0], order, *bounds)]
        assert all(row.get_row_kind() is RowKind.INSERT for row in emitted)
        rows_with_ms = [(row[0], row[1], row[2], (row[3] - EPOCH).total_seconds() * 1_000) for row in emitted]
        assert Counter(rows_with_ms) == Counter(expected)


def plan_lines(query: str) -> str:
    """The plan of a query over a table with a time."""
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql(
        "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'values', 'data' = '[]')"
    )
    return t_env.explain_sql(query).partition("== Optimized")[2]


NUMBERED = (
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS n FROM {rows}) WHERE n <= 2"
)
TUMBLED = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND))"


def test_a_partition_by_window_bounds_is_ranked_per_window() -> None:
    text = plan_lines(NUMBERED.format(by="window_start, window_end, k", order="v", rows=TUMBLED))
    assert "WindowRank(window=[win_start=[window_start], win_end=[window_end]], rankType=[ROW_NUMBER]" in text


@pytest.mark.parametrize("by", ["window_start", "window_end, k", "k"])
def test_a_partition_without_a_window_bound_is_never_final(by: str) -> None:
    text = plan_lines(NUMBERED.format(by=by, order="v", rows=TUMBLED))
    assert " Rank(" in text.replace("+- ", " ") and "WindowRank" not in text


def test_windows_of_one_size_are_unioned_only_if_they_follow_the_same_clocks() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, time in (("t", "TIMESTAMP(3)"), ("u", "TIMESTAMP_LTZ(3)")):
        t_env.execute_sql(
            f"CREATE TABLE {name} (k STRING, ts {time}, WATERMARK FOR ts AS ts) "
            "WITH ('connector' = 'values', 'data' = '[]')"
        )

    def united(*names: str) -> str:
        branches = " UNION ALL ".join(
            f"SELECT k, window_start, window_end FROM TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(ts), INTERVAL '1' SECOND))"
            for name in names
        )
        grouped = f"SELECT window_start, k, COUNT(*) FROM ({branches}) GROUP BY window_start, window_end, k"
        return t_env.explain_sql(grouped).partition("== Optimized")[2]

    assert "WindowAggregate" in united("t", "t") and "WindowAggregate" in united("u", "u")
    assert "WindowAggregate" not in united("t", "u") and "GroupAggregate" in united("t", "u")
