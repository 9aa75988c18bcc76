"""An executor is lost in the middle of an epoch: Spark runs its tasks again, and the answer does not change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from lost_executor_program import RECORDS

ROOT = Path(__file__).resolve().parents[2]


def spark_home(folder: Path) -> Path:
    """An installed Spark, which a local cluster needs: the one inside the package, in a folder it may write to."""
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_killed_executor_changes_no_answer(tmp_path: Path) -> None:
    program = Path(__file__).with_name("lost_executor_program.py")
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home(tmp_path / "spark")),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(program.parent)]),
    }
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "store")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    [line] = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    answer = json.loads(line.removeprefix("ANSWER "))
    assert answer["values"] == list(range(RECORDS))
    assert answer["killed_at_epoch"] < answer["epochs"] - 1, "the executor was killed too late to matter"
