"""On a cluster subtasks keep their place, while executors live and after one was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sticky_program import RECORDS
from test_lost_executor import ROOT, spark_home


def answer_of(tmp_path: Path, what: str) -> dict[str, Any]:
    """What the program says of a run on a cluster of its own."""
    program = Path(__file__).with_name("sticky_program.py")
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home(tmp_path / "spark")),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(program.parent)]),
    }
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "store"), what],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    [line] = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    answer: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
    assert answer["values"] == list(range(RECORDS))
    return answer


def moves(stays: list[list[int]]) -> int:
    return sum(tasks - stayed for _, tasks, stayed in stays)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_tasks_stay_and_after_a_change_of_parallelism_they_stay_again(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, "steady")
    # The first epochs may have run before all executors had come.
    assert moves([stay for stay in answer["stays"] if stay[0] > 3]) == 0
    assert answer["shown"] > 0.5


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_subtasks_of_a_killed_executor_move_and_then_stay(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, "killed")
    at = answer["disturbed_at"]
    assert moves([stay for stay in answer["stays"] if 3 < stay[0] <= at]) == 0
    afterwards = [stay for stay in answer["stays"] if stay[0] > at]
    assert len([stay for stay in afterwards if stay[1] != stay[2]]) <= 3, "to a living executor, and to the new one"
    assert moves(afterwards[-3:]) == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_straggling_task_that_spark_starts_twice_counts_once(tmp_path: Path) -> None:
    assert answer_of(tmp_path, "straggling")["second_attempts"] > 0
