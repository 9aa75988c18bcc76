"""Snapshots that cannot be restored, savepoints that cannot be written, and conflicts between drivers and sweepers:
each a clear error without data loss.
"""

from __future__ import annotations

import itertools
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from stores.watched_store import WatchedStore

from millstream.checkpoint.leases import LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of, unpin
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, Types
from millstream.common.job_client import JobClient
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import FencedError, JobFailedError, MillstreamError, ProgramError, StoreDamagedError, StoreError
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import epoch_of_manifest, manifest_name
from millstream.storage.store import Store
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
NUMBERS = [n for ten in range(6) for n in (*range(ten * 10, ten * 10 + 10), EPOCH)]
PADDING = "x" * 200  # makes segments large enough to be truncated


class Total(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.STRING()))

    def process_element(self, value: int, ctx: Any) -> Any:
        total = int((self.total.value() or "0").removesuffix(PADDING)) + value
        self.total.update(f"{total}{PADDING}")
        yield ctx.get_current_key(), total


def expected(start: int = 0) -> list[tuple[int, int]]:
    """The running totals of a job that starts with the number `start`, including all earlier numbers."""
    return sorted((n % 3, sum(range(n % 3, n + 1, 3))) for n in range(start, 60))


def new_store() -> MemoryStore:
    return MemoryStore(f"refusals-{next(_STORES)}")


def prepare_job(store: Store, out: Collect, path: str | None = None, parallelism: int = 1) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    if path is not None:
        env.configure(Configuration().set_string("execution.state-recovery.path", path))
    numbers = env.add_source(Script(NUMBERS, type_info=Types.LONG())).uid("numbers")
    numbers.key_by(lambda n: n % 3, Types.LONG()).process(Total()).uid("totals").sink_to(out).uid("out")
    return Launch(ManualClock(), LocalRunner(), store, is_leased=False).prepare(env._graph("job"), env._job_settings())


def stopped_store(epochs: int = 4) -> MemoryStore:
    """A store in which the job was stopped after this number of epochs."""
    store = new_store()
    job = prepare_job(store, Collect())
    at_epoch(job, epochs, job.stop)
    job.start().result()
    return store


def at_epoch(job: Job, epoch: int, act: Callable[[], object]) -> None:
    done: list[bool] = []

    def check_epoch(progress: JobProgress) -> None:
        if progress.epoch == epoch and not done:
            done.append(True)
            act()

    job.board.listen(check_epoch)


def savepoint_of(store: MemoryStore, epoch: int) -> MemoryStore:
    copy = new_store()
    copy_savepoint(find_snapshot(parse_snapshot_name(f"{store.url}@{epoch}")), copy)
    return copy


# --- damaged snapshots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-3] + b"?!?"]
)
def test_a_partially_copied_file_stops_the_job_and_copying_it_again_repairs_it(
    damage: Callable[[bytes], bytes],
) -> None:
    copy, new, out = savepoint_of(stopped_store(), 2), new_store(), Collect()
    file = copy.list("segments")[-1]
    whole = copy.get(file)
    copy.put(file, damage(whole))
    with pytest.raises(MillstreamError, match=r"StoreDamagedError: .*\.arrow"):
        prepare_job(new, Collect(), copy.url).start().result()
    copy.put(file, whole)
    prepare_job(new, out).start().result()
    assert sorted(out.values) == expected(20)


def test_a_savepoint_with_a_truncated_manifest_is_rejected_before_the_store_is_claimed() -> None:
    copy, new = savepoint_of(stopped_store(), 2), new_store()
    copy.put(manifest_name(2), copy.get(manifest_name(2))[:-40])
    with pytest.raises(StoreDamagedError, match=r"manifests/0+2\.json"):
        prepare_job(new, Collect(), copy.url)
    assert not new.list("")


@pytest.mark.parametrize("kind", ["savepoint", "manifest"])
def test_a_savepoint_of_a_newer_format_advises_an_upgrade(kind: str) -> None:
    copy, new = savepoint_of(stopped_store(), 2), new_store()
    name = manifest_name(2) if kind == "manifest" else "savepoint.json"
    copy.put(name, f'{{\n "format": "millstream-{kind}-99",\n "seal": 1}}'.encode())
    with pytest.raises(StoreDamagedError, match=r"newer Millstream.*Upgrade Millstream"):
        prepare_job(new, Collect(), copy.url)
    assert not new.list("")


def test_a_savepoint_has_one_epoch() -> None:
    copy = savepoint_of(stopped_store(), 2)
    with pytest.raises(StoreError, match="is a savepoint of epoch 2; it has no 3"):
        prepare_job(new_store(), Collect(), f"{copy.url}@3")


