"""Times in nanoseconds range from 1677 to 2262. Values out of range are rejected with the range, never wrapped; and
comparisons with times of lower precision, which have a wider range, are exact.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import MillstreamError, SqlError
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.expressions import lit
from millstream.testing.local_jobs import jobs_in_memory

RANGE = "from 1677-09-21 00:12:43.145224192 to 2262-04-11 23:47:16.854775807"
FAR = "TIMESTAMP '9999-12-31 23:59:59'"
NANO = "TIMESTAMP '2000-01-01 00:00:00.123456789'"
WHOLE = "TIMESTAMP '2000-01-01 00:00:00.000000000'"
LAST, FIRST = "TIMESTAMP '2262-04-11 23:47:16.854775807'", "TIMESTAMP '1677-09-21 00:12:43.145224193'"


@pytest.fixture(scope="module")
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def rows(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(query).collect() as results:
        return sorted((tuple(each) for each in results), key=repr)


BEYOND = [
    f"CAST({FAR} AS TIMESTAMP(9))",
    f"CAST({FAR} AS TIMESTAMP_LTZ(9))",
    "CAST(DATE '9999-12-31' AS TIMESTAMP(7))",
    "CAST('9999-12-31 23:59:59' AS TIMESTAMP(9))",
    "CAST('1600-01-01 00:00:00' AS TIMESTAMP(9))",
    "TIMESTAMP '9999-12-31 23:59:59.123456789'",
    "TIMESTAMP '9999-12-31 23:59:59.000000000'",
    "TIMESTAMP '2262-04-11 23:47:16.854775808'",
    f"LEAST({FAR}, {NANO})",
    f"COALESCE({FAR}, {NANO})",
    f"CASE WHEN TRUE THEN {FAR} ELSE {NANO} END",
    f"ARRAY[{FAR}, {NANO}]",
    f"{NANO} + INTERVAL '900' YEAR(3)",
    f"{NANO} + INTERVAL '200000' DAY(6)",
    f"TIMESTAMPADD(YEAR, 1000, {NANO})",
    f"TIMESTAMPADD(MICROSECOND, 9223372036854775807, {NANO})",
    f"CEIL({LAST} TO WEEK)",
    f"FLOOR({FIRST} TO DAY)",
    f"CEIL({LAST} TO HOUR)",
]


@pytest.mark.parametrize("expression", BEYOND)
def test_a_time_out_of_range_of_nanoseconds_is_rejected_with_the_range(
    t_env: TableEnvironment, expression: str
) -> None:
    with pytest.raises(MillstreamError, match=RANGE):
        rows(t_env, f"SELECT {expression}")


@pytest.mark.parametrize(
    "query", [f"SELECT MAX(x) FROM (VALUES {FAR}, {NANO}) AS t(x)", f"SELECT {FAR} UNION ALL SELECT {NANO}"]
)
def test_casting_out_of_range_rows_to_nanoseconds_fails(t_env: TableEnvironment, query: str) -> None:
    with pytest.raises(MillstreamError, match=RANGE):
        rows(t_env, query)


def test_a_rejected_constant_is_shown_at_its_position(t_env: TableEnvironment) -> None:
    for query, place in (
        (f"SELECT 1, GREATEST({FAR}, {NANO})", "column 11"),
        (f"SELECT x FROM (VALUES {NANO}, {FAR}) AS t(x)", f"column {23 + len(NANO) + 2}"),
        ("SELECT TIMESTAMP '9999-01-01 00:00:00.0000001'", "column 8"),
    ):
        with pytest.raises(SqlError, match=place):
            rows(t_env, query)


def test_try_cast_out_of_range_is_null(t_env: TableEnvironment) -> None:
    query = "SELECT TRY_CAST(x AS TIMESTAMP(9)) FROM (VALUES '9999-12-31 23:59:59', '2020-01-01 00:00:00') AS t(x)"
    assert rows(t_env, query) == [(None,), (dt.datetime(2020, 1, 1),)]
    assert rows(t_env, f"SELECT TRY_CAST({FAR} AS TIMESTAMP_LTZ(9))") == [(None,)]


def test_the_bounds_of_the_range_are_valid(t_env: TableEnvironment) -> None:
    query = f"SELECT CAST(x AS STRING) FROM (VALUES {FIRST}, {LAST}) AS t(x)"
    assert rows(t_env, query) == [("1677-09-21 00:12:43.145224193",), ("2262-04-11 23:47:16.854775807",)]


TRUE_OF_NANO = [
    f"x < {FAR}",
    f"{FAR} >= x",
    f"x <> {FAR}",
    f"NOT x = {FAR}",
    "x BETWEEN TIMESTAMP '0001-01-01 00:00:00' AND DATE '9999-12-31'",
    "x > DATE '2000-01-01'",
    "x > TIMESTAMP '2000-01-01 00:00:00.123456'",
    "x < TIMESTAMP '2000-01-01 00:00:00.123457'",
    "TIMESTAMP '2000-01-01 00:00:00.123457' > x",
    "NOT x <= TIMESTAMP '2000-01-01 00:00:00.123456'",
    f"x IN ({NANO}, {FAR})",
    "x NOT IN (TIMESTAMP '2000-01-01 00:00:00.123456', TIMESTAMP '9999-12-31 00:00:00')",
    f"x IS DISTINCT FROM {FAR}",
    f"NULLIF(x, {FAR}) IS NOT NULL",
    f"CASE x WHEN {FAR} THEN FALSE ELSE TRUE END",
    f"CAST(x AS TIMESTAMP_LTZ(9)) < {FAR}",
    "x < TIMESTAMP '2000-01-01 00:00:00.123456' IS FALSE",
    "(x < CAST(NULL AS TIMESTAMP(0))) IS NULL",
]


@pytest.mark.parametrize("is_constant", [True, False])
def test_times_of_different_precision_are_compared_exactly_in_any_year(
    t_env: TableEnvironment, is_constant: bool
) -> None:
    """As a constant, which is folded, and as a column."""
    source = (
        f"(SELECT {NANO} AS x)" if is_constant else f"(VALUES {NANO}, {WHOLE}) AS t(x) WHERE x <> DATE '2000-01-01'"
    )
    conditions = ", ".join(f"({condition})" for condition in TRUE_OF_NANO)
    ((*answers,),) = rows(t_env, f"SELECT {conditions} FROM {source}")
    wrong = [condition for condition, answer in zip(TRUE_OF_NANO, answers, strict=True) if answer is not True]
    assert not wrong


def test_a_whole_second_equals_itself_in_nanoseconds_and_null_is_unknown(t_env: TableEnvironment) -> None:
    second = "TIMESTAMP '2000-01-01 00:00:00'"
    query = f"SELECT x = {second}, x <= {second}, x >= {second}, x > {second}, x IS NOT DISTINCT FROM {second}"
    source = f"(VALUES {WHOLE}, CAST(NULL AS TIMESTAMP(9))) AS t(x)"
    assert rows(t_env, f"{query} FROM {source}") == [
        (None, None, None, None, False),
        (True, True, True, False, True),
    ]


@pytest.mark.parametrize(
    ("join", "pairs"),
    [
        ("JOIN b ON a.x = b.x", [("00.000000000", "2000")]),
        ("LEFT JOIN b ON b.x = a.x", [("00.000000000", "2000"), ("00.123456789", None)]),
        ("JOIN b ON a.x < b.x", [("00.000000000", "9999"), ("00.123456789", "9999")]),
    ],
)
def test_a_join_on_times_of_different_precision_matches_only_equal_times(
    t_env: TableEnvironment, join: str, pairs: list[Any]
) -> None:
    tables = f"WITH a AS (SELECT * FROM (VALUES {NANO}, {WHOLE}) AS t(x)), b AS (SELECT * FROM (VALUES {FAR}, "
    tables += "TIMESTAMP '2000-01-01 00:00:00') AS t(x))"
    query = f"{tables} SELECT SUBSTR(CAST(a.x AS STRING), 18), SUBSTR(CAST(b.x AS STRING), 1, 4) FROM a {join}"
    assert rows(t_env, query) == pairs


def test_values_preserve_their_nanoseconds(t_env: TableEnvironment) -> None:
    query = f"SELECT CAST(MAX(x) AS STRING) FROM (VALUES {NANO}, {WHOLE}) AS t(x) GROUP BY x"
    assert rows(t_env, query) == [("2000-01-01 00:00:00.000000000",), ("2000-01-01 00:00:00.123456789",)]


def test_times_before_1970_are_rounded_down_to_microseconds(t_env: TableEnvironment) -> None:
    query = "SELECT x FROM (VALUES TIMESTAMP '1969-12-31 23:59:59.123456789') AS t(x)"
    assert rows(t_env, query) == [(dt.datetime(1969, 12, 31, 23, 59, 59, 123456),)]


def test_a_table_api_constant_out_of_range_is_rejected(t_env: TableEnvironment) -> None:
    far = lit(dt.datetime(9999, 12, 31), DataTypes.TIMESTAMP(9))
    with pytest.raises(MillstreamError, match=RANGE):
        t_env.from_elements([(1,)], ["a"]).select(far)
