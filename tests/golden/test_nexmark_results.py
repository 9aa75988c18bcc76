"""Nexmark's queries give what Flink gives: as a stream and as a batch, at any parallelism, through a change of it.

Flink's results are in tests/fixtures/nexmark.json, written by scripts/nexmark-oracle."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changing_tables import materialised
from nexmark_queries import CHANGING_QUERIES, QUERIES, definitions, query_statements, result_of, write_events

from millstream.table import DataTypes, EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from millstream.table.udf import udf
from millstream.testing import Collect, run
from millstream.testing.local_jobs import jobs_in_memory

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "nexmark.json"
FLINKS = json.loads(FIXTURE.read_text(encoding="utf-8"))


@udf(result_type=DataTypes.BIGINT())
def count_char(text: str, letter: str) -> int:
    return text.count(letter)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder)
    return folder


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_the_results_are_flinks(mode: str, parallelism: int, events: Path, tmp_path: Path) -> None:
    settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("parallelism.default", str(parallelism))
    if mode == "streaming":
        t_env.get_config().set("millstream.epoch.max-records", "300")
    t_env.create_temporary_system_function("count_char", count_char)
    with jobs_in_memory():
        for statement in definitions(events):
            t_env.execute_sql(statement)
        for query in QUERIES if mode == "streaming" else (*QUERIES, *CHANGING_QUERIES):
            *before, insert = query_statements(query, tmp_path)
            for statement in before:
                t_env.execute_sql(statement)
            t_env.execute_sql(insert).wait()
            assert result_of(query, tmp_path) == FLINKS[query], query


@pytest.fixture(scope="module")
def final_rows(events: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[Any]]:
    """The rows of each query that changes what it gave, as a batch."""
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    with jobs_in_memory():
        for statement in definitions(events):
            t_env.execute_sql(statement)
        return {
            query: Counter(map(tuple, t_env.execute_sql(question(query, tmp_path_factory.mktemp(query))).collect()))
            for query in (*CHANGING_QUERIES, "q11")
        }


def question(query: str, folder: Path) -> str:
    """The SELECT of a query."""
    *_, insert = query_statements(query, folder)
    return insert[insert.index("SELECT") :]


@pytest.mark.parametrize("query", [*CHANGING_QUERIES, "q11"])
def test_a_stream_leaves_the_rows_of_a_batch_also_when_it_goes_on_at_another_parallelism(
    query: str, events: Path, final_rows: dict[str, Counter[Any]], tmp_path: Path
) -> None:
    store, changes = f"nexmark-{secrets.token_hex(8)}", list[Any]()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        for statement in definitions(events):
            t_env.execute_sql(statement)
        t_env.to_changelog_stream(t_env.sql_query(question(query, tmp_path))).sink_to(out)

    for parallelism, epochs in lives():
        out = Collect()
        result = run(build, parallelism=parallelism, epoch_records=400, epochs=epochs, store=store)
        changes += result[out]
    assert result.status == "FINISHED"
    assert materialised(changes) == final_rows[query]


def lives() -> Iterator[tuple[int, int | None]]:
    """Parallelisms, and after how many epochs each run is stopped."""
    yield 2, 3
    yield 3, None