def test_a_job_started_from_a_savepoint_is_not_a_savepoint_itself() -> None:
    copy, new = savepoint_of(stopped_store(), 2), new_store()
    prepare_job(new, Collect(), copy.url).start().result()
    snapshot = find_snapshot(parse_snapshot_name(new.url))
    assert not snapshot.is_savepoint and snapshot.manifest.epoch > 5
    assert find_snapshot(parse_snapshot_name(f"{new.url}@5")).manifest.epoch == 5


def test_more_tasks_than_key_groups_are_rejected_and_the_store_is_unchanged() -> None:
    store, new = stopped_store(), new_store()
    with pytest.raises(ProgramError, match=r"129.*128"):
        prepare_job(new, Collect(), f"{store.url}@2", parallelism=129)
    assert not new.list("") and not pins_of(store)


# --- savepoints that cannot be written ------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system rejects files larger than `size` bytes, as with a quota or a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_fails_the_savepoint_and_not_the_job(tmp_path: Path) -> None:
    out, store = Collect(), new_store()
    job, futures = prepare_job(store, out), []
    at_epoch(job, 3, lambda: futures.append(JobClient(job).trigger_savepoint(str(tmp_path / "full"))))
    with files_of_at_most(512):
        job.start().result()
        with pytest.raises((MillstreamError, OSError), match=r"(?i)too large|full"):
            futures[0].result()
    assert sorted(out.values) == expected()
    # A partial savepoint is never taken for a complete one, and with free space the same folder is accepted again.
    for folder in (tmp_path / "full").iterdir():
        with pytest.raises(StoreError, match=r"neither a job nor a savepoint|not copied whole"):
            find_snapshot(parse_snapshot_name(str(folder)))
    path = JobClient(job).trigger_savepoint(str(tmp_path / "full")).result()
    assert find_snapshot(parse_snapshot_name(path)).is_savepoint


# --- two drivers ----------------------------------------------------------------------------------------------


class InterruptedStore(WatchedStore):
    """Runs an action before its n-th write. Writes of the sweeper's thread do not count: the driver would continue
    while the action runs.
    """

    def __init__(self, name: str, moment: int, act: Callable[[], object]) -> None:
        super().__init__(name)
        self._left, self._act = moment, act

    def before_write(self) -> None:
        if threading.current_thread().name.startswith("millstream-sweep"):
            return
        self._left -= 1
        if self._left == -1:
            self._act()


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its store", "in a new store"])
@pytest.mark.parametrize("moment", range(5))
def test_of_two_drivers_that_restore_one_job_one_is_refused(moment: int, elsewhere: bool) -> None:
    """The second one starts, and does all its work, just before the first one's n-th write. In one store these are a
    lease, the manifest of the rollback, the release of the lease, the record of how the last run ended, and a segment.
    """
    store, outs = stopped_store(), [Collect(), Collect()]
    own = new_store() if elsewhere else store
    path, name = f"{store.url}@2", own.url.removeprefix("memory://")
    refused: list[MillstreamError] = []

    def start(own: MemoryStore, out: Collect) -> None:
        try:
            prepare_job(own, out, path).start().result()
        except (FencedError, StoreError) as error:
            refused.append(error)

    start(InterruptedStore(name, moment, lambda: start(MemoryStore(name), outs[1])), outs[0])
    # A driver that committed before the other one started sees, when it continues, that all work is done.
    assert len(refused) == 1 or (moment in (2, 3) and not elsewhere)
    assert all("another driver" in str(error) or "already has epochs" in str(error) for error in refused)
    assert sorted([sorted(out.values) for out in outs]) == [[], expected(20)]
    assert len(pins_of(store)) == elsewhere


