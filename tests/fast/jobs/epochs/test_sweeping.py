"""Sweeping: concurrently with the job, in few calls, a bounded amount at a time."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod

import pytest

from millstream.checkpoint.job_record import claim
from millstream.checkpoint.manifest import Manifest, ManifestLog, encode
from millstream.checkpoint.manifest_bytes import to_text
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.sealed import seal
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.epochs import sweeper as sweeping
from millstream.jobs.epochs.sweeper import BackgroundSweeper, Sweeper
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state_reader.verifying import verify
from millstream.storage.memory import MemoryStore
from millstream.storage.names import REMOVALS, leaving_name, manifest_name, segment_name
from millstream.storage.store import Names, Store
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()


def new_name() -> str:
    return f"sweeping-{next(_STORES)}"


def prepare_job(store: Store, out: Collect, epochs: int) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration().set_integer("millstream.retention.epochs", 2))
    items = [item for n in range(epochs) for item in (n, EPOCH)]
    numbers = env.add_source(Script(items, type_info=Types.LONG())).uid("in")
    numbers.key_by(lambda n: n % 3, Types.LONG()).reduce(lambda a, b: a + b).uid("sum").sink_to(out).uid("out")
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("sweeping"), env._job_settings())


@pytest.fixture(autouse=True)
def sweep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweeper, "__init__", partialmethod(Sweeper.__init__, every_epochs=4))


class BlockedStore(MemoryStore):
    """A store in which no file can be removed until released."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.free, self.waits = threading.Event(), threading.Event()

    def delete_many(self, names: Sequence[str]) -> None:
        if names:
            self.waits.set()
            assert self.free.wait(60)
        super().delete_many(names)


def test_neither_epochs_nor_publishing_are_blocked_by_the_sweeper() -> None:
    store, out, all_published = BlockedStore(new_name()), Collect(), threading.Event()
    job = prepare_job(store, out, 30)
    # The last epoch is committed and published while the first pass is still at its first removal.
    job.board.listen(lambda progress: all_published.set() if progress.published >= 30 else None)
    job.start()
    assert store.waits.wait(60) and all_published.wait(60)
    assert len(ManifestLog(store).epochs()) >= 30
    store.free.set()
    job.result()
    assert len(out.values) == 30
    # The end waited for the requested sweep: the store is swept as of the last due sweep.
    assert len(ManifestLog(store).epochs()) <= 2 + 4


class CountingStore(MemoryStore):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[str] = []

    def get(self, name: str) -> bytes:
        self.calls.append(f"get {name}")
        return super().get(name)

    def list(self, prefix: str) -> Names:
        self.calls.append(f"list {prefix}")
        return super().list(prefix)

    def delete_many(self, names: Sequence[str]) -> None:
        self.calls.append(f"delete {len(names)}")
        with self._shelf.lock:
            for name in names:
                self._shelf.files.pop(name, None)


def unswept_store(monkeypatch: pytest.MonkeyPatch, epochs: int) -> str:
    """The store of a job that was never swept."""
    name = new_name()
    with monkeypatch.context() as patch:
        patch.setattr(Sweeper, "sweep", lambda *_: False)
        prepare_job(MemoryStore(name), Collect(), epochs).start().result()
    assert len(ManifestLog(MemoryStore(name)).epochs()) == epochs + 1
    return name


@pytest.mark.slow
def test_a_pass_makes_few_calls_however_many_files_it_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for epochs in (20, 80):
        store = CountingStore(unswept_store(monkeypatch, epochs))
        newest = ManifestLog(store).newest()
        store.calls.clear()
        assert not Sweeper(store, lambda: 0, RetentionPolicy(2)).sweep(newest)
        assert ManifestLog(store).epochs() == [epochs, epochs + 1]
        calls.append([call for call in store.calls if not call.startswith("get manifests")])
    assert len(calls[0]) == len(calls[1]) < 25


def test_a_pass_is_bounded_and_the_next_one_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_FILES_MAX", 5)
    monkeypatch.setattr(sweeping, "_EPOCHS_MAX", 4)
    store = MemoryStore(unswept_store(monkeypatch, 20))
    log = ManifestLog(store)
    newest, there = log.newest(), len(log.epochs())
    sweeper = Sweeper(store, lambda: 0, RetentionPolicy(2))
    assert sweeper.sweep(newest)
    assert 2 < len(log.epochs()) < there
    background = BackgroundSweeper(sweeper)
    background.sweep(newest)
    while len(log.epochs()) > 2 or len(store.list("segments")) > len(named_by_manifests(store)):
        threading.Event().wait(0.001)
    background.close()
    assert set(store.list("segments")) == named_by_manifests(store)


def named_by_manifests(store: MemoryStore) -> set[str]:
    log = ManifestLog(store)
    return {file for epoch in log.epochs() for file in named_files(log.read(epoch)) if file.startswith("segments")}


def test_no_sweep_runs_after_the_end() -> None:
    store = MemoryStore(new_name())
    prepare_job(store, Collect(), 6).start().result()
    newest, before = ManifestLog(store).newest(), store.list("")
    background = BackgroundSweeper(Sweeper(store, lambda: 0, RetentionPolicy(1)))
    background.close()
    background.sweep(newest)
    assert store.list("") == before


