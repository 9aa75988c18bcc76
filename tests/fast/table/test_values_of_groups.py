"""PERCENTILE, SINGLE_VALUE, and functions with extended arguments: the results are those of Flink 2.3."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import MillstreamError, SqlError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.expressions import array, col
from millstream.testing.local_jobs import jobs_in_memory

ROW = "(SELECT CAST(ROW(1, 'x') AS ROW<a INT, b STRING>) AS r) AS t"


def rows(query: str) -> list[tuple[Any, ...]]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        with t_env.execute_sql(query).collect() as result:
            return [tuple(each) for each in result]


@pytest.mark.parametrize(
    ("call", "values", "expected"),
    [
        ("PERCENTILE(c, 0.3)", "(0), (10), (10)", 6.000000000000001),
        ("PERCENTILE(c, 0.15)", "(1), (31), (13), (29), (7)", 4.600000000000001),
        ("PERCENTILE(c, 0.9)", "(1), (31), (13), (29), (7)", 30.199999999999996),
        ("PERCENTILE(c, ARRAY[0.25, 0.75])", "(0), (10)", [2.5, 7.5]),
        ("PERCENTILE(c, 0.3, 2)", "(1.5), (7.25), (13.1), (29.7)", 7.25),
        ("PERCENTILE(DISTINCT c, 0.3)", "(0), (10), (10)", 3.0000000000000004),
        ("PERCENTILE(c, 0.5) FILTER (WHERE c > 3)", "(0), (10), (20)", 15.0),
        ("PERCENTILE(c, 1)", "(CAST(NULL AS INT))", None),
    ],
)
def test_a_percentile_is_interpolated_as_in_flink(call: str, values: str, expected: Any) -> None:
    assert rows(f"SELECT {call} FROM (VALUES {values}) AS t(c)") == [(expected,)]


def test_a_percentile_counts_values_by_their_frequency() -> None:
    query = "SELECT PERCENTILE(c, 0.3, f) FROM (VALUES (0, 1), (10, 2), (5, -1), (7, CAST(NULL AS INT))) AS t(c, f)"
    assert rows(query) == [(6.000000000000001,)]


def test_a_percentile_runs_in_over_windows() -> None:
    query = "SELECT PERCENTILE(c, 0.3) OVER (ORDER BY c) FROM (VALUES (0), (10)) AS t(c)"
    assert sorted(rows(query)) == [(0.0,), (3.0000000000000004,)]


def test_a_percentile_of_the_table_api_agrees_with_sql() -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        table = t_env.from_elements([(0,), (10,)], ["c"])
        with (
            table.select(col("c").percentile(0.5), col("c").percentile(array(0.25, 0.75)))
            .execute()
            .collect() as results
        ):
            assert [tuple(row) for row in results] == [(5.0, [2.5, 7.5])]


@pytest.mark.parametrize("percentage", ["1.5", "-1", "c"])
def test_a_percentage_is_a_constant_from_0_to_1(percentage: str) -> None:
    with pytest.raises(SqlError, match="PERCENTILE takes a percentage"):
        rows(f"SELECT PERCENTILE(c, {percentage}) FROM (VALUES (1)) AS t(c)")


def test_single_value_returns_the_value_of_the_only_row() -> None:
    query = "SELECT k, SINGLE_VALUE(c) FROM (VALUES (1, 10), (2, CAST(NULL AS INT))) AS t(k, c) GROUP BY k"
    assert sorted(rows(query)) == [(1, 10), (2, None)]


def test_a_group_of_two_rows_has_no_single_value() -> None:
    with pytest.raises(MillstreamError, match="SINGLE_VALUE takes groups of one row, this group has 2"):
        rows("SELECT k, SINGLE_VALUE(c) AS s FROM (VALUES (1, 10), (1, 10)) AS t(k, c) GROUP BY k")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("""JSON_QUERY('{"a":["x",null,1,true,{"b":2},[3]]}', '$.a' RETURNING ARRAY<STRING>)""",
         ["x", None, "1", "true", '{"b":2}', "[3]"]),
        ("""JSON_QUERY('{"a":1}', '$.a' RETURNING ARRAY<STRING>)""", None),
        ("""JSON_QUERY('{"a":{"b":1}}', '$.a' RETURNING ARRAY<STRING>)""", None),
        ("""JSON_QUERY('{"a":1}', '$.a' RETURNING ARRAY<STRING> WITH WRAPPER)""", ["1"]),
        ("""JSON_QUERY('{"a":1}', 'strict $.b' RETURNING ARRAY<STRING> EMPTY ARRAY ON ERROR)""", []),
        ("""JSON_QUERY('{"a":["1"]}', '$.a' RETURNING VARCHAR(2))""", '["'),
        ("FROM_BASE64(X'59574A6A')", "abc"),
        ("FROM_BASE64(CAST('YWJj' AS BYTES))", "abc"),
        ("TRIM(BOTH ' a ')", "a"),
        ("TRIM(LEADING ' a ')", "a "),
        ("TRIM(TRAILING ' a ')", " a"),
        ("TO_TIMESTAMP_LTZ(NULL, 'yyyy')", None),
        ("TO_TIMESTAMP_LTZ(NULL, 'yyyy', 'UTC')", None),
    ],
)  # fmt: skip
def test_functions_accept_the_arguments_of_flink(call: str, expected: Any) -> None:
    assert rows(f"SELECT {call}") == [(expected,)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("""JSON_QUERY('[1]', '$' RETURNING ARRAY<INT>)""", "not an array of INT"),
        ("""JSON_QUERY('[1]', '$' RETURNING BOOLEAN)""", "STRING or ARRAY<STRING>, not BOOLEAN"),
        ("""JSON_QUERY('[1]', '$' RETURNING ARRAY<STRING> EMPTY OBJECT ON EMPTY)""", "cannot return an object"),
    ],
)
def test_json_query_returns_texts_or_an_array_of_them(call: str, words: str) -> None:
    with pytest.raises(SqlError, match=words):
        rows(f"SELECT {call}")


def test_a_field_of_a_row_is_read_by_its_name_or_position() -> None:
    assert rows(f"SELECT r['a'], r['b'], r[1], r[2] FROM {ROW}") == [(1, "x", 1, "x")]


@pytest.mark.parametrize(
    ("field", "words"), [("'c'", "no field 'c'"), ("0", "none at position 0"), ("r.a", "constant")]
)
def test_a_missing_field_of_a_row_is_an_error(field: str, words: str) -> None:
    with pytest.raises(SqlError, match=words):
        rows(f"SELECT r[{field}] FROM {ROW}")