def test_of_drivers_that_race_for_one_restore_one_wins() -> None:
    store, own = stopped_store(), new_store()
    start, outs, errors = threading.Barrier(3), [Collect() for _ in range(3)], []

    def race(out: Collect) -> None:
        start.wait()
        try:
            prepare_job(MemoryStore(own.url.removeprefix("memory://")), out, f"{store.url}@2").start().result()
        except (FencedError, StoreError) as error:
            errors.append(error)

    threads = [threading.Thread(target=race, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2
    # A loser may have started late enough to publish again epochs that the winner committed: the same, one by one.
    epochs = {epoch: out for out in outs for epoch in out.publications}
    assert sorted(r.value for epoch, out in epochs.items() for r in out.records if r.epoch == epoch) == expected(20)
    assert len(pins_of(store)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(8))
def test_an_epoch_being_restored_is_not_swept(moment: int) -> None:
    """A driver that still runs sweeps all it may, just before the n-th write of the one that rolls back."""
    store, out = stopped_store(), Collect()
    name, newest = store.url.removeprefix("memory://"), ManifestLog(store).newest()

    def sweep() -> None:
        Sweeper(MemoryStore(name), lambda: 0, RetentionPolicy(1)).sweep(newest)

    try:
        prepare_job(InterruptedStore(name, moment, sweep), out, f"{store.url}@2").start().result()
    except StoreError as error:
        assert "has no epoch 2 any more" in str(error) and not out.values
    else:
        assert sorted(out.values) == expected(20)
    assert not store.list("leases")


# --- sweepers and their races ---------------------------------------------------------------------------------


class VanishingManifestStore(MemoryStore):
    """A manifest that the sweeper has removed when it is read, and then restores, or does not."""

    def __init__(self, name: str, is_restored: bool) -> None:
        super().__init__(name)
        self._is_restored, self._reads = is_restored, 0

    def get(self, name: str) -> bytes:
        if epoch_of_manifest(name) != 2:
            return super().get(name)
        self._reads += 1
        if self._reads == 1:
            data = super().get(name)
            self.delete(name)
            try:
                return super().get(name)
            finally:
                if self._is_restored:
                    super().put(name, data)
        return super().get(name)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("way", ["lease", "pin"])
def test_an_epoch_removed_while_it_is_opened_is_missing_or_complete(way: str, is_restored: bool) -> None:
    store = VanishingManifestStore(stopped_store().url.removeprefix("memory://"), is_restored)

    def open_it() -> int:
        if way == "pin":
            return pin_epoch(store, Pin("kept", 2, "savepoint", 0)).epoch
        with LeasedEpoch(store, 2, lambda: 0) as leased:
            return leased.manifest.epoch

    if is_restored:
        assert open_it() == 2
    else:
        with pytest.raises(StoreError, match="has no epoch 2"):
            open_it()
        assert not store.list("pins") and not store.list("leases")


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(6))
def test_a_savepoint_created_while_a_sweeper_dies_is_retained(moment: int) -> None:
    """The pin is set just before the sweeper's n-th write, and the sweeper dies two writes later."""

    class SweeperDied(BaseException):
        pass

    class DyingStore(InterruptedStore):
        def before_write(self) -> None:
            super().before_write()
            if self._left < -3:
                raise SweeperDied

    store = stopped_store(5)
    pinned: list[StoreError | None] = []

    def pin() -> None:
        try:
            pin_epoch(store, Pin("kept", 3, "savepoint", 0))
            pinned.append(None)
        except StoreError as error:
            pinned.append(error)

    dying = DyingStore(store.url.removeprefix("memory://"), moment, pin)
    log = ManifestLog(store)
    newest = log.newest()
    with suppress(SweeperDied):
        Sweeper(dying, lambda: 0, RetentionPolicy(1)).sweep(newest)
    Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    if pinned == [None]:
        assert all(store.exists(name) for name in named_files(log.read(3)))
        assert log.epochs() == [3, 6]
        unpin(store, "kept")
        Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(newest)
    assert log.epochs() == [6]


def test_a_job_that_fails_during_a_restore_leaves_the_snapshot_unchanged() -> None:
    store = stopped_store()
    before = {name: store.get(name) for name in store.list("") if not name.startswith(("pins/", "logs/"))}

    class FullStore(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            raise StoreError("disk full")

    with pytest.raises((JobFailedError, StoreError), match="disk full"):
        prepare_job(FullStore(new_store().url.removeprefix("memory://")), Collect(), f"{store.url}@2").start().result()
    assert {name: store.get(name) for name in before} == before


def test_files_of_killed_writers_are_removed_when_no_writer_can_be_active(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    job = prepare_job(store, Collect())
    job.start().result()
    left = [tmp_path / "segments" / ".tmp-0123", tmp_path / "manifests" / ".tmp-4567", tmp_path / "probe-89ab"]
    for path in left:
        path.write_bytes(b"half")
    made_ms = int(left[0].stat().st_mtime * 1000)
    newest = ManifestLog(store).newest()
    Sweeper(store, lambda: made_ms + 60_000).sweep(newest)
    assert all(path.exists() for path in left)
    Sweeper(store, lambda: made_ms + 3_600_000).sweep(newest)
    assert not any(path.exists() for path in left)
    assert ManifestLog(store).newest() == newest
