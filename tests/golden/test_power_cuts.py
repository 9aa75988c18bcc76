"""Power cuts: unsynced writes are truncated, empty, zeroed or lost, and the job resumes with exact output.

A machine crashes at each of its job's writes to the store, with its processes. Then every file that no manifest
references is damaged, in the local tier and in the store: leftovers of uncommitted epochs stop no job.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from programs.running_totals import expected, totals
from stores.watched_store import WatchedStore

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import named_files
from millstream.common import Configuration
from millstream.common.restart_strategy import RestartStrategies
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreError
from millstream.jobs.launch import launch as launching
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.tier import tiered_store, uploads
from millstream.storage.tier.tiered_store import TierSettings
from millstream.testing import Collect, ManualClock

END = 30
_STORES = itertools.count()
DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: b"\0" * len(data),
}


class CutStore(WatchedStore):
    """Loses power after this many writes."""

    def __init__(self, name: str, writes: int) -> None:
        super().__init__(name)
        self._writes_left = writes
        self.is_cut = threading.Event()

    def before_write(self) -> None:
        self._writes_left -= 1
        if self._writes_left < 0:
            self.is_cut.set()
            raise StoreError("the power is gone.")


@pytest.fixture
def tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the machine's tier."""
    monkeypatch.setattr(launching, "tier_settings", lambda *_: TierSettings(str(tmp_path / "tier")))
    monkeypatch.setattr(uploads, "_IDLE_S", 0.01)
    monkeypatch.setattr(uploads, "_ADOPTION_INTERVAL_S", 0.0)
    yield tmp_path / "tier"
    end_processes()


def end_processes() -> None:
    """All processes that used the tier so far are dead."""
    for store in tiered_store._STORES._used.values():
        for name in store.uploads.pending:
            store.uploads.withdraw(name)
    for opened in tiered_store._TIERS.values():
        if opened is not None:
            opened.close()
    tiered_store._STORES = tiered_store._Stores()
    tiered_store._TIERS.clear()


def prepared(store: MemoryStore, out: Collect, ahead_epochs: int) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration().set_string("millstream.ahead.max-epochs", str(ahead_epochs)))
    env.set_restart_strategy(RestartStrategies.no_restart())
    totals(out, end=END)(env)
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())


def is_cut(store: CutStore, out: Collect, ahead_epochs: int) -> bool:
    """Run the job until the power cut; False if it ends before."""
    with suppress(StoreError):
        job = prepared(store, out, ahead_epochs)
        job.start()
        while not store.is_cut.wait(0.01) and not job.wait(0):
            pass
        job.cancel()
        assert job.wait(60), "it does not end"
    return store.is_cut.is_set()


def run(store: MemoryStore, out: Collect, ahead_epochs: int) -> None:
    job = prepared(store, out, ahead_epochs)
    job.start()
    try:
        assert job.wait(60), "the job stands still"
        job.result()
    finally:
        job.cancel()


def lose_power(store: MemoryStore, tier: Path, damage: Callable[[bytes], bytes | None]) -> None:
    """Damage all files that no manifest references."""
    log = ManifestLog(store)
    named = {name for epoch in log.epochs() for name in named_files(log.read(epoch))}
    for name in [name for folder in ("segments", "staged", "specs") for name in store.list(folder)]:
        if name not in named:
            data = damage(store.get(name))
            store.delete(name)
            if data is not None:
                store.put(name, data)
    end_processes()
    for path in [path for folder in ("processes", "stores") for path in (tier / folder).rglob("*") if path.is_file()]:
        data = damage(path.read_bytes())
        path.unlink()
        if data is not None:
            path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ahead_epochs", [0, 3], ids=["in step", "ahead"])
def test_a_power_cut_at_any_write_loses_only_uncommitted_epochs(
    damage: str, ahead_epochs: int, tier: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for writes in itertools.count():
        name, out = f"power-{next(_STORES)}", Collect()
        if not is_cut(CutStore(name, writes), out, ahead_epochs):
            break
        lose_power(MemoryStore(name), tier, DAMAGE[damage])
        run(MemoryStore(name), out, ahead_epochs)
        assert sorted(out.values) == expected(end=END), f"cut after {writes} writes"
        end_processes()
    assert writes > 10
