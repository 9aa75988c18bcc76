"""Screens of `millstream sql`: after each epoch the batch answer, in each result mode and at each size.

Files appear in a folder while the query is displayed; after each one the screen is compared with the result of the same
query in BATCH over the present files. Kafka is in tests/connectors, Spark in tests/spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from screens.sql_terminals import ask, at_every_size, carry_out, changes_are, end_query, sql_terminal
from screens.terminal import Terminal

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

COUNTS = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY k"
TOP = (
    "SELECT k, v, place FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM t) "
    "WHERE place <= 2"
)
FILES = ("a,1\nb,2\nc,3\nd,4\n", "a,9\na,7\ne,5\n", "b,-3\nb,6\nc,3\n")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One client for all tests of this module."""
    with sql_terminal(tmp_path_factory.mktemp("client")) as terminal:
        yield terminal


@pytest.fixture
def folder(tmp_path: Path, person: Terminal) -> Iterator[Path]:
    """A monitored folder, the table `t` of the client."""
    (tmp_path / "in").mkdir()
    carry_out(person, table(tmp_path / "in", ", 'source.monitor-interval' = '100 ms'") + ";")
    yield tmp_path / "in"
    carry_out(person, "DROP TABLE t;")


def table(folder: Path, options: str = "") -> str:
    place = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv'"
    return f"CREATE TABLE t (k STRING, v INT) WITH ({place}{options})"


def arrive(folder: Path, number: int) -> None:
    """A file appears atomically."""
    (folder / ".part").write_text(FILES[number])
    os.replace(folder / ".part", folder / f"{number}.csv")


def batch_answer(folder: Path, query: str) -> list[tuple[str, ...]]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        t_env.execute_sql(table(folder))
        with t_env.execute_sql(query).collect() as rows:
            return sorted(tuple(map(str, row)) for row in rows)


@pytest.mark.parametrize("query", [COUNTS, TOP], ids=["counts", "top"])
def test_the_table_shows_the_batch_answer_after_each_file_at_each_size(
    person: Terminal, folder: Path, query: str
) -> None:
    arrive(folder, 0)
    ask(person, query)
    for number in range(len(FILES)):
        if number:
            arrive(folder, number)
        at_every_size(person, batch_answer(folder, query))
    end_query(person)


@pytest.mark.parametrize(
    ("mode", "query", "size"),
    [("changelog", TOP, (24, 80)), ("tableau", COUNTS, (40, 120)), ("tableau", TOP, (60, 200))],
)
def test_the_printed_changes_amount_to_the_batch_answer_after_each_file(
    person: Terminal, folder: Path, mode: str, query: str, size: tuple[int, int]
) -> None:
    carry_out(person, f"SET 'sql-client.execution.result-mode' = '{mode}';")
    arrive(folder, 0)
    ask(person, query, *size)
    for number in range(len(FILES)):
        if number:
            arrive(folder, number)
        changes_are(person, batch_answer(folder, query))
    end_query(person)
    carry_out(person, "RESET 'sql-client.execution.result-mode';")
