"""Snapshots on a real Spark, from the command line: a job is saved and rescaled as it runs, and goes on elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waits.patience import PATIENCE_S

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.pins import pins_of
from millstream.storage.store import open_store

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
MILLSTREAM = [sys.executable, "-m", "millstream.cli"]

COUNTING_JOB = """
import sys

from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.seen.value()}"


env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda index: index, rate_per_second=500, type_info=Types.LONG())
files = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()) \\
    .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()) \\
    .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers") \\
    .key_by(lambda n: n % 7, Types.LONG()).process(Count(), Types.STRING()).uid("count").sink_to(files).uid("files")
env.execute("counting")
"""


def millstream(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLSTREAM, *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def running(cwd: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The job, in a process of its own."""
    command = [*MILLSTREAM, "run", "-D", "millstream.spark.master=local[2]", *options, "job.py", "--", "out"]
    process = subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def after_epochs(process: subprocess.Popen[str], store: Path, epochs: int) -> Manifest:
    """The newest manifest once the job has committed so many more."""
    log, deadline = ManifestLog(open_store(str(store))), time.monotonic() + PATIENCE_S
    there: set[int] = set(log.epochs())
    newer: set[int] = set()
    while len(newer) < epochs and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        newer |= set(log.epochs()) - there
    newest = log.newest()
    assert newest is not None and len(newer) >= epochs
    return newest


def width(manifest: Manifest) -> int:
    program: Any = manifest.program
    return int(program["count"]["parallelism"])


@pytest.mark.slow
def test_a_job_is_saved_rescaled_stopped_and_goes_on_elsewhere_at_another_parallelism(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(COUNTING_JOB, encoding="utf-8")
    with running(tmp_path, "-p", "2", "--store", "jobs/a") as process:
        after_epochs(process, tmp_path / "jobs" / "a", 2)
        saved = millstream("savepoint", "jobs/a", "--name", "early", cwd=tmp_path)
        assert (saved.returncode, saved.stdout) == (0, "jobs/a@early\n"), saved.stderr
        rescaled = millstream("rescale", "counting", "1", "--root", "jobs", cwd=tmp_path)
        assert rescaled.returncode == 0, rescaled.stderr
        assert width(after_epochs(process, tmp_path / "jobs" / "a", 3)) == 1
        stopped = millstream("stop", "jobs/a", "--to", "saved", cwd=tmp_path)
        assert stopped.returncode == 0, stopped.stderr
        assert process.wait(PATIENCE_S) == 0
    assert [pin.name for pin in pins_of(open_store(str(tmp_path / "jobs" / "a")))] == ["early"]
    savepoint = stopped.stdout.strip()

    (tmp_path / "jobs" / "a").rename(tmp_path / "gone")  # the savepoint needs nothing else
    with running(tmp_path, "-p", "3", "--from", savepoint, "--store", "jobs/b") as process:
        assert width(after_epochs(process, tmp_path / "jobs" / "b", 3)) == 3
        assert millstream("stop", "jobs/b", cwd=tmp_path).returncode == 0
        assert process.wait(PATIENCE_S) == 0

    newest = ManifestLog(open_store(str(tmp_path / "jobs" / "b"))).newest()
    assert newest is not None and newest.status == "SUSPENDED"
    read = sum(int(str(at.offset)) for at in newest.sources["numbers"].values())
    lines = [line for path in (tmp_path / "out").glob("part-*") for line in path.read_text().splitlines()]
    assert len(lines) == read
    for key in range(7):
        # Counted 1, 2, 3, … without a gap, through three parallelisms and two stores.
        counts = sorted(int(line.split()[1]) for line in lines if line.startswith(f"{key} "))
        assert counts == list(range(1, len(counts) + 1))
