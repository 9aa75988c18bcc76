"""A column missing from a subquery resolves to the enclosing query's, as in the SQL standard: the classic IN
mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

OUTER = "FROM (VALUES 1, 2, CAST(NULL AS INT)) AS a(i)"
B, EMPTY = "(VALUES 2) AS b(j)", "(SELECT * FROM (VALUES 2) AS b(j) WHERE j > 2)"


@pytest.fixture(scope="module")
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def rows(t_env: TableEnvironment, query: str) -> list[Any]:
    with t_env.execute_sql(query).collect() as results:
        return sorted((each[0] for each in results), key=repr)


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        (f"i IN (SELECT i FROM {B})", [1, 2]),
        (f"i IN (SELECT i FROM {EMPTY})", []),
        (f"i NOT IN (SELECT i FROM {B})", []),
        (f"i NOT IN (SELECT i FROM {EMPTY})", [1, 2, None]),
        (f"i IN (SELECT i FROM {B} WHERE i = j)", [2]),
        (f"i IN (SELECT i * j - 1 FROM {B})", [1]),
        (f"i + 1 IN (SELECT i FROM {B})", []),
        (f"EXISTS (SELECT i FROM {B})", [1, 2, None]),
        (f"NOT EXISTS (SELECT i, j FROM {B})", []),
        (f"EXISTS (SELECT i FROM {B} WHERE i = j)", [2]),
    ],
)
def test_an_outer_column_has_the_result_of_sql(t_env: TableEnvironment, condition: str, answer: list[Any]) -> None:
    assert rows(t_env, f"SELECT i {OUTER} WHERE {condition}") == answer


def test_a_probable_mistake_is_warned_about_once(t_env: TableEnvironment, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            t_env.explain_sql(f"SELECT i {OUTER} WHERE i IN (SELECT i FROM {B} WHERE j < 77)")
        t_env.explain_sql(f"SELECT i {OUTER} WHERE i IN (SELECT j FROM {B} WHERE j < 77)")
    notices = [each.getMessage() for each in caplog.records if "enclosing query" in each.getMessage()]
    assert len(notices) == 1


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (f"SELECT i {OUTER} WHERE i = (SELECT MAX(i) FROM {B})", [1, 2]),
        (f"SELECT i, (SELECT MAX(i) FROM {B}) {OUTER}", [1, 2, None]),
        (f"SELECT i {OUTER} WHERE i IN (SELECT DISTINCT i FROM {B})", [1, 2]),
        (f"SELECT i {OUTER} WHERE i IN (SELECT COUNT(*) FROM {B} GROUP BY i)", [1]),
        (f"SELECT i {OUTER} WHERE i IN (SELECT j FROM {B} ORDER BY i LIMIT 1)", [2]),
        (f"SELECT i {OUTER} WHERE i IN (SELECT j FROM {B} UNION SELECT i FROM {B})", [1, 2]),
        (f"SELECT i {OUTER} WHERE i IN (SELECT SUM(j) FROM {B} HAVING MAX(i) > 1)", [2]),
        (f"SELECT a.i {OUTER} LEFT JOIN LATERAL (SELECT i AS k FROM {B}) AS l ON TRUE", [1, 2, None]),
    ],
)
def test_an_outer_column_may_be_used_anywhere_in_a_subquery(
    t_env: TableEnvironment, query: str, answer: list[Any]
) -> None:
    assert rows(t_env, query) == answer
