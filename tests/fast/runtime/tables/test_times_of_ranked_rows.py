"""In BATCH, ranked, limited or sorted rows retain their event time, so windows can follow them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

WINDOWED = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
RANKED = {
    "first rows of windows": (
        "SELECT v, window_time AS wt FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
        f"ORDER BY v DESC) AS n FROM {WINDOWED}) WHERE n = 1"
    ),
    "deduplication": (
        "SELECT v, ts AS wt FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM t) "
        "WHERE n = 1"
    ),
    "limit": "SELECT v, ts AS wt FROM t ORDER BY v DESC LIMIT 2",
    "rows of an outer join": (
        "SELECT v, ts AS wt FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM "
        "(SELECT t.k, t.v, t.ts, o.ts AS other FROM t LEFT JOIN t AS o ON t.k = o.k AND t.v < o.v "
        "AND o.ts BETWEEN t.ts AND t.ts + INTERVAL '1' HOUR)) WHERE n = 1"
    ),
}


def answer(query: str, mode: str = "batch", **views: str) -> list[Any]:
    """The rows of a query over a small table, and views of it."""
    settings = EnvironmentSettings.new_instance()
    with jobs_in_memory():
        t_env = TableEnvironment.create(
            (settings.in_batch_mode() if mode == "batch" else settings.in_streaming_mode()).build()
        )
        t_env.execute_sql(
            "CREATE TABLE t (k STRING, v BIGINT, t BIGINT, ts AS TO_TIMESTAMP_LTZ(t, 3), WATERMARK FOR ts AS ts) WITH "
            """('connector' = 'values', 'data' = '[["a", 1, 1000], ["a", 2, 2000], ["b", 3, 8000000]]')"""
        )
        for name, text in views.items():
            t_env.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {text}")
        return [tuple(row) for row in t_env.execute_sql(query).collect()]


@pytest.mark.parametrize("ranked", RANKED.values(), ids=RANKED)
def test_windows_can_follow_ranked_rows_in_batch(ranked: str) -> None:
    windows = "TABLE(TUMBLE(TABLE x, DESCRIPTOR(wt), INTERVAL '2' HOUR))"
    query = f"SELECT window_start, SUM(v) FROM {windows} GROUP BY window_start, window_end"
    rows = set(answer(query, x=ranked))
    assert rows == {(dt.datetime(1970, 1, 1), 2), (dt.datetime(1970, 1, 1, 2), 3)}


def test_rows_of_an_outer_join_without_a_time_are_ranked_in_batch() -> None:
    joined = (
        "SELECT l.window_time AS missing, r.k, r.v "
        f"FROM (SELECT * FROM {WINDOWED} WHERE v < 3) AS l RIGHT JOIN (SELECT * FROM {WINDOWED}) AS r "
        "ON l.k = r.k AND l.v = r.v AND l.window_start = r.window_start AND l.window_end = r.window_end"
    )
    time = dt.datetime(1970, 1, 1, 0, 59, 59, 999_000, dt.UTC)
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM ({joined})"
    expected = {(time, "a", 1, 1), (time, "a", 2, 2), (None, "b", 3, 1)}
    assert set(answer(f"SELECT * FROM ({numbered}) WHERE n <= 2")) == expected
    assert set(answer(numbered)) == expected


SIDES = (
    f"(SELECT * FROM {WINDOWED} WHERE v < 3) AS l {{kind}} JOIN (SELECT * FROM {WINDOWED} WHERE v > 1) AS r "
    "ON l.k = r.k AND l.v = r.v AND l.window_start = r.window_start AND l.window_end = r.window_end"
)


@pytest.mark.parametrize("column", ["l.window_time", "r.window_time"])
@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_windows_over_the_time_of_an_unmatched_side_fail(mode: str, kind: str, column: str) -> None:
    joined = f"SELECT {column} AS wt, l.v AS lv, r.v AS rv FROM {SIDES.format(kind=kind)}"
    windows = "TABLE(TUMBLE(TABLE x, DESCRIPTOR(wt), INTERVAL '2' HOUR))"
    query = f"SELECT window_start, COUNT(*) FROM {windows} GROUP BY window_start, window_end"
    has_nulls = kind == "FULL" or (kind == "LEFT" and column[0] == "r") or (kind == "RIGHT" and column[0] == "l")
    if has_nulls:
        with pytest.raises(Exception, match="RowTime field should not be null"):
            answer(query, mode=mode, x=joined)
    else:
        counts = {"INNER": [1], "LEFT": [2], "RIGHT": [1, 1]}[kind]
        assert [row[1] for row in sorted(answer(query, mode=mode, x=joined))] == counts


def test_windows_over_a_union_with_unmatched_rows_fail() -> None:
    branches = (f"SELECT l.window_time AS wt, r.v FROM {SIDES.format(kind=kind)}" for kind in ("INNER", "RIGHT"))
    windows = "TABLE(TUMBLE(TABLE x, DESCRIPTOR(wt), INTERVAL '2' HOUR))"
    query = f"SELECT window_start, COUNT(*) FROM {windows} GROUP BY window_start, window_end"
    with pytest.raises(Exception, match="RowTime field should not be null"):
        answer(query, x=" UNION ALL ".join(branches))
