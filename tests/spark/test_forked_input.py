"""Snapshots of jobs over Spark DataFrames: whoever goes on from one, back or elsewhere, reads every row once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError
from millstream.storage.store import open_store
from millstream.testing import Collect

NewEnv = Callable[[], StreamExecutionEnvironment]
AVAILABLE_NOW = {"availableNow": True}


def drop(folder: Path, first: int, count: int = 10) -> None:
    """Let a file appear in a folder, whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{first}"
    hidden.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(first, first + count)))
    hidden.rename(folder / f"{first:05d}.json")


def job(new_env: NewEnv, frame: Any, store: Path, out: Collect, start: str | None = None, **trigger: Any) -> Any:
    env = new_env().set_store(str(store))
    settings = Configuration().set_integer("millstream.epoch.max-records", 3)
    settings.set_integer("millstream.retention.epochs", 100)
    if start is not None:
        settings.set_string("execution.state-recovery.path", start)
    env.configure(settings)
    env.from_spark(frame, **trigger).uid("frame").map(lambda row: row.n).sink_to(out).uid("out")
    return env._launch("rows")


def read_by(store: Path, epoch: int) -> int:
    """How many rows the job had read at `epoch`."""
    return sum(at.offset for at in ManifestLog(open_store(str(store))).read(epoch).sources["frame"].values())


def newest(store: Path) -> int:
    return ManifestLog(open_store(str(store))).epochs()[-1]


def test_a_streaming_frame_is_read_once_by_a_job_that_goes_back_and_by_forks_of_it(
    new_env: NewEnv, spark: Any, tmp_path: Path
) -> None:
    folder, origin, fork = tmp_path / "in", tmp_path / "origin", tmp_path / "fork"
    drop(folder, 0)
    drop(folder, 10)
    stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(folder))
    before = Collect()
    running = job(new_env, stream, origin, before)
    while len(before.values) < 20:
        assert not running.wait(0.02), running.result()
    # While the origin still runs: the rows of both files are stored, and epoch 2 has read six of them.
    early = Counter(record.value for record in before.records if record.epoch <= 2)
    drop(folder, 20)
    forked = Collect()
    job(new_env, stream, fork, forked, f"{origin}@2", trigger=AVAILABLE_NOW).result()
    assert early + Counter(forked.values) == Counter(range(30))
    while len(before.values) < 30:
        assert not running.wait(0.02), running.result()
    running.stop()
    running.result()
    assert running.status() is JobStatus.SUSPENDED and Counter(before.values) == Counter(range(30))
    # Back in its own store, and from a fork of the fork.
    drop(folder, 30)
    again, twice = Collect(), Collect()
    job(new_env, stream, origin, again, f"{origin}@2", trigger=AVAILABLE_NOW).result()
    assert early + Counter(again.values) == Counter(range(40))
    middle = next(e for e in ManifestLog(open_store(str(fork))).epochs() if read_by(fork, e) >= 21)
    there = early + Counter(record.value for record in forked.records if record.epoch <= middle)
    job(new_env, stream, tmp_path / "fork-of-fork", twice, f"{fork}@{middle}", trigger=AVAILABLE_NOW).result()
    assert there + Counter(twice.values) == Counter(range(40))


def test_a_static_frame_is_computed_once_for_a_job_and_its_forks_and_never_anew_for_a_savepoint_without_it(
    new_env: NewEnv, spark: Any, tmp_path: Path
) -> None:
    origin, out, forked = tmp_path / "origin", Collect(), Collect()

    def frame() -> Any:  # made anew by every program, with other rows and in another order
        return spark.sql("select cast(rand() * 1e15 as long) n from range(20)")

    job(new_env, frame(), origin, out).result()
    early = Counter(record.value for record in out.records if record.epoch <= 3)
    assert 0 < early.total() < 20
    job(new_env, frame(), tmp_path / "fork", forked, f"{origin}@3").result()
    assert early + Counter(forked.values) == Counter(out.values)
    copy_savepoint(find_snapshot(parse_snapshot_name(f"{origin}@3")), open_store(str(tmp_path / "savepoint")))
    with pytest.raises(MillstreamError, match="start from STORE@EPOCH of the job itself"):
        job(new_env, frame(), tmp_path / "elsewhere", Collect(), str(tmp_path / "savepoint")).result()
