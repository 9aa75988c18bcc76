"""Work that a Python worker process does once for many tasks: reading a spec's file, and freezing long-lived
objects.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.runtime.task.residents import Residents
from millstream.spark import worker
from millstream.spark.worker import (
    SPEC_PACKED_MARK,
    LastingObjects,
    SpecFile,
    WorkingFolder,
    pack_spec,
    unpack_spec,
)
from millstream.storage.memory import MemoryStore


class CountedStore(MemoryStore):
    """Records reads."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.read: list[str] = []

    def get(self, name: str) -> bytes:
        self.read.append(name)
        return super().get(name)


def test_a_spec_in_a_file_is_read_once_for_all_tasks_of_an_epoch() -> None:
    store, other, file = CountedStore("spec-file"), CountedStore("another-spec-file"), SpecFile()
    for name in ("specs/1", "specs/2"):
        store.put(name, name.encode())
    other.put("specs/2", b"of another job")
    assert [file.text(store, "specs/1") for _ in range(128)] == ["specs/1"] * 128
    assert [file.text(store, "specs/2") for _ in range(128)] == ["specs/2"] * 128
    assert file.text(other, "specs/2") == "of another job"
    assert store.read == ["specs/1", "specs/2"] and other.read == ["specs/2"]


class Opened(Residents):
    """Total number of subtasks ever opened, and of those open now."""

    living = 0

    def __len__(self) -> int:
        return self.living


def test_all_objects_are_collected_when_their_number_doubles_and_once_for_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collections: list[int] = []
    residents, lasting = Opened(), LastingObjects()
    monkeypatch.setattr(worker.gc, "collect", lambda: None)
    monkeypatch.setattr(worker.gc, "freeze", lambda: None)
    monkeypatch.setattr(worker.gc, "unfreeze", lambda: collections.append(residents.openings))

    def open_subtasks(count: int) -> None:
        for _ in range(count):
            residents.openings += 1
            residents.living = min(residents.living + 1, 128)
            lasting.freeze(residents)

    open_subtasks(128)
    assert collections == [8, 16, 32, 64, 128]
    open_subtasks(3 * 128)  # the job restarts three times: closed objects stay frozen for one run at most
    assert collections[5:] == [256, 384, 512]


def test_new_objects_are_collected_before_every_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[str] = []
    residents, lasting = Opened(), LastingObjects()
    for act in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(worker.gc, act, lambda act=act: acts.append(act))
    for _ in range(8):
        residents.openings += 1
        lasting.freeze(residents)
    assert acts == ["collect", "freeze"] * 7 + ["unfreeze", "collect", "freeze"]


def test_jobs_with_and_without_archives_each_run_in_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    folder = WorkingFolder()
    seen = []
    for place in (None, str(tmp_path / "files"), str(tmp_path / "files"), None):
        folder.enter(place)
        seen.append(Path.cwd())
    assert seen == [tmp_path, tmp_path / "files", tmp_path / "files", tmp_path]


def test_a_long_spec_is_sent_packed_and_unpacked_once_for_all_tasks_of_an_epoch() -> None:
    text = "".join(f'{{"file": "segments/count/total/{number:012d}.arrow"}}' for number in range(2_000))
    packed = pack_spec(text)
    assert packed.startswith(SPEC_PACKED_MARK) and len(packed) < len(text) / 6
    assert unpack_spec(packed) == text
    assert unpack_spec(packed) is unpack_spec(packed)
