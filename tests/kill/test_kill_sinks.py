"""Real kills of a job that writes to Redis, and two whole drivers by mistake on Redis, files and a Delta table.

What is killed, and when, is drawn from a seed: the driver, a task, the server. In the end Redis holds the last count of
every key, and a total that has every record once; files and table hold every count once.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import sys
import time
from pathlib import Path

import counted_numbers as program
import psutil
import pytest
import redis
from deltalake import DeltaTable
from killing import PHASE_TIMEOUT_S, ROOT, SEEDS
from process_session import ProcessSession
from servers.redis import RedisServer

SOME_SEEDS = [seed for seed in SEEDS if seed % 4 == 2] or list(SEEDS)


def started(folder: Path, kind: str, place: str, parallelism: int) -> ProcessSession:
    script = Path(program.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    command = [sys.executable, str(script), str(folder / "store"), kind, place, str(parallelism)]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


def until_epochs(process: ProcessSession, count: int) -> bool:
    """Wait until so many more epochs are committed; False: the job has ended before."""
    while count:
        try:
            line = process.next_line(PHASE_TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"stuck:\n{process.errors()[-4000:]}") from None
        if line is None:
            return False
        count -= line.startswith("PHASE epoch")
    return True


def kill_a_task(process: ProcessSession) -> None:
    """Kill one of Spark's Python workers: a fork of Spark's daemon, which looks like it."""
    for pid in process.alive():
        try:
            worker = psutil.Process(pid)
            parent = worker.parent()
            if parent is not None and all("pyspark.daemon" in each.cmdline() for each in (worker, parent)):
                os.kill(pid, signal.SIGKILL)
                return
        except (psutil.Error, ProcessLookupError):
            continue


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_final_values_in_redis_are_right_whatever_is_killed(
    seed: int, redis_server: RedisServer, unique_name: str, tmp_path: Path
) -> None:
    rng = random.Random(f"redis-{seed}")
    acts = ["driver", "task", "server"]
    rng.shuffle(acts)
    place, history = f"{unique_name}={redis_server.url}", []
    process = started(tmp_path, "redis", place, 2)
    try:
        for act in acts:
            if not until_epochs(process, rng.randrange(1, 4)):
                break
            time.sleep(rng.random() * 0.3)
            history.append(act)
            if act == "task":
                kill_a_task(process)
            elif act == "server":
                redis_server.kill()
                time.sleep(rng.random())
                redis_server.restart()
            else:
                process.kill()
                process = started(tmp_path, "redis", place, rng.choice([1, 3]))
        process.run_out(PHASE_TIMEOUT_S)
    finally:
        process.kill()
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        found = {key.partition(":")[2]: int(client.get(key) or 0) for key in client.keys(f"{unique_name}:*")}
    print(f"seed {seed}: {history}")
    assert found == {**dict(program.expected()), "total": program.RECORDS}, history


def counts_in(kind: str, place: Path) -> list[tuple[str, int]]:
    if kind == "delta":
        rows = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
        return sorted((row["key"], row["n"]) for row in rows)
    finished = [file for file in place.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    lines = [line.split(",") for file in finished for line in file.read_text().splitlines()]
    return sorted((key, int(n)) for key, n in lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["files", "delta"])
def test_two_whole_drivers_by_mistake_write_every_count_once(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "output"
    drivers = [started(tmp_path, kind, str(place), parallelism) for parallelism in (2, 1)]
    try:
        for driver in drivers:
            driver.wait(PHASE_TIMEOUT_S)  # it finishes, or says that it has lost
        # Whoever was left may have lost as well, in its last epoch: as a supervisor does, start once more.
        started(tmp_path, kind, str(place), 2).run_out(PHASE_TIMEOUT_S)
    finally:
        for driver in drivers:
            driver.kill()
    assert counts_in(kind, place) == program.expected(), [driver.exit_code() for driver in drivers]
