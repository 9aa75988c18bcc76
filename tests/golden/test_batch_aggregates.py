"""Aggregates over bounded tables: empty input, JSON, and distinguishing the sets of GROUP BY."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.expressions import col
from millstream.table.udf import AggregateFunction, udaf
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture(scope="module")
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_batch_mode())


def answer(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(query).collect() as rows:
        return sorted((tuple(row) for row in rows), key=str)


NOTHING = "(VALUES 1) AS t(x) WHERE x > 3"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (
            "COUNT(*), COUNT(x), COUNT(DISTINCT x), APPROX_COUNT_DISTINCT(x), SUM(x), AVG(x), MIN(x), "
            "LAST_VALUE(x), VAR_POP(x), SUM(DISTINCT x), SUM(CAST(x AS DECIMAL(5, 2)))",
            [(0, 0, 0, 0, *[None] * 7)],
        ),
        ("LISTAGG(CAST(x AS STRING)), ARRAY_AGG(x), COLLECT(x), JSON_ARRAYAGG(x)", [(None, None, {}, "[]")]),
        ("COUNT(*) FILTER (WHERE x > 4), SUM(x) FILTER (WHERE x > 4), COUNT(*) + 1", [(0, None, 1)]),
    ],
)
def test_a_global_aggregate_emits_one_row_for_no_input(t_env: Any, query: str, rows: list[Any]) -> None:
    assert answer(t_env, f"SELECT {query} FROM {NOTHING}") == rows


OF_NOTHING = (
    *("COUNT(*)", "COUNT(x)", "COUNT(DISTINCT x)", "APPROX_COUNT_DISTINCT(x)", "SUM(x)", "AVG(x)", "MAX(x)"),
    *("FIRST_VALUE(x)", "VAR_POP(x)", "LISTAGG(CAST(x AS STRING))", "ARRAY_AGG(x)", "ARRAY_AGG(DISTINCT x)"),
    *("COLLECT(x)", "COLLECT(DISTINCT x)", "COLLECT(x) FILTER (WHERE x > 0)", "CARDINALITY(COLLECT(x))"),
    *("JSON_ARRAYAGG(x)", "JSON_ARRAYAGG(x NULL ON NULL)", "JSON_OBJECTAGG(KEY CAST(x AS STRING) VALUE x)"),
    *("JSON_LENGTH(JSON_ARRAYAGG(x))", "ROW(COUNT(*), COLLECT(x))", "BITMAP_BUILD_AGG(x)", "COALESCE(SUM(x), 7)"),
)


@pytest.mark.parametrize("call", OF_NOTHING)
def test_a_subquery_over_no_rows_has_the_same_result_as_on_its_own(t_env: Any, call: str) -> None:
    ((alone,),) = answer(t_env, f"SELECT {call} FROM {NOTHING}")
    asked = f"(SELECT {call} FROM (VALUES 1) AS t(x) WHERE {{}})"
    query = f"SELECT y, {asked.format('x = y')}, {asked.format('x > 3')} FROM (VALUES 1, 5) AS u(y)"
    (_, found, nowhere), (_, missing, nowhere_again) = answer(t_env, query)
    assert (missing, nowhere, nowhere_again) == (alone, alone, alone)
    assert [(found,)] == answer(t_env, f"SELECT {call} FROM (VALUES 1) AS t(x)")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT x, COUNT(*) FROM {NOTHING} GROUP BY x", []),
        (f"SELECT COUNT(*) FROM {NOTHING} HAVING COUNT(*) > 0", []),
        ("SELECT y, (SELECT MAX(x) FROM (VALUES 1) AS t(x) WHERE x > 3) FROM (VALUES 5) AS u(y)", [(5, None)]),
        ("SELECT y FROM (VALUES 5) AS u(y) WHERE y NOT IN (SELECT x FROM (VALUES 1) AS t(x) WHERE x > 3)", [(5,)]),
        ("SELECT y FROM (VALUES 5) AS u(y) WHERE (SELECT COUNT(*) FROM (VALUES 1) AS t(x) WHERE x > 3) = 0", [(5,)]),
    ],
)
def test_no_rows_form_no_groups_and_scalar_subqueries_see_one_row(t_env: Any, query: str, rows: list[Any]) -> None:
    assert answer(t_env, query) == rows


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT x, COUNT(*) FROM {} GROUP BY x HAVING CAST(x AS STRING) = '0.0'", [(0.0, 3)]),
        ("SELECT x, COUNT(*) FROM {} GROUP BY x HAVING CAST(x AS STRING) = '-0.0'", []),
        ("SELECT x, COUNT(*) FROM {} GROUP BY x HAVING x < 1", [(0.0, 3)]),
        ("SELECT n FROM (SELECT x, COUNT(*) OVER (PARTITION BY x) AS n FROM {}) WHERE 1 / x > 0", [(1,), (3,)]),
    ],
)
def test_a_condition_on_a_group_key_reads_the_key_and_not_the_rows(t_env: Any, query: str, rows: list[Any]) -> None:
    # 0.0 and -0.0 are one group, in whichever form they arrived.
    zeros = "(VALUES 0.0e0, -0.0e0, -0.0e0, 2.0e0) AS t(x)"
    assert answer(t_env, query.format(zeros)) == rows


@pytest.mark.parametrize("is_batch", [True, False], ids=["batch", "changes"])
def test_floating_numbers_at_the_end_of_their_range(is_batch: bool) -> None:
    largest = 3.4028234663852886e38
    rows = [[1, 1e300, largest], [2, 0.5, largest], [2, 0.5, largest]]
    data = rows if is_batch else [*(["+I", row] for row in rows), ["+I", [1, 2.0, 1.0]], ["-D", [1, 2.0, 1.0]]]
    kinds = "'changelog-mode' = 'I,D', " if not is_batch else ""
    settings = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
    with jobs_in_memory():
        t_env = TableEnvironment.create(settings)
        t_env.execute_sql(
            "CREATE TABLE t (k INT, x DOUBLE, f FLOAT) "
            f"WITH ('connector' = 'values', {kinds}'data' = '{json.dumps(data)}')"
        )
        t_env.get_config().set("millstream.epoch.max-records", "100")
        found = answer(t_env, "SELECT k, VAR_POP(x), SUM(f) FROM t GROUP BY k")
    assert found == [(1, 0.0, 3.4028235e38), (2, 0.0, float("inf"))]  # a FLOAT has no more digits


@pytest.mark.parametrize("is_batch", [True, False], ids=["batch", "changes"])
def test_deviations_of_integers_beyond_double_precision(is_batch: bool) -> None:
    largest = 2**63 - 1
    kinds = "'changelog-mode' = 'I,D', " if not is_batch else ""
    rows = [[largest], [-largest], [2**53 + 1]]
    data = rows[:2] if is_batch else [*(["+I", row] for row in rows), ["-D", rows[2]]]
    settings = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
    with jobs_in_memory():
        t_env = TableEnvironment.create(settings)
        t_env.execute_sql(
            f"CREATE TABLE t (v BIGINT) WITH ('connector' = 'values', {kinds}'data' = '{json.dumps(data)}')"
        )
        found = answer(t_env, "SELECT STDDEV_POP(v), VAR_POP(v), CAST(STDDEV_POP(v / 2) AS DOUBLE), COUNT(*) FROM t")
    assert found == [(largest, largest, 2.0**62, 2)]  # the largest value of the type


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("WHERE 0 IN (SELECT COUNT(*) FROM (VALUES 1) AS t(x) WHERE x = y)", [(5,)]),
        ("WHERE 0 NOT IN (SELECT MAX(x) FROM (VALUES 1) AS t(x) WHERE x = y)", []),
        ("WHERE EXISTS (SELECT COUNT(*) FROM (VALUES 1) AS t(x) WHERE x = y)", [(5,)]),
        ("WHERE 0 = (SELECT COUNT(*) FROM (VALUES 1) AS t(x) WHERE x = y HAVING COUNT(*) = 0)", [(5,)]),
    ],
)
def test_a_subquery_over_no_rows_has_the_correct_result(t_env: Any, condition: str, expected: list[Any]) -> None:
    assert answer(t_env, f"SELECT y FROM (VALUES 5) AS u(y) {condition}") == expected


class Rows(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += 1

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]


def test_a_user_defined_aggregate_defines_its_empty_result(t_env: Any) -> None:
    rows = udaf(Rows(), result_type=DataTypes.INT(), accumulator_type=DataTypes.ARRAY(DataTypes.INT()))
    table = t_env.sql_query(f"SELECT * FROM {NOTHING}").select(rows(col("x")))
    with table.execute().collect() as results:
        assert [tuple(row) for row in results] == [(0,)]


JSON = "(VALUES (1, 'a', 1.50), (1, 'b\"', CAST(NULL AS DECIMAL(3, 2))), (2, 'a', 7.00)) AS t(k, name, x)"


@pytest.mark.parametrize(
    ("aggregate", "values"),
    [
        ("JSON_ARRAYAGG(x)", ["[1.50]", "[7.00]"]),
        ("JSON_ARRAYAGG(x NULL ON NULL)", ["[1.50,null]", "[7.00]"]),
        ("JSON_ARRAYAGG(x) FILTER (WHERE x > 5)", ["[]", "[7.00]"]),
        ("JSON_ARRAYAGG(JSON_OBJECT(KEY 'n' VALUE name))", ['[{"n":"a"},{"n":"b\\""}]', '[{"n":"a"}]']),
        ("JSON_OBJECTAGG(KEY name VALUE x)", ['{"a":1.50,"b\\"":null}', '{"a":7.00}']),
        ("JSON_OBJECTAGG(KEY name VALUE x ABSENT ON NULL)", ['{"a":1.50}', '{"a":7.00}']),
    ],
)
def test_json_aggregates_write_the_values_of_a_group(t_env: Any, aggregate: str, values: list[str]) -> None:
    rows = answer(t_env, f"SELECT k, {aggregate} FROM {JSON} GROUP BY k")
    assert rows == [(1, values[0]), (2, values[1])]


@pytest.mark.parametrize(("key", "message"), [("'same'", "occurs twice in a group"), ("CAST(NULL AS STRING)", "NULL")])
def test_a_json_object_key_must_be_a_unique_string(t_env: Any, key: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        answer(t_env, f"SELECT JSON_OBJECTAGG(KEY {key} VALUE x) FROM {JSON}")


def test_grouping_sets_are_distinguished(t_env: Any) -> None:
    query = (
        "SELECT k, name, GROUPING(k), GROUPING_ID(k, name), GROUP_ID(), COUNT(*) "
        f"FROM {JSON} GROUP BY GROUPING SETS ((k, name), (k), (), ())"
    )
    assert answer(t_env, query) == [
        (1, "a", 0, 0, 0, 1),
        (1, 'b"', 0, 0, 0, 1),
        (1, None, 0, 1, 0, 2),
        (2, "a", 0, 0, 0, 1),
        (2, None, 0, 1, 0, 1),
        (None, None, 1, 3, 0, 3),
        (None, None, 1, 3, 1, 3),
    ]
    assert answer(t_env, f"SELECT k, GROUPING(k) + 1 FROM {JSON} GROUP BY k") == [(1, 1), (2, 1)]
    with pytest.raises(MillstreamError, match="must be a grouped expression"):
        answer(t_env, f"SELECT GROUPING(name) FROM {JSON} GROUP BY k")


PEOPLE = "(VALUES (1, 'c', 30), (2, 'a', 10), (3, 'b', 20), (4, 'a', 5)) AS p(id, name, age)"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT id FROM {PEOPLE} ORDER BY age DESC", [(1,), (3,), (2,), (4,)]),
        (f"SELECT id AS n FROM {PEOPLE} ORDER BY name, -age LIMIT 3", [(2,), (4,), (3,)]),
        (f"SELECT name FROM {PEOPLE} GROUP BY name ORDER BY SUM(age) DESC, name", [("c",), ("b",), ("a",)]),
        (f"SELECT id, age * 2 AS twice FROM {PEOPLE} ORDER BY twice", [(4, 10), (2, 20), (3, 40), (1, 60)]),
    ],
)
def test_rows_are_ordered_by_unselected_columns(t_env: Any, query: str, rows: list[Any]) -> None:
    with t_env.execute_sql(query).collect() as results:
        assert [tuple(row) for row in results] == rows


def test_an_unknown_order_column_is_rejected(t_env: Any) -> None:
    with pytest.raises(MillstreamError, match="Column 'nothing' not found"):
        t_env.execute_sql(f"SELECT id FROM {PEOPLE} ORDER BY nothing")
