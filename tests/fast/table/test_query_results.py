"""Results of small queries that a plan rewrite could change, derived by hand from SQL's rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import MillstreamError, SqlError
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

OUTSIDE = "CREATE VIEW outside AS SELECT * FROM (VALUES (0), (1), (2)) AS v(k)"
INSIDE = """CREATE VIEW inside AS SELECT * FROM (
    VALUES (1, 0, 10), (2, 1, 20), (3, 0, 30), (4, CAST(NULL AS INT), 40)) AS v(a, b, n)"""


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        made = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        made.execute_sql(OUTSIDE)
        made.execute_sql(INSIDE)
        yield made


def rows(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(query).collect() as result:
        return [tuple(each) for each in result]


@pytest.mark.parametrize(
    ("aggregate", "condition", "expected"),
    [
        ("COUNT(*)", "MOD(a, 2) = k", [(0, 2), (1, 2), (2, 0)]),
        ("SUM(n)", "k = a - b", [(0, None), (1, 30), (2, None)]),
        ("SUM(n)", "a - b = k AND k > 1", [(0, None), (1, None), (2, None)]),
        ("COUNT(*)", "k > 0", [(0, 0), (1, 4), (2, 4)]),
        ("MAX(n)", "a = CAST(k AS BIGINT)", [(0, None), (1, 10), (2, 20)]),
    ],
)
def test_a_subquery_aggregate_covers_all_rows_of_its_condition(
    t_env: TableEnvironment, aggregate: str, condition: str, expected: list[tuple[Any, ...]]
) -> None:
    query = f"SELECT k, (SELECT {aggregate} FROM inside WHERE {condition}) FROM outside"
    assert sorted(rows(t_env, query)) == expected


def test_subquery_groups_are_not_split_by_a_condition_on_outer_rows(t_env: TableEnvironment) -> None:
    query = "SELECT k FROM outside WHERE 40 IN (SELECT SUM(n) FROM inside WHERE MOD(a, 2) = k GROUP BY b)"
    assert sorted(rows(t_env, query)) == [(0,), (1,)]


@pytest.mark.parametrize(("condition", "expected"), [("a = k + b", [(0, 0), (1, 2), (2, 0)]), ("(a = k) = TRUE", None)])
def test_a_subquery_aggregate_may_combine_inner_and_outer_columns(
    t_env: TableEnvironment, condition: str, expected: list[tuple[int, int]] | None
) -> None:
    results = rows(t_env, f"SELECT k, (SELECT COUNT(*) FROM inside WHERE {condition}) FROM outside")
    plain = rows(t_env, "SELECT k, (SELECT COUNT(*) FROM inside WHERE a = k) FROM outside")
    assert sorted(results) == sorted(plain if expected is None else expected)


def test_a_scalar_subquery_is_the_value_of_its_row(t_env: TableEnvironment) -> None:
    query = "SELECT k, (SELECT n FROM inside WHERE a = k AND b = 0 AND n > 5) FROM outside"
    assert sorted(rows(t_env, query)) == [(0, None), (1, 10), (2, None)]


def test_a_scalar_subquery_with_two_rows_is_an_error(t_env: TableEnvironment) -> None:
    with pytest.raises(MillstreamError, match=r"a scalar subquery returns at most one row, this one has \d"):
        rows(t_env, "SELECT k, (SELECT n FROM inside WHERE a <> k) FROM outside")
    with pytest.raises(MillstreamError, match="at most one row"):
        rows(t_env, "SELECT k FROM outside WHERE k = (SELECT a FROM inside)")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("k IN (SELECT k FROM inside)", [0, 1, 2]),
        ("k NOT IN (SELECT k FROM inside)", []),
        ("EXISTS (SELECT k FROM inside WHERE k = 1)", [1]),
        ("k = (SELECT k FROM inside WHERE a = 1) AND k > 0", [1, 2]),
    ],
)
def test_a_name_missing_from_a_subquery_resolves_to_the_outer_query(
    t_env: TableEnvironment, condition: str, expected: list[int]
) -> None:
    assert sorted(k for (k,) in rows(t_env, f"SELECT k FROM outside WHERE {condition}")) == expected


@pytest.mark.parametrize("source", ["(VALUES (RAND())) AS v(r)", "(SELECT RAND() AS r)"])
def test_a_random_number_is_drawn_once_however_often_it_is_read(t_env: TableEnvironment, source: str) -> None:
    ((first, second, is_same),) = rows(t_env, f"SELECT r, r, r = r FROM {source}")
    assert is_same and first == second


def test_two_random_calls_draw_two_numbers(t_env: TableEnvironment) -> None:
    first, second = rows(t_env, "SELECT * FROM (VALUES (RAND())) UNION ALL SELECT * FROM (VALUES (RAND()))")
    assert first != second


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT -a AS a FROM inside ORDER BY a + 0", [(-4,), (-3,), (-2,), (-1,)]),
        ("SELECT a + 1 AS x FROM inside ORDER BY x * -n LIMIT 2", [(5,), (4,)]),
        ("SELECT b, SUM(n) AS n FROM inside WHERE b >= 0 GROUP BY b ORDER BY SUM(n) + b, -n", [(1, 20), (0, 40)]),
        ("SELECT b, COUNT(*) AS c FROM inside WHERE b >= 0 GROUP BY b ORDER BY -c", [(0, 2), (1, 1)]),
    ],
)
def test_order_by_prefers_columns_of_select_to_those_of_from(
    t_env: TableEnvironment, query: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(t_env, query) == expected


def test_rows_are_ordered_by_the_random_number_they_output(t_env: TableEnvironment) -> None:
    shown = [each[0] for each in rows(t_env, "SELECT RAND() AS r FROM inside ORDER BY -r")]
    assert shown == sorted(shown, reverse=True)


def test_a_random_condition_written_twice_is_drawn_twice(t_env: TableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE numbers (a INT) WITH ('connector' = 'datagen')")
    plan = t_env.explain_sql("SELECT a FROM numbers WHERE RAND() < 0.5 AND RAND() < 0.5 AND a > 0 AND a > 0")
    execution = plan.partition("Optimized Execution Plan")[2]
    assert (execution.count("RAND() < 0.5"), execution.count("a > 0")) == (2, 1)


def test_a_timestamp_literal_preserves_its_nanoseconds(t_env: TableEnvironment) -> None:
    moment = "2020-01-01 00:00:00.123456789"
    ((text, is_later),) = rows(
        t_env,
        f"SELECT CAST(TIMESTAMP '{moment}' AS STRING), TIMESTAMP '{moment}' > TIMESTAMP '{moment[:-3]}'",
    )
    assert text == moment and is_later


@pytest.mark.parametrize(("digits", "scale"), [("9" * 38, 0), (f"-{'9' * 20}.{'9' * 18}", 18), (f"0.{'9' * 38}", 38)])
def test_the_largest_value_of_a_decimal_type_is_valid(t_env: TableEnvironment, digits: str, scale: int) -> None:
    type_ = f"DECIMAL(38, {scale})"
    ((text, is_there),) = rows(
        t_env,
        f"SELECT CAST(CAST('{digits}' AS {type_}) AS STRING), CAST('{digits}' AS {type_}) + 0 IS NOT NULL",
    )
    assert text == digits and (is_there or scale)  # a sum has one more digit before the point, which this type lacks


def test_a_value_out_of_pythons_range_is_reported_as_a_number(t_env: TableEnvironment) -> None:
    far = "d + INTERVAL '1' DAY"
    for expression, message in (
        (f"PRINTF('%s', {far})", "2932897"),
        (f"CAST(ARRAY[{far}] AS STRING)", "list<.*date32"),
    ):
        with pytest.raises(ExpressionError, match=rf"d \+ .*out of range for \(.*{message}"):
            rows(t_env, f"SELECT {expression} FROM (VALUES (DATE '9999-12-31')) AS v(d)")
    assert rows(t_env, f"SELECT CAST({far} AS STRING) FROM (VALUES (DATE '9999-12-31')) AS v(d)") == [("+10000-01-01",)]


def test_an_out_of_range_interval_is_rejected_at_its_position(t_env: TableEnvironment) -> None:
    with pytest.raises(SqlError, match=r"Illegal interval literal(.|\n)*line 1, column 8"):
        rows(t_env, "SELECT INTERVAL '99999999999' DAY")


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        ("LEFT JOIN r USING (k)", [(1, "p", None), (2, "q", "s")]),
        ("RIGHT JOIN r USING (k)", [(2, "q", "s"), (3, None, "t")]),
        ("NATURAL RIGHT JOIN r", [(2, "q", "s"), (3, None, "t")]),
        ("FULL JOIN r USING (k)", [(1, "p", None), (2, "q", "s"), (3, None, "t")]),
        (
            "FULL JOIN r USING (k) FULL JOIN m USING (k)",
            [(1, "p", None, None), (2, "q", "s", None), (3, None, "t", "u")],
        ),
    ],
)
def test_a_using_column_is_first_and_has_the_value_of_the_existing_side(
    t_env: TableEnvironment, join: str, expected: list[tuple[Any, ...]]
) -> None:
    t_env.execute_sql("CREATE VIEW l AS SELECT * FROM (VALUES ('p', 1), ('q', 2)) AS v(x, k)")
    t_env.execute_sql("CREATE VIEW r AS SELECT * FROM (VALUES (2, 's'), (3, 't')) AS v(k, y)")
    t_env.execute_sql("CREATE VIEW m AS SELECT * FROM (VALUES (3, 'u')) AS v(k, z)")
    assert sorted(rows(t_env, f"SELECT * FROM l {join}"), key=lambda row: row[0]) == expected
    assert sorted(rows(t_env, f"SELECT k FROM l {join} WHERE k > 1")) == [row[:1] for row in expected if row[0] > 1]


def test_the_variance_of_wide_decimals_is_null_where_no_type_is_wide_enough(t_env: TableEnvironment) -> None:
    wide = "SELECT CAST(x AS DECIMAL(38, 18)) AS x FROM (VALUES (12345678901234567890.0), (0)) AS v(x)"
    ((deviation, variance),) = rows(t_env, f"SELECT STDDEV_POP(x), VAR_POP(x) FROM ({wide})")
    assert float(deviation) == 12345678901234567890 / 2 and variance is None
