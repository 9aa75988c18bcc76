"""A program with tables is killed in the middle of an INSERT and restarted: nothing is duplicated or lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.dataset

PROGRAM = """
import os, sys
from millstream.datastream.environment.launch_defaults import with_job_receiver
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.store import open_store
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.udf import udf

folder, dies_at = sys.argv[1], int(sys.argv[2])


@udf(result_type="INT")
def twice(n):
    if n == dies_at:
        os._exit(9)
    return n * 2


def started(graph, settings):
    return Launch(SystemClock(), LocalRunner(), open_store(settings.store)).prepare(graph, settings).start()


t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("millstream.store", folder + "/store").set("millstream.epoch.max-records", "100")
t_env.create_temporary_function("twice", twice)
t_env.execute_sql(
    "CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
    "'fields.n.start' = '1', 'fields.n.end' = '1000')"
)
for name in ("plain", "doubled"):
    t_env.execute_sql(
        f"CREATE TABLE {name} (n INT, m INT) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{folder}/{name}')"
    )
with with_job_receiver(started):
    t_env.execute_sql("INSERT INTO plain SELECT n, n FROM numbers").wait()
    t_env.execute_sql("INSERT INTO doubled SELECT n, twice(n) FROM numbers").wait()
"""


def _run(folder: Path, dies_at: int) -> int:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(dies_at)]
    return subprocess.run(command, check=False, timeout=120, capture_output=True).returncode


def test_a_killed_program_resumes_each_of_its_inserts(tmp_path: Path) -> None:
    assert _run(tmp_path, dies_at=600) == 9
    assert _run(tmp_path, dies_at=0) == 0
    assert _run(tmp_path, dies_at=0) == 0  # once more: both are done
    for name, factor in (("plain", 1), ("doubled", 2)):
        rows = pyarrow.dataset.dataset(str(tmp_path / name), format="parquet").to_table().sort_by("n").to_pydict()
        assert rows == {"n": list(range(1, 1001)), "m": [n * factor for n in range(1, 1001)]}
