"""Real kills of a SQL job, which goes on at another parallelism: its files hold what its statements give as a batch.

`MILLSTREAM_KILL_SQL_SEEDS` says how many seeds (2 by default), `MILLSTREAM_KILL_FIRST_SEED` where to begin.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sql_program as program
from killing import FINISHED, FIRST, PHASE_TIMEOUT_S, ROOT, Strike, strike_down
from process_session import ProcessSession

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

SEEDS = range(FIRST, FIRST + int(os.environ.get("MILLSTREAM_KILL_SQL_SEEDS", "2")))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The rows of every statement, as a batch in one process."""
    folder = tmp_path_factory.mktemp("batch")
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        statements = t_env.create_statement_set()
        for statement in program.inserts(t_env, str(folder)):
            statements.add_insert_sql(statement)
        statements.execute().wait()
    return output_of(folder)


def output_of(folder: Path) -> dict[str, list[Any]]:
    """The rows in the visible files of each statement, sorted."""
    found = {}
    for name in (*program.QUERIES, *program.WINDOWS):
        rows = [row for path in sorted((folder / name).rglob("[!._]*")) if path.is_file() for row in rows_of(path)]
        found[name] = by_bidder(rows) if name == "q12" else sorted(rows, key=repr)
    return found


def rows_of(path: Path) -> list[Any]:
    """The rows of a file; query 10's are lines of the partition that its folders name."""
    if path.parent.name.startswith("hm="):
        return [(path.parent.parent.name, path.parent.name, line) for line in path.read_text().splitlines()]
    return [tuple(row.values()) for row in pq.read_table(path).to_pylist()]


def by_bidder(rows: list[Any]) -> list[Any]:
    """Query 12 counts by the clock: into which window a bid falls is chance, how many a person makes is not."""
    totals: Counter[int] = Counter()
    for bidder, count, *_ in rows:
        totals[bidder] += count
    return sorted(totals.items())


def start(folder: Path, parallelism: int) -> ProcessSession:
    script = Path(program.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    arguments = [str(folder / "store"), str(folder / "output"), str(parallelism)]
    return ProcessSession([sys.executable, str(script), *arguments], environment, folder, folder / "stderr.log")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_sql_job_that_goes_on_at_another_parallelism_gives_the_rows_of_a_batch(
    seed: int, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    rng = random.Random(f"millstream-sql-{seed}")
    first, second = rng.sample([1, 2, 3], 2)
    strike = Strike(rng.randrange(1, 7), round(rng.random() * 1.2, 3))
    history = strike_down(start(tmp_path, first), strike)
    print(f"seed {seed}: {first} → {second} tasks, {strike}: {history}")
    if history != FINISHED:
        start(tmp_path, second).run_out(PHASE_TIMEOUT_S)
    found = output_of(tmp_path / "output")
    assert all(expected.values())
    for name, rows in expected.items():
        assert found[name] == rows, f"seed {seed}, {name}: {len(found[name])} rows, expected {len(rows)}. {history}"
