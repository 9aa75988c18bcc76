"""Snapshots written by older versions are valid and readable, and jobs resume from them.

`tests/compatibility` has the snapshots, the program that wrote them and its output. They are never rewritten; when
a format changes, new ones are added (`make_snapshots.py` there).
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from millstream import state_reader
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state_reader.verifying import verify
from millstream.storage.local import LocalStore
from millstream.testing import Collect, ManualClock

FOLDER = Path(__file__).resolve().parents[2] / "compatibility"
NUMBERS = sorted(int(path.stem.removeprefix("savepoint-")) for path in FOLDER.glob("savepoint-*.zip"))
SAVED = 2


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that wrote the snapshots."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import saved_program

    yield saved_program.build
    sys.modules.pop("saved_program", None)


def unpack(kind: str, number: int, folder: Path) -> Path:
    target = folder / f"{kind}-{number}"
    with zipfile.ZipFile(FOLDER / f"{kind}-{number}.zip") as archive:
        archive.extractall(target)
    return target


def output_of(build: Any, store: Path, path: str | None, parallelism: int) -> list[str]:
    """The output of a job that resumes in `store`, or from the snapshot at `path`."""
    env, out = StreamExecutionEnvironment.get_execution_environment(), Collect()
    env.set_parallelism(parallelism)
    if path is not None:
        env.configure(Configuration().set_string("execution.state-recovery.path", path))
    build(env, out)
    launch = Launch(ManualClock(), LocalRunner(), LocalStore(store, fsync=False))
    job = launch.prepare(env._graph("saved"), env._job_settings()).start()
    job.result()
    assert job.status() is JobStatus.FINISHED
    return sorted(record.value for record in out.records if record.epoch > SAVED)


def expected_output(number: int) -> list[str]:
    expected: list[str] = json.loads((FOLDER / f"answer-{number}.json").read_text())
    return expected


def test_snapshots_exist() -> None:
    assert NUMBERS[:1] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_starts_from_an_old_savepoint(number: int, parallelism: int, build: Any, tmp_path: Path) -> None:
    savepoint = unpack("savepoint", number, tmp_path)
    assert find_snapshot(parse_snapshot_name(str(savepoint))).manifest.epoch == SAVED
    assert output_of(build, tmp_path / "new", str(savepoint), parallelism) == expected_output(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_resumes_in_an_old_store(number: int, build: Any, tmp_path: Path) -> None:
    store = unpack("store", number, tmp_path)
    assert output_of(build, store, None, 2) == expected_output(number)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_rolls_back_in_an_old_store(number: int, build: Any, tmp_path: Path) -> None:
    store = unpack("store", number, tmp_path)
    assert ManifestLog(LocalStore(store)).epochs() == [SAVED, SAVED + 1]  # the second one reports that it was stopped
    assert output_of(build, store, f"{store}@{SAVED}", 1) == expected_output(number)


@pytest.mark.parametrize("kind", ["savepoint", "store"])
@pytest.mark.parametrize("number", NUMBERS)
def test_old_snapshots_are_valid_and_readable(number: int, kind: str, tmp_path: Path) -> None:
    place = str(unpack(kind, number, tmp_path))
    assert verify(place).is_whole
    with state_reader.open(place).at(epoch=SAVED) as snapshot:
        counts = snapshot.read("every-kind", "count").to_pandas()
    assert sorted(zip(counts["key"], counts["value"], strict=True)) == [(0, 6), (1, 5), (2, 5)]
