"""`millstream sweep`: what it removes, what it retains, and its report."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from programs.running_totals import totals

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch
from millstream.checkpoint.retention import named_files
from millstream.cli.sweep import sweep_store
from millstream.storage.local import LocalStore
from millstream.storage.log_lock import hold
from millstream.storage.memory import MemoryStore
from millstream.storage.names import log_name, segment_name
from millstream.testing import Collect, run

OLD, AHEAD = segment_name("totals", "total", 1, 0, "lost"), segment_name("totals", "total", 9, 0, "lost")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """An ended job of five epochs, with files of losing attempts, of an epoch before its last and of one ahead."""
    memory, store = MemoryStore(f"swept-{tmp_path.name}"), LocalStore(tmp_path, fsync=False)
    run(totals(Collect()), store=memory.url.removeprefix("memory://"), epochs=4)
    for name in memory.list(""):
        store.put(name, memory.get(name))
    store.put(log_name("a1"), b"")
    for name in (OLD, AHEAD):
        store.put(name, b"rows")
    return store


def sweep(store: LocalStore, keep: int | None = None, *, dry_run: bool = False, as_json: bool = False) -> str:
    screen = io.StringIO()
    place = store.place("job.json").parent
    assert sweep_store(str(place), None, keep, dry_run=dry_run, as_json=as_json, screen=screen) == 0
    return screen.getvalue().replace(str(place), "STORE")


def test_it_removes_unreferenced_files_and_retains_all_epochs(store: LocalStore) -> None:
    text = sweep(store)
    assert text.startswith("STORE: removed 5 files and 0 epochs, 641 B; 5 epochs retained.\n") and "--keep N" in text
    assert ManifestLog(store).epochs() == [1, 2, 3, 4, 5]
    assert not store.exists(OLD) and not store.exists(AHEAD)


def test_it_removes_old_epochs_on_request_except_pinned_ones(store: LocalStore) -> None:
    pin_epoch(store, Pin("saved", 2, "savepoint", 0))
    report = json.loads(sweep(store, keep=1, as_json=True))
    log = ManifestLog(store)
    assert (report["epochs"], report["retained"], report["dry_run"]) == (3, 2, False) and log.epochs() == [2, 5]
    assert set(store.list("segments")) == {
        name for epoch in log.epochs() for name in named_files(log.read(epoch)) if name.startswith("segments/")
    }


def test_a_dry_run_reports_the_same_and_writes_nothing(store: LocalStore) -> None:
    before = {name: store.modified_ms(name) for name in store.list("")}
    for path in store.place("job.json").parent.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    would = json.loads(sweep(store, keep=2, dry_run=True, as_json=True))
    assert {name: store.modified_ms(name) for name in store.list("")} == before
    for path in store.place("job.json").parent.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert json.loads(sweep(store, keep=2, as_json=True)) == {**would, "dry_run": False}


def test_while_a_driver_runs_it_retains_files_of_the_next_epoch(store: LocalStore) -> None:
    with store.place(log_name("a1")).open("ab") as log:
        hold(log.fileno())
        sweep(store, keep=1)
    assert store.exists(AHEAD) and not store.exists(OLD)
    assert ManifestLog(store).epochs() == [5]


def test_without_a_log_it_assumes_that_a_driver_may_run(store: LocalStore) -> None:
    for name in store.list("logs"):
        store.delete(name)
    sweep(store)
    assert store.exists(AHEAD) and not store.exists(OLD)


def test_a_folder_that_is_not_a_store_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep_store(str(tmp_path), None, None, dry_run=False, as_json=False) == 1
    assert "neither the store of a job nor a job" in capsys.readouterr().err
