"""LATERAL TABLE(…) and UNNEST with a condition: it filters the results of a row, and belongs to the join. A LEFT join
retains every row of its left side, whatever the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.expressions import col
from millstream.table.udf import udf, udtf
from millstream.testing.local_jobs import jobs_in_memory

Pair = tuple[Any, ...]
LEFT = [(1, 0), (2, 1), (3, 3), (4, None)]
"""Numbers of rows, and how many results each has."""


@udtf(result_types=[DataTypes.INT()])
def upto(count: Any) -> Iterator[int]:
    yield from range(1, (count or 0) + 1)


@udf(result_type=DataTypes.BOOLEAN())
def is_odd(number: int) -> bool:
    return number % 2 == 1


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        rows = ", ".join(f"({k}, {'CAST(NULL AS INT)' if n is None else n})" for k, n in LEFT)
        t_env.execute_sql(f"CREATE VIEW l AS SELECT * FROM (VALUES {rows}) AS t(k, n)")
        arrays = "CASE n WHEN 1 THEN ARRAY[1] WHEN 3 THEN ARRAY[1, 2, 3] ELSE CAST(NULL AS ARRAY<INT>) END"
        t_env.execute_sql(f"CREATE VIEW a AS SELECT k, n, {arrays} AS arr FROM l")
        t_env.create_temporary_function("upto", upto)
        t_env.create_temporary_function("is_odd", is_odd)
        yield t_env


def rows(t_env: TableEnvironment, query: str) -> list[Pair]:
    with t_env.execute_sql(query).collect() as results:
        return sorted((tuple(each) for each in results), key=repr)


def expected(kind: str, condition: Callable[[int, int], bool]) -> list[Pair]:
    pairs: list[Pair] = []
    for k, n in LEFT:
        matches = [(k, i) for i in range(1, (n or 0) + 1) if condition(k, i)]
        pairs += matches or ([(k, None)] if kind == "LEFT" else [])
    return sorted(pairs, key=repr)


CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "i = 1": lambda k, i: i == 1,
    "FALSE": lambda k, i: False,
    "TRUE": lambda k, i: True,
    "i > 1 AND k = 3": lambda k, i: i > 1 and k == 3,
    "k = 2": lambda k, i: k == 2,
    "CAST(NULL AS BOOLEAN)": lambda k, i: False,
    "is_odd(i)": lambda k, i: i % 2 == 1,
    "i IS NULL": lambda k, i: False,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LEFT", "INNER"])
@pytest.mark.parametrize("right", ["l LEFT JOIN LATERAL TABLE(upto(n)) AS f(i)", "a LEFT JOIN UNNEST(arr) AS f(i)"])
def test_a_left_lateral_join_retains_rows_whose_condition_is_false(
    t_env: TableEnvironment, kind: str, right: str
) -> None:
    for sql, condition in CONDITIONS.items():
        query = f"SELECT k, i FROM {right.replace('LEFT', kind)} ON {sql}"
        assert rows(t_env, query) == expected(kind, condition), query


def test_a_condition_on_numbered_elements_filters_them(t_env: TableEnvironment) -> None:
    query = "SELECT k, i, o FROM a LEFT JOIN UNNEST(arr) WITH ORDINALITY AS f(i, o) ON o >= 2"
    assert rows(t_env, query) == [(1, None, None), (2, None, None), (3, 2, 2), (3, 3, 3), (4, None, None)]


def test_a_filter_above_a_left_lateral_join_is_not_its_condition(t_env: TableEnvironment) -> None:
    join = "l LEFT JOIN LATERAL TABLE(upto(n)) AS f(i) ON i = 2"
    assert rows(t_env, f"SELECT k FROM {join} WHERE i IS NULL AND k > 1") == [(2,), (4,)]
    assert rows(t_env, f"SELECT k FROM {join} WHERE i = 2") == [(3,)]


def test_a_left_join_of_updating_rows_retracts_emitted_rows(t_env: TableEnvironment) -> None:
    counts = "(SELECT k, COUNT(*) AS n FROM (VALUES 1, 1, 2) AS t(k) GROUP BY k)"
    query = f"SELECT k, SUM(n), COUNT(i) FROM {counts} LEFT JOIN LATERAL TABLE(upto(CAST(n AS INT))) AS f(i) ON i = 2"
    with t_env.execute_sql(f"{query} GROUP BY k").collect() as results:
        last = {row[0]: tuple(row) for row in results}
    assert last == {1: (1, 2, 1), 2: (2, 1, 0)}


def test_the_table_api_joins_on_a_condition_as_sql_does(t_env: TableEnvironment) -> None:
    left = t_env.from_path("l")
    outer = left.left_outer_join_lateral(upto(col("n")).alias("i"), col("i") == 1).select(col("k"), col("i"))
    inner = left.join_lateral(upto(col("n")).alias("i"), col("i") == 1).select(col("k"), col("i"))
    for table, kind in ((outer, "LEFT"), (inner, "INNER")):
        with table.execute().collect() as results:
            assert sorted((tuple(each) for each in results), key=repr) == expected(kind, lambda k, i: i == 1)


@pytest.mark.parametrize("right", ["LATERAL TABLE(upto(n)) AS f(i)", "UNNEST(arr) AS f(i)"])
def test_explain_shows_the_condition_of_a_lateral_join(t_env: TableEnvironment, right: str) -> None:
    plan = t_env.explain_sql(f"SELECT k, i FROM a LEFT JOIN {right} ON i > k")
    shown = [line for line in plan.splitlines() if "Correlate(" in line]
    assert any("condition=[>($3, $0)]" in line for line in shown), plan
    assert any("condition=[(i > k)]" in line for line in shown), plan
