"""On a cluster subtasks keep their place, while executors live, after one was killed and after one has come; the answer
never changes."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import driver_environment, program_run
from servers.executor_python import executor_python
from servers.spark_cluster import SparkCluster, SparkWorker
from sticky_program import DISTURBED_AT, RECORDS, STRAGGLERS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("sticky_program.py")
_COMING = 3
"""Until this epoch executors may still be coming, and get their share."""


def answer_of(cluster: SparkCluster, folder: Path, what: str) -> dict[str, Any]:
    """What the program says of its run on the cluster."""
    command = [sys.executable, str(PROGRAM), cluster.master_url, str(folder / "store"), what]
    run = program_run(command, folder, driver_environment(), timeout_s=400 if what == "joined" else 200)
    assert run.returncode == 0, run.stderr[-4000:] + cluster.executor_logs()
    [line] = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    answer: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
    if what != "joined":  # which is stopped before the end of its input
        assert answer["values"] == list(range(RECORDS))
    return answer


def moves(answer: dict[str, Any], begin: int, end: int = sys.maxsize) -> dict[int, int]:
    """How many tasks moved in each epoch from `begin` up to `end` in which some did."""
    return {
        epoch: tasks - stayed for epoch, tasks, stayed in answer["stays"] if begin <= epoch < end and tasks != stayed
    }


def test_tasks_stay_and_after_a_change_of_parallelism_they_stay_again(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    answer = answer_of(spark_cluster, tmp_path, "steady")
    assert moves(answer, _COMING) == {}
    assert len({tasks for _, tasks, _ in answer["stays"]}) == 2, "the parallelism did not change"
    assert answer["shown"] > 0.8


def test_subtasks_of_a_killed_executor_move_and_then_stay(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    answer = answer_of(spark_cluster, tmp_path, "killed")
    assert moves(answer, _COMING, DISTURBED_AT) == {}
    afterwards = moves(answer, DISTURBED_AT)
    assert 1 <= len(afterwards) <= 4, f"to living executors, and their share to the new one: {answer['stays']}"


def test_a_straggling_task_that_spark_starts_twice_counts_once(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    answer = answer_of(spark_cluster, tmp_path, "straggling")
    assert answer["attempts"] == sorted(f"{value}-{attempt}" for value in STRAGGLERS for attempt in (0, 1))


LATE = 5
"""The number of the machine that joins: its address is one that no other has."""


@pytest.mark.timeout(600)
def test_a_larger_machine_that_joins_gets_its_share_by_cores_and_then_nothing_moves(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    worker = SparkWorker(tmp_path / "late", LATE, spark_cluster.master, 2, spark_cluster.memory_mb, executor_python())

    def join() -> None:
        while not (tmp_path / "store-marks" / "wanted").exists():
            time.sleep(0.05)
        worker.folder.mkdir()
        worker.start()

    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join)
        try:
            answer = answer_of(spark_cluster, tmp_path, "joined")
        finally:
            (tmp_path / "store-marks" / "wanted").touch()  # nobody waits for a run that has failed
            joined.result()
            worker.remove()
    for first in (0, 1):  # of each split what was read is there once, from its beginning
        values = [value for value in answer["values"] if value % 2 == first]
        assert values == list(range(first, first + 2 * len(values), 2))
    hosts = Counter(place.partition("@")[2] for place in answer["places"].values())
    assert hosts == {worker.host: 2, **{other.host: 1 for other in spark_cluster.workers}}
    moved = moves(answer, DISTURBED_AT)
    assert 1 <= len(moved) <= 3 and sum(moved.values()) <= 2 * 4, f"its share once, of every stage: {answer['stays']}"
    assert answer["restarts"] == 0
