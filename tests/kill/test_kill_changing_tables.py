"""Real kills of a job of changing tables: joins, groups and first rows leave the rows of a batch, each once.

A seed kills the whole job, which goes on at another parallelism, and before that perhaps one of its workers, which the
job must bear by itself. One of Nexmark's queries runs with it, another for each seed. Blocks of records lie in the
machine's memory meanwhile: they are lost with whoever laid them, and the next start removes what the killed one left
there. `MILLSTREAM_KILL_TABLES_SEEDS` says how many seeds (1 by default), `MILLSTREAM_KILL_FIRST_SEED` where to begin.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import changing_program as program
import pytest
from killing import FINISHED, FIRST, PHASE_TIMEOUT_S, ROOT, Strike, strike_down
from process_session import ProcessSession
from programs.nexmark_queries import CHANGING_QUERIES

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

SEEDS = range(FIRST, FIRST + int(os.environ.get("MILLSTREAM_KILL_TABLES_SEEDS", "1")))


def expected(nexmark: str) -> dict[str, Counter[str]]:
    """The rows of every query, as a batch in one process."""
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        program.define(t_env)
        return {
            name: Counter(repr(tuple(row)) for row in t_env.execute_sql(query).collect())
            for name, query in program.queries(nexmark).items()
        }


def rows_left(folder: Path) -> Counter[str]:
    """What the changes in the visible files leave. No row may go more often than it came."""
    left: Counter[str] = Counter()
    for path in folder.rglob("part-*"):
        if not path.name.startswith("."):
            for line in path.read_text().splitlines():
                left[line[1:]] += 1 if line[0] == "+" else -1
    assert min(left.values()) >= 0, "a row went that never came"
    return +left


def start(folder: Path, parallelism: int, nexmark: str) -> ProcessSession:
    script = Path(program.__file__)
    paths = (ROOT / "src", script.parent, script.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    arguments = [str(folder / "store"), str(folder / "output"), str(parallelism), nexmark]
    return ProcessSession([sys.executable, str(script), *arguments], environment, folder, folder / "stderr.log")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_job_of_changing_tables_leaves_the_rows_of_a_batch(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"millstream-tables-{seed}")
    nexmark = CHANGING_QUERIES[seed % len(CHANGING_QUERIES)]
    first, second = rng.sample([1, 2, 3], 2)
    strike = Strike(rng.randrange(1, 9), round(rng.random() * 1.2, 3))
    history = strike_down(start(tmp_path, first, nexmark), strike)
    print(f"seed {seed}: {first} → {second} tasks, {nexmark}, {strike}: {history}")
    if history != FINISHED:
        job = start(tmp_path, second, nexmark)
        if kill_a_worker(job, rng):
            job.run_out(PHASE_TIMEOUT_S)
        assert job.wait(60) == 0, job.errors()[-4000:]
    assert (tmp_path / "laid").exists(), "no block was laid beside the shuffle: the rows are too few or too small"
    batch = expected(nexmark)
    assert all(batch.values())
    for name, rows in batch.items():
        assert rows_left(tmp_path / "output" / name) == rows, f"seed {seed}, {name}. {history}"


def kill_a_worker(job: ProcessSession, rng: random.Random) -> bool:
    """Kill one of the Python workers of Spark when the job has committed an epoch; False: it ended before. The first
    epoch that it tells of is the one it goes on from, when there are no workers yet."""
    while (line := job.next_line(PHASE_TIMEOUT_S)) is not None:
        workers = job.workers() if line.startswith("PHASE epoch") else []
        if workers:
            print(f"{line}: killed a worker of {len(workers)}")
            os.kill(rng.choice(workers), signal.SIGKILL)
            return True
    return False