def test_manifests_set_aside_by_an_older_version_are_restored_packed_or_not() -> None:
    store = MemoryStore(new_name())
    claim(store, "job", job_id="id", now_ms=0)
    log, draw = ManifestLog(store), random.Random(1)
    states = {f"operator-{number}": {"file": f"{draw.getrandbits(128):x}"} for number in range(2_000)}
    manifests = [Manifest("job", "id", n, n - 1, 0, "run", published_through=n - 1, states=states) for n in range(1, 6)]
    assert all(map(log.commit, manifests))
    assert not store.get(manifest_name(1)).isascii(), "the manifest is not packed, so the test shows nothing"
    set_aside(store, manifests[:3])
    assert log.epochs() == [4, 5] and verify(store.url).problems == ()
    Sweeper(store, lambda: 0, RetentionPolicy(keep_last=4)).sweep(manifests[-1])
    assert [log.read(epoch) for epoch in log.epochs()] == manifests[1:]
    Sweeper(store, lambda: 0, RetentionPolicy(keep_last=1)).sweep(manifests[-1])
    assert log.epochs() == [5] and not store.exists(leaving_name())


def set_aside(store: Store, manifests: Sequence[Manifest]) -> None:
    """As by a sweeper of an older version that died before it restored pinned manifests."""
    texts = {str(manifest.epoch): to_text(encode(manifest)) for manifest in manifests}
    store.put(leaving_name(), seal("leaving", 1, {"manifests": texts}))
    store.delete_many([manifest_name(manifest.epoch) for manifest in manifests])


def test_files_of_epochs_committed_together_are_retained_while_their_manifest_is_unreadable() -> None:
    """The last of them wrote under the number of the next epoch. Restored from a copy, the manifest is complete
    again.
    """
    store = MemoryStore(new_name())
    log = ManifestLog(store)
    manifests = [
        Manifest("job", "id", epoch, epoch - 1, 0, "run", published_through=epoch - 1) for epoch in range(1, 7)
    ]
    assert all(map(log.commit, manifests))
    files = [segment_name("sum", "total", epoch, 0, "a") for epoch in range(1, 6)]
    for file in files:
        store.put(file, b"rows")
    store.put(manifest_name(2), b"{")
    Sweeper(store, lambda: 0).sweep(manifests[-1])
    assert store.list("segments") == files[:3]


def test_a_removal_decided_by_a_dead_sweeper_spares_the_epochs_of_the_next_job() -> None:
    """A job is cancelled and its epochs are removed; the sweeper dies afterwards. The next job uses their numbers
    again.
    """
    store = MemoryStore(aged_name := new_name())
    prepare_job(store, Collect(), 3).start().result()
    dying = DyingStore(aged_name)
    with pytest.raises(RuntimeError, match="killed"):
        Sweeper(dying, lambda: 0).clear()
    assert ManifestLog(store).epochs() == [] and store.list_after("manifests", REMOVALS)
    job, out = prepare_job(store, Collect(), 3), Collect()
    assert not store.list_after("manifests", REMOVALS)
    job.start().result()
    prepare_job(store, out, 4).start().result()
    assert ManifestLog(store).epochs()[-1] == 4 and verify(store.url).is_whole


class DyingStore(MemoryStore):
    """A store whose sweeper dies before it withdraws its announcement."""

    def delete_many(self, names: Sequence[str]) -> None:
        if any(name.startswith(REMOVALS) for name in names):
            raise RuntimeError("killed")
        super().delete_many(names)


def test_an_epoch_committed_while_a_command_sweeps_retains_its_files() -> None:
    """The driver starts, commits and ends between the listing of manifests and that of files: no driver holds the
    lease.
    """
    store = BusyStore(new_name())
    newest = committed(store)
    store.during_listing = iter([lambda: committed(store)])
    Sweeper(store, lambda: 0, RetentionPolicy(1 << 40)).sweep_once(newest, lambda: True)
    assert ManifestLog(store).epochs() == [1, 2]
    assert set(store.list("segments")) == named_by_manifests(store) and len(named_by_manifests(store)) == 2


class BusyStore(MemoryStore):
    """Runs an action concurrently with the first listing of segments."""

    during_listing: Iterator[Callable[[], object]] = iter(())

    def list(self, prefix: str) -> Names:
        if prefix == "segments":
            next(self.during_listing, lambda: None)()
        return super().list(prefix)


def committed(store: Store) -> Manifest:
    """The next epoch, with its own segment."""
    epoch = len(ManifestLog(store).epochs()) + 1
    segment = segment_name("sum", "total", epoch, 0, "a1")
    store.put(segment, b"rows")
    manifest = Manifest("job", "j1", epoch, epoch - 1, 0, "a1", states={"sum": [segment]})
    assert ManifestLog(store).commit(manifest)
    return manifest


def test_a_sweep_ignores_foreign_files_in_a_store_without_epochs() -> None:
    store = MemoryStore(new_name())
    store.put("segments/notes.txt", b"mine")
    store.put(segment_name("sum", "total", 1, 0, "lost"), b"rows")
    Sweeper(store, lambda: 0).sweep_once(None, lambda: True)
    assert store.list("") == ["segments/notes.txt"]


def test_a_sweep_is_due_after_a_number_of_written_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_EVERY_BYTES", 1)
    monkeypatch.setattr(Sweeper, "__init__", partialmethod(Sweeper.__init__, every_epochs=1_000))
    swept: list[Manifest | None] = []
    monkeypatch.setattr(Sweeper, "sweep", lambda self, newest: swept.append(newest))
    prepare_job(MemoryStore(new_name()), Collect(), 3).start().result()
    assert len(swept) > 1
