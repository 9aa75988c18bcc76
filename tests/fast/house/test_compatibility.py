"""Snapshots that were written before this version: they are found, whole, readable, and jobs go on from them.

`tests/compatibility` holds them, with the program that wrote them and the answer it gave. They are never made again;
when a format changes, new ones are made beside them (`make_snapshots.py` there).
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


def unpacked(kind: str, number: int, folder: Path) -> Path:
    target = folder / f"{kind}-{number}"
    with zipfile.ZipFile(FOLDER / f"{kind}-{number}.zip") as archive:
        archive.extractall(target)
    return target


def told(build: Any, store: Path, path: str | None, parallelism: int) -> list[str]:
    """What the job tells that goes on in `store`, from the snapshot at `path` if one is given."""
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


def answer(number: int) -> list[str]:
    found: list[str] = json.loads((FOLDER / f"answer-{number}.json").read_text())
    return found


def test_there_are_snapshots() -> None:
    assert NUMBERS[:1] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_starts_from_an_old_savepoint(number: int, parallelism: int, build: Any, tmp_path: Path) -> None:
    savepoint = unpacked("savepoint", number, tmp_path)
    assert find_snapshot(parse_snapshot_name(str(savepoint))).manifest.epoch == SAVED
    assert told(build, tmp_path / "new", str(savepoint), parallelism) == answer(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_goes_on_in_an_old_store(number: int, build: Any, tmp_path: Path) -> None:
    store = unpacked("store", number, tmp_path)
    assert told(build, store, None, 2) == answer(number)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_goes_back_in_an_old_store(number: int, build: Any, tmp_path: Path) -> None:
    store = unpacked("store", number, tmp_path)
    assert ManifestLog(LocalStore(store)).epochs() == [SAVED, SAVED + 1]  # the second one says that it was stopped
    assert told(build, store, f"{store}@{SAVED}", 1) == answer(number)


@pytest.mark.parametrize("kind", ["savepoint", "store"])
@pytest.mark.parametrize("number", NUMBERS)
def test_old_snapshots_are_whole_and_can_be_read(number: int, kind: str, tmp_path: Path) -> None:
    place = str(unpacked(kind, number, tmp_path))
    assert verify(place).is_whole
    with state_reader.open(place).at(epoch=SAVED) as snapshot:
        counts = snapshot.read("every-kind", "count").to_pandas()
    assert sorted(zip(counts["key"], counts["value"], strict=True)) == [(0, 6), (1, 5), (2, 5)]
