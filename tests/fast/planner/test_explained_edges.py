"""The JSON of EXPLAIN shows how rows are exchanged between operators."""

from __future__ import annotations

import json

import pytest

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.explain_detail import ExplainDetail


def ways(query: str) -> dict[str, str]:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql("CREATE TABLE t (k INT, v INT) WITH ('connector' = 'datagen')")
    text = t_env.explain_sql(query, ExplainDetail.JSON_EXECUTION_PLAN)
    nodes = json.loads(text.split("== Physical Execution Plan ==")[1])["nodes"]
    return {
        node["type"].split("[")[0]: node["predecessors"][0]["ship_strategy"] for node in nodes if "predecessors" in node
    }


@pytest.mark.parametrize(
    ("query", "operator", "way"),
    [
        ("SELECT k, COUNT(*) FROM t GROUP BY k", "GroupAggregate", "HASH"),
        ("SELECT COUNT(*) FROM t", "GroupAggregate", "GLOBAL"),
        ("SELECT a.v FROM t a JOIN t b ON a.k = b.k", "Join", "HASH"),
        ("SELECT a.v FROM t a JOIN t b ON a.k < b.k", "Join", "GLOBAL"),
        ("SELECT a.v FROM t a JOIN t b ON a.k IS NOT DISTINCT FROM b.k", "Join", "HASH"),
        ("SELECT v + 1 FROM t WHERE k > 1", "Calc", "FORWARD"),
        (
            "SELECT * FROM (SELECT v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) n FROM t) WHERE n <= 1",
            "Rank",
            "HASH",
        ),
    ],
)
def test_rows_are_hashed_where_operators_have_keys(query: str, operator: str, way: str) -> None:
    assert ways(query)[operator] == way


@pytest.mark.parametrize(
    ("condition", "is_noted"),
    [
        ("v NOT IN (SELECT k FROM t)", True),
        ("v NOT IN (SELECT k FROM t o WHERE o.v = t.v)", False),
        ("NOT EXISTS (SELECT 1 FROM t o WHERE o.k = t.v)", False),
        ("v IN (SELECT k FROM t)", False),
        ("COALESCE(v, 0) NOT IN (SELECT COALESCE(k, 0) FROM t)", False),
    ],
)
def test_not_in_that_runs_in_one_task_is_noted_with_an_alternative(condition: str, is_noted: bool) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql("CREATE TABLE t (k INT, v INT) WITH ('connector' = 'datagen')")
    text = t_env.explain_sql(f"SELECT v FROM t WHERE {condition}")
    assert ("== Notes ==" in text and "one task joins all rows. Write NOT EXISTS" in text) == is_noted
