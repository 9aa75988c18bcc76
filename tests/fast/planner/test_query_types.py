"""Types of expressions and columns, and casts between different types: as in Flink."""

from __future__ import annotations

import pytest
from planned import bound, fields, plan, session_with, types

from millstream.errors import SqlError
from millstream.planner.relations import Project
from millstream.planner.session import PlannerSession


@pytest.mark.parametrize(
    ("written", "type_"),
    [
        ("1", "INT NOT NULL"),
        ("2147483648", "BIGINT NOT NULL"),
        ("0.908", "DECIMAL(4, 3) NOT NULL"),
        ("1.50", "DECIMAL(3, 2) NOT NULL"),
        ("1e3", "DOUBLE NOT NULL"),
        ("'abc'", "CHAR(3) NOT NULL"),
        ("TRUE", "BOOLEAN NOT NULL"),
        ("NULL", "NULL"),
        ("DATE '2026-01-02'", "DATE NOT NULL"),
        ("TIMESTAMP '2026-01-02 03:04:05'", "TIMESTAMP(0) NOT NULL"),
        ("TIMESTAMP '2026-01-02 03:04:05.678'", "TIMESTAMP(3) NOT NULL"),
        ("INTERVAL '1' DAY", "INTERVAL DAY(2) NOT NULL"),
        ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL YEAR(2) TO MONTH NOT NULL"),
        ("CAST(1 AS VARCHAR)", "STRING NOT NULL"),
        ("TRY_CAST('x' AS INT)", "INT"),
        ("CASE WHEN TRUE THEN 1 ELSE 2.5 END", "DECIMAL(11, 1) NOT NULL"),
        ("COALESCE(NULL, 'ab')", "CHAR(2) NOT NULL"),
    ],
)
def test_the_type_of_a_constant(written: str, type_: str) -> None:
    assert types(f"SELECT {written}") == [type_]


def test_a_field_of_a_nullable_row_is_nullable() -> None:
    session = session_with(
        "CREATE TABLE q (r ROW<x INT NOT NULL> NOT NULL, o ROW<x INT NOT NULL>) WITH ('connector' = 'datagen')"
    )
    assert fields("SELECT r.x, o.x FROM q", session) == ["x INT NOT NULL", "x0 INT"]


def test_a_column_passed_through_stays_a_time_attribute() -> None:
    assert fields("SELECT ts AS t1, p, ts + INTERVAL '1' SECOND AS t2, PROCTIME() AS q FROM t") == [
        "t1 TIMESTAMP(3) *ROWTIME*",
        "p TIMESTAMP_LTZ(3) *PROCTIME* NOT NULL",
        "t2 TIMESTAMP(3)",
        "q TIMESTAMP_LTZ(3) *PROCTIME* NOT NULL",
    ]


def test_aggregates_over_possibly_no_rows_are_nullable() -> None:
    assert types("SELECT SUM(b), COUNT(*), MAX(b) FROM t") == ["BIGINT", "BIGINT NOT NULL", "BIGINT"]
    grouped = "SELECT SUM(b), MAX(b) FILTER (WHERE b > 1), AVG(c), SUM(c), SUM(a) FROM t GROUP BY s"
    assert types(grouped) == ["BIGINT NOT NULL", "BIGINT", "DECIMAL(38, 6)", "DECIMAL(38, 2)", "INT"]


def test_the_sides_of_a_union_are_cast_to_their_common_type() -> None:
    assert fields("SELECT x FROM n UNION ALL SELECT y FROM n") == ["x BIGINT"]


def test_a_union_is_a_rowtime_only_if_all_sides_are() -> None:
    assert fields("SELECT ts FROM t UNION ALL SELECT ts FROM t") == ["ts TIMESTAMP(3) *ROWTIME*"]
    assert fields("SELECT ts FROM t UNION ALL SELECT ts + INTERVAL '1' SECOND FROM t") == ["ts TIMESTAMP(3)"]


def test_an_insert_is_cast_to_the_tables_types() -> None:
    assert "Calc(select=[CAST(a AS BIGINT) AS" not in plan("INSERT INTO o SELECT a, a FROM t")
    assert "a AS x, CAST(a AS BIGINT) AS y" in plan("INSERT INTO o SELECT a, a FROM t")


def test_an_insert_with_a_lossy_cast_is_rejected() -> None:
    with pytest.raises(SqlError, match="Cause: Incompatible types for sink column 'x' at position 1"):
        plan("INSERT INTO o SELECT b, b FROM t")


def test_columns_omitted_from_an_insert_are_null() -> None:
    assert "null:INT AS x" in plan("INSERT INTO o (y) SELECT b FROM t")


def test_an_instant_is_parsed_in_the_session_time_zone() -> None:
    session = PlannerSession(config={"table.local-time-zone": "Europe/Berlin"})
    relation = bound("SELECT TIMESTAMP WITH LOCAL TIME ZONE '2026-07-01 12:00:00'", session)
    assert isinstance(relation, Project)
    assert str(relation.expressions[0].value) == "2026-07-01 10:00:00+00:00"  # type: ignore[attr-defined]


def test_count_of_a_not_null_column_counts_rows_and_of_several_those_without_nulls() -> None:
    window = "FROM t GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    assert "COUNT(*) AS EXPR$0, COUNT(a) AS EXPR$1" in plan(f"SELECT COUNT(b), COUNT(a), COUNT(1) {window}")
    assert "AND(IS NOT NULL(a), IS NOT NULL(s)) AS $f0" in plan(f"SELECT COUNT(a, s, b) {window}")
