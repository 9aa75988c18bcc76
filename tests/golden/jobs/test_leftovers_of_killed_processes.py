"""Half-written files of processes killed with -9 are collected: in the job's store, in file sinks, and in their staging
folders. Young files may still be in use, and stay.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.common import Encoder, Types
from millstream.connectors.files import publishing
from millstream.connectors.files.part_rules import STAGING
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.local import UNFINISHED_MS
from millstream.storage.store import open_store
from millstream.testing import EPOCH, Script

_WRITER = """
import os, signal, sys
from pathlib import Path
from millstream.storage.local import LocalStore
os.fsync = lambda descriptor: (print("half", flush=True), signal.pause())
LocalStore(Path(sys.argv[1])).put(sys.argv[2], b"half of it")
"""


def killed_while_writing(store: Path, name: str) -> Path:
    """Kill a process in the middle of writing `name`; returns its leftover."""
    folder = (store / name).parent
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob(".tmp-*"))
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(store), name], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == "half\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(30)
    [leftover] = set(folder.glob(".tmp-*")) - before
    assert leftover.read_bytes() == b"half of it" and not (store / name).exists()
    return leftover


def make_old(leftover: Path) -> Path:
    written_s = leftover.stat().st_mtime - UNFINISHED_MS / 1000 - 60
    os.utime(leftover, (written_s, written_s))
    return leftover


def run_job(store: Path, output: Path, epochs: int | None = None) -> None:
    """Three letters, one per epoch; `epochs`: stop after this many."""
    env = StreamExecutionEnvironment.get_execution_environment()
    sink = FileSink.for_row_format(str(output), Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    script = Script(["a", EPOCH, "b", EPOCH, "c"], type_info=Types.STRING())
    env.add_source(script, "letters").uid("letters").sink_to(sink.build()).uid("files")
    launch = Launch(SystemClock(), LocalRunner(), open_store(str(store)))
    job = launch.prepare(env._graph("letters"), env._job_settings())
    if epochs is not None:
        job.board.listen(lambda progress: job.stop() if progress.epoch >= epochs else None)
    job.start()
    assert job.wait(60)
    job.result()


def test_leftovers_are_collected_on_restart_and_young_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, output = tmp_path / "store", tmp_path / "output"
    run_job(store, output, epochs=1)
    places = [
        (store, "manifests/000000000099.json"),
        (store, "segments/sums/x.arrow"),
        (output, "part-x"),
        (output, f"{STAGING}/a-job/chunk"),
    ]
    old = [make_old(killed_while_writing(*place)) for place in places]
    young = [killed_while_writing(*place) for place in places]
    monkeypatch.setattr(publishing, "_SWEPT_FOLDERS", set())  # as in another process
    run_job(store, output)
    assert [path for path in old if path.exists()] == []
    assert [path for path in young if not path.exists()] == []
    lines = [line for path in output.glob("part-*") for line in path.read_text().split()]
    assert sorted(lines) == ["a", "b", "c"]
