"""A store on a full disk: the job frees space itself, and so do a start and a command."""

from __future__ import annotations

import itertools
import threading
from functools import partialmethod

import pytest
from stores.full_store import FullStore, Room

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.savepoints import StoredSnapshot
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreAwayError, StoreFullError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.snapshots.forking import claim_fork
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.names import RemovalName, removal_name, segment_name
from millstream.storage.store import Store
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
EPOCHS, KEYS = 40, 400


def new_name() -> str:
    return f"full-{next(_STORES)}"


def prepare_job(store: Store, out: Collect, epochs: int = EPOCHS) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = Configuration().set_integer("millstream.retention.epochs", 2)
    settings.set_string("restart-strategy.type", "fixed-delay").set_string("restart-strategy.fixed-delay.delay", "1 ms")
    settings.set_string("restart-strategy.fixed-delay.attempts", "1000").set_string("millstream.store.patience", "0 ms")
    env.configure(settings)
    items = [item for epoch in range(epochs) for item in (*range(epoch * KEYS, (epoch + 1) * KEYS), EPOCH)]
    numbers = env.add_source(Script(items, type_info=Types.LONG())).uid("in")
    sums = numbers.key_by(lambda n: n % KEYS, Types.LONG()).reduce(lambda a, b: a + b).uid("sum")
    sums.sink_to(out).uid("out")
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("full"), env._job_settings())


def named_by_manifests(store: Store) -> set[str]:
    log = ManifestLog(store)
    return {name for epoch in log.epochs() for name in named_files(log.read(epoch))}


def stored_files(store: Store) -> set[str]:
    return {*store.list("segments"), *store.list("staged")}


@pytest.mark.slow
def test_a_job_that_writes_more_than_its_disk_holds_frees_space_and_continues() -> None:
    store, out = FullStore(new_name(), Room(200_000)), Collect()
    prepare_job(store, out).start().result()
    assert len(out.values) == len(set(out.values)) == EPOCHS * KEYS
    assert store.room.refusals, "the disk was never full, so the test shows nothing"


def test_files_of_failed_runs_are_swept_before_the_first_commit() -> None:
    """The first epoch fails for lack of space and leaves a file. There is not enough space for that file and the
    epoch.
    """
    store, out = FullStore(new_name(), Room(9_000)), Collect()
    refused = threading.Event()
    job = prepare_job(store, out, epochs=1)
    job.board.listen(lambda progress: refused.set() if progress.last_error else None)
    job.start()
    assert refused.wait(60)
    store.room.free_bytes += 29_000 - 9_000
    job.result()
    assert len(out.values) == KEYS
    prepare_job(store, Collect(), epochs=1).start().result()
    assert stored_files(store) <= named_by_manifests(store)


@pytest.mark.slow
def test_a_temporarily_full_disk_at_any_write_only_delays_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sweeper, "__init__", partialmethod(Sweeper.__init__, every_epochs=2))
    store = FullStore(new_name())
    prepare_job(store, Collect(), epochs=4).start().result()
    for first in range(1, store.room.writes + 1):
        # Claiming a new store, and a failure of the claim, is up to the caller that starts the job.
        store, out = FullStore(new_name(), Room()), Collect()
        job = prepare_job(store, out, epochs=4)
        store.room.full_writes = range(store.room.writes + first, store.room.writes + first + 3)
        job.start().result()
        assert sorted(out.values) == sorted(set(out.values)) and len(out.values) == 4 * KEYS
        store.room.full_writes = range(0)
        prepare_job(store, Collect(), epochs=4).start().result()
        assert stored_files(store) == named_by_manifests(store)


def full(epochs: int = 12) -> FullStore:
    """The store of a job that was never swept, without a free byte."""
    name = new_name()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sweeper, "sweep", lambda *_: False)
        prepare_job(MemoryStore(name), Collect(), epochs).start().result()
    return FullStore(name, Room(0))


def test_a_start_on_a_full_disk_sweeps_before_it_fails() -> None:
    store = full()
    with pytest.raises(StoreFullError):
        store.check_writable()
    prepare_job(store, Collect(), epochs=12).start().result()
    assert ManifestLog(store).epochs() == [12, 13] and stored_files(store) == named_by_manifests(store)


def test_a_start_sweeps_no_store_of_another_job() -> None:
    store = full()
    before = store.list("")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration().set_string("millstream.store.patience", "0 ms"))
    env.add_source(Script([1], type_info=Types.LONG())).sink_to(Collect())
    with pytest.raises(StoreFullError):
        Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("another"), env._job_settings())
    assert store.list("") == before


def test_a_sweep_needs_no_space_and_removes_unreferenced_files_before_epochs() -> None:
    store = full()
    store.room.refusals.clear()
    orphan = segment_name("sum", "total", 1, 0, "lost")
    MemoryStore(store.url.removeprefix("memory://")).put(orphan, b"rows")
    removed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FullStore, "delete", lambda self, name: removed.append(name) or MemoryStore.delete(self, name))
        Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(ManifestLog(store).newest())
    assert store.room.refusals == []
    assert ManifestLog(store).epochs() == [13] and stored_files(store) == named_by_manifests(store)
    assert removed.index(orphan) < min(removed.index(name) for name in removed if name.startswith("manifests/"))


def test_a_savepoint_or_lease_that_fails_for_lack_of_space_pins_nothing() -> None:
    store = full()
    store.room.free_bytes = 1 << 20
    store.put(
        removal_name(RemovalName(3, 5, "a1")), b""
    )  # its sweeper died: the next caller decides against the removal
    for hold in (lambda: pin_epoch(store, Pin("saved", 4, "savepoint", 0)), lambda: LeasedEpoch(store, 4, lambda: 0)):
        store.room.full_writes = range(store.room.writes + 2, store.room.writes + 3)
        with pytest.raises(StoreFullError):
            hold()
        assert store.list("pins") == store.list("leases") == []
    pin_epoch(store, Pin("saved", 4, "savepoint", 0))


def test_a_fork_that_fails_for_lack_of_space_pins_nothing() -> None:
    store = MemoryStore(full().url.removeprefix("memory://"))
    snapshot = StoredSnapshot("saved", store, ManifestLog(store).read(4))
    with pytest.raises(StoreFullError):
        claim_fork(FullStore(new_name(), Room(0)), snapshot, "forked", 0)
    assert store.list("pins") == []
    lost = LostResponse(new_name())
    with pytest.raises(StoreAwayError):
        claim_fork(lost, snapshot, "forked", 0)
    assert read_job_record(lost) is not None and len(store.list("pins")) == 1


class LostResponse(MemoryStore):
    """Performs each write, and its response is lost."""

    def create(self, name: str, data: bytes) -> bool:
        super().create(name, data)
        raise StoreAwayError("no answer")


def test_a_sweep_of_a_full_disk_respects_pins_and_leases() -> None:
    store = full()
    below = MemoryStore(store.url.removeprefix("memory://"))
    pin_epoch(below, Pin("saved", 3, "savepoint", 0))
    held = LeasedEpoch(below, 5, lambda: 0)
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(ManifestLog(store).newest())
    assert ManifestLog(store).epochs() == [3, 5, 13]
    assert stored_files(store) == named_by_manifests(store) and held.manifest == ManifestLog(store).read(5)
