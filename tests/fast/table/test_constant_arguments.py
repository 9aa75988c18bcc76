"""A constant argument is one wherever the plan moves it: LISTAGG's separator and LAG's offset in GROUPING SETS, over
VALUES, over branches, and where there is no row at all."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import ProgramError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

WORDS = "CREATE VIEW words AS SELECT * FROM (VALUES (1, 'a', 'x'), (2, 'a', 'y'), (3, 'b', 'z')) AS v(i, k, word)"
LISTED = {
    "SELECT LISTAGG(word, '-') FROM words": [("x-y-z",)],
    "SELECT k, LISTAGG(word, '-') FROM words GROUP BY ROLLUP (k)": [("a", "x-y"), ("b", "z"), (None, "x-y-z")],
    "SELECT k, LISTAGG(word, '-') FROM words GROUP BY CUBE (k)": [("a", "x-y"), ("b", "z"), (None, "x-y-z")],
    "SELECT k, LISTAGG(word, '-') FROM words GROUP BY GROUPING SETS ((k), (k, i), ())": [
        *[("a", "x"), ("a", "x-y"), ("a", "y"), ("b", "z"), ("b", "z")],
        (None, "x-y-z"),
    ],
    "SELECT LISTAGG(word, '-' || '+') FROM (SELECT word FROM words WHERE i < 3)": [("x-+y",)],
    "SELECT LISTAGG(word, '-') FROM words WHERE FALSE": [(None,)],
    "SELECT CHAR_LENGTH(LISTAGG(a.word, '---')) FROM words AS a JOIN words AS b ON a.i = b.i AND b.i > 1": [(5,)],
    "SELECT LISTAGG(word, s) FROM (SELECT word, '+' AS s FROM words UNION ALL SELECT 'w', '+')": [("x+y+z+w",)],
    "SELECT LISTAGG(DISTINCT k, '-') FROM (SELECT k FROM words WHERE FALSE UNION ALL SELECT k FROM words)": [("a-b",)],
}


def rows(query: str) -> list[tuple[Any, ...]]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        t_env.execute_sql(WORDS)
        return sorted((tuple(row) for row in t_env.execute_sql(query).collect()), key=str)


@pytest.mark.parametrize("query", LISTED)
def test_a_separator_is_a_constant_wherever_the_plan_moves_it(query: str) -> None:
    assert rows(query) == sorted(LISTED[query], key=str)


@pytest.mark.parametrize("condition", ["TRUE", "i IN (1, 2, 3)", "FALSE"])
def test_an_offset_of_lag_is_a_constant_wherever_the_plan_moves_it(condition: str) -> None:
    query = f"SELECT i, LAG(word, 2) OVER (ORDER BY i) FROM words WHERE {condition}"
    assert rows(query) == ([] if condition == "FALSE" else [(1, None), (2, None), (3, "x")])


@pytest.mark.parametrize(
    "source", ["words", "(SELECT word, 'a' AS k FROM words UNION ALL SELECT word, 'b' FROM words)"]
)
def test_a_separator_that_differs_from_row_to_row_is_refused(source: str) -> None:
    with pytest.raises(ProgramError, match="LISTAGG: the separator must be a constant"):
        rows(f"SELECT LISTAGG(word, k) FROM {source}")
