"""Nexmark's queries write the lines that Flink writes, as a stream and as a batch, at any parallelism.

Flink's are in tests/fixtures/nexmark.json, written by scripts/nexmark-oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nexmark_queries import QUERIES, definitions, query_statements, result_of, write_bids

from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.udf import udf
from millstream.testing.local_jobs import jobs_in_memory

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "nexmark.json"
FLINKS = json.loads(FIXTURE.read_text(encoding="utf-8"))


@udf(result_type=DataTypes.BIGINT())
def count_char(text: str, letter: str) -> int:
    return text.count(letter)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_the_results_are_flinks(mode: str, parallelism: int, tmp_path: Path) -> None:
    write_bids(tmp_path / "bids")
    settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("parallelism.default", str(parallelism))
    if mode == "streaming":
        t_env.get_config().set("millstream.epoch.max-records", "300")
    t_env.create_temporary_system_function("count_char", count_char)
    with jobs_in_memory():
        for statement in definitions(tmp_path / "bids"):
            t_env.execute_sql(statement)
        for query in QUERIES:
            *before, insert = query_statements(query, tmp_path)
            for statement in before:
                t_env.execute_sql(statement)
            t_env.execute_sql(insert).wait()
            assert result_of(query, tmp_path) == FLINKS[query], query
