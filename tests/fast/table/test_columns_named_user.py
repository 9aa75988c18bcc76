"""A column may be named `user` without backticks, as on Flink's pages, and so may other function names that Flink does
not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import SqlError
from millstream.sql.keywords import COLUMN_WORDS
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture(scope="module")
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.execute_sql("CREATE TEMPORARY VIEW orders AS SELECT * FROM (VALUES (1, 5), (2, 7)) AS t(user, amount)")
        yield t_env


def rows(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(query).collect() as results:
        return sorted(tuple(each) for each in results)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT user, amount FROM orders WHERE user = 1", [(1, 5)]),
        ("SELECT o.user, `user` FROM orders AS o", [(1, 1), (2, 2)]),
        ("SELECT user, SUM(amount) AS total FROM orders GROUP BY user", [(1, 5), (2, 7)]),
        ("SELECT amount AS user FROM orders ORDER BY user LIMIT 1", [(5,)]),
        ("SELECT user + 1 FROM orders WHERE user IN (SELECT user FROM orders WHERE amount > 6)", [(3,)]),
    ],
)
def test_user_is_a_column(t_env: TableEnvironment, query: str, answer: list[Any]) -> None:
    assert rows(t_env, query) == answer


def test_a_table_is_declared_with_a_column_user(t_env: TableEnvironment) -> None:
    columns = "user STRING, PRIMARY KEY (user) NOT ENFORCED"
    t_env.execute_sql(f"CREATE TEMPORARY TABLE clicks ({columns}) WITH ('connector' = 'print')")
    assert t_env.from_path("clicks").get_schema().get_field_names() == ["user"]


@pytest.mark.parametrize("word", sorted(COLUMN_WORDS))
def test_a_function_that_flink_does_not_have_is_a_column(t_env: TableEnvironment, word: str) -> None:
    name = word.lower()
    assert rows(t_env, f"SELECT {name} FROM (VALUES 3) AS t({name})") == [(3,)]
    with pytest.raises(SqlError, match=f"Column '{word}' not found"):
        t_env.sql_query(f"SELECT {word} FROM orders")
