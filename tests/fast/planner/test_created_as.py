"""CREATE TABLE … AS, and SHOW CREATE of tables with difficult names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import ProgramError, SqlError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.execute_sql("CREATE VIEW numbers AS SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS v (n, word)")
        yield t_env


def columns(t_env: TableEnvironment, table: str) -> list[str]:
    return t_env.from_path(table).get_schema().get_field_names()


def test_a_list_of_names_reorders_or_renames_the_columns(t_env: TableEnvironment) -> None:
    create = "CREATE TABLE {} ({}) WITH ('connector' = 'print') AS SELECT n, word FROM numbers"
    t_env.execute_sql(create.format("turned", "word, n")).wait()
    assert columns(t_env, "turned") == ["word", "n"]
    t_env.execute_sql(create.format("renamed", "a, b")).wait()
    assert columns(t_env, "renamed") == ["a", "b"]


def test_columns_missing_from_the_query_are_null(t_env: TableEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    t_env.execute_sql("CREATE TABLE more (extra INT) WITH ('connector' = 'print') AS SELECT n FROM numbers").wait()
    assert columns(t_env, "more") == ["extra", "n"]
    printed = sorted(line.partition("> ")[2] for line in capfd.readouterr().out.splitlines())
    assert printed == ["+I[null, 1]", "+I[null, 2]"]


def test_new_columns_precede_those_of_the_query_which_may_have_another_type(t_env: TableEnvironment) -> None:
    t_env.execute_sql(
        "CREATE TABLE wider (twice AS n * 2, n BIGINT) WITH ('connector' = 'print') AS SELECT word, n FROM numbers"
    ).wait()
    assert columns(t_env, "wider") == ["twice", "word", "n"]
    assert str(t_env.from_path("wider").get_schema().get_field_data_type("n")).startswith("BIGINT")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE kept WITH ('connector' = 'prnt') AS SELECT n FROM numbers", ProgramError),
        ("CREATE TABLE kept AS SELECT n FROM numbers", SqlError),
        ("CREATE TABLE kept (n AS 1) WITH ('connector' = 'print') AS SELECT n FROM numbers", SqlError),
        ("CREATE TABLE kept (x INT NOT NULL) WITH ('connector' = 'print') AS SELECT n FROM numbers", SqlError),
    ],
)
def test_a_statement_that_fails_to_start_leaves_no_table(t_env: TableEnvironment, statement: str, error: Any) -> None:
    with pytest.raises(error):
        t_env.execute_sql(statement)
    assert "kept" not in t_env.list_tables()
    t_env.execute_sql("CREATE TABLE kept WITH ('connector' = 'blackhole') AS SELECT word FROM numbers").wait()
    with pytest.raises(error):
        t_env.execute_sql(statement.replace("CREATE TABLE", "CREATE OR REPLACE TABLE"))
    assert columns(t_env, "kept") == ["word"]


def test_show_create_recreates_the_same_table(t_env: TableEnvironment) -> None:
    t_env.execute_sql(
        "CREATE TABLE `it``s; a \"table\"` (`a``b` INT NOT NULL COMMENT 'it''s', `c d` ROW<`e``f` STRING>, "
        "PRIMARY KEY (`a``b`) NOT ENFORCED) COMMENT 'don''t' WITH ('connector' = 'blackhole', 'property''s' = 'x''y')"
    )

    def shown() -> str:
        [row] = t_env.execute_sql('SHOW CREATE TABLE `it``s; a "table"`').collect()
        return str(row[0])

    first = shown()
    t_env.execute_sql('DROP TABLE `it``s; a "table"`')
    t_env.execute_sql(first)
    assert shown() == first and "'x''y'" in first
