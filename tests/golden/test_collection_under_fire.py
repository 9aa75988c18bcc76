"""Garbage collection under load: a job at full speed retains three epochs and collects after every other one, while
readers, savepoints and forks open any epoch they list.

An epoch is complete and correct as long as a client holds it; a client that is too late gets an error. After the run
and an hour, no file remains that no epoch references. `MILLSTREAM_KILL_SEEDS` sets the number of seeds (8 by default,
`make chaos SEEDS=50` for more), `MILLSTREAM_KILL_FIRST_SEED` the first one.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from stores.stored_leases import leases_of
from stores.watched_store import make_older

from millstream.checkpoint.leases import LeasedEpoch
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of, unpin
from millstream.checkpoint.retention import named_files
from millstream.checkpoint.savepoints import open_job_store
from millstream.checkpoint.snapshot_names import SnapshotName
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import StoreError
from millstream.jobs.epochs import driver
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.snapshots.saving import save_epoch
from millstream.runtime.task.local import LocalRunner
from millstream.state_reader.job_reader import JobReader
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import leaving_name
from millstream.storage.store import Store
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
FIRST = int(os.environ.get("MILLSTREAM_KILL_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("MILLSTREAM_KILL_SEEDS", "8")))

EPOCHS, PER_EPOCH, KEYS, KEPT = 30, 12, 5, 3
HOUR_MS = 3_600_000
NUMBERS = [item for epoch in range(EPOCHS) for item in (*range(epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH), EPOCH)]
TOO_LATE = re.compile(r"has no epoch \d+")


class Total(KeyedProcessFunction):
    """The sum of a key's numbers, and a timer, so that there are two tables."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + value)
        ctx.timer_service().register_event_time_timer(10**9)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.total.value()


ANSWER = [(key, sum(range(key, EPOCHS * PER_EPOCH, KEYS))) for key in range(KEYS)]


def prepared(store: Store, clock: ManualClock, out: Collect, path: str | None = None) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = Configuration().set_integer("millstream.retention.epochs", KEPT)
    if path is not None:
        settings.set_string("execution.state-recovery.path", path)
    env.configure(settings)
    numbers = env.add_source(Script(NUMBERS, type_info=Types.LONG())).uid("numbers")
    numbers.key_by(lambda n: n % KEYS, Types.LONG()).process(Total()).uid("totals").sink_to(out).uid("out")
    return Launch(clock, LocalRunner(), store).prepare(env._graph("fire"), env._job_settings())


def numbers_read(manifest: Manifest) -> int:
    """How many numbers the epochs up to this one have read. The script's marks are items too."""
    items = manifest.sources["numbers"]["script-0"].offset
    assert isinstance(items, int)
    return items - items // (PER_EPOCH + 1)


class Visitors:
    """Clients that access the store while the job runs, each in a thread, and their failures."""

    def __init__(self, store: Store, clock: ManualClock, seed: int) -> None:
        self.store, self.clock, self.seed = store, clock, seed
        self.wrong: list[str] = []
        self.visits: dict[str, int] = {}
        self._over = threading.Event()
        visits: Mapping[str, Callable[[random.Random, int], None]] = {
            "read": self._read,
            "hold": self._hold,
            "keep": self._keep,
            "copy": self._copy,
            "fork": self._fork,
        }
        self._threads = [
            threading.Thread(target=self._revisit, args=(name, visit), name=f"visitor-{name}")
            for name, visit in visits.items()
        ]

    def __enter__(self) -> Visitors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _revisit(self, name: str, visit: Callable[[random.Random, int], None]) -> None:
        rng = random.Random(f"{name} {self.seed}")
        while not self._over.is_set():
            epochs = ManifestLog(self.store).epochs()
            if not epochs:
                continue
            epoch = rng.choice(epochs)
            try:
                visit(rng, epoch)
                self.visits[name] = self.visits.get(name, 0) + 1
            except StoreError as error:
                if not TOO_LATE.search(str(error)):
                    self.wrong.append(f"{name} epoch {epoch}: {type(error).__name__}: {error}")
            except Exception as error:
                self.wrong.append(f"{name} epoch {epoch}: {type(error).__name__}: {error}")
            self._over.wait(rng.random() / 100)

    def _check(self, store: Store, manifest: Manifest) -> None:
        for name in named_files(manifest):
            store.get(name)

    def _check_totals(self, url: str, epoch: int) -> None:
        """The state of an epoch matches the numbers it has read."""
        reader = JobReader(open_job_store(url), SnapshotName(url), now_ms=self.clock.now_ms)
        with reader.at(epoch=epoch) as snapshot:
            found = sum(snapshot.read("totals", "total").to_arrow().read_all().column("value").to_pylist())
            assert found == sum(range(numbers_read(snapshot.manifest)))

    def _read(self, rng: random.Random, epoch: int) -> None:
        self._check_totals(self.store.url, epoch)

    def _hold(self, rng: random.Random, epoch: int) -> None:
        """Some clients never close what they hold."""
        leased = LeasedEpoch(self.store, epoch, self.clock.now_ms)
        time.sleep(rng.random() / 50)
        self._check(self.store, leased.manifest)
        if rng.random() < 0.8:
            leased.close()

    def _keep(self, rng: random.Random, epoch: int) -> None:
        name = f"kept-{rng.randrange(10**9)}"
        manifest = pin_epoch(self.store, Pin(name, epoch, "savepoint", self.clock.now_ms()))
        time.sleep(rng.random() / 50)
        self._check(self.store, manifest)
        if rng.random() < 0.9:
            unpin(self.store, name)

    def _copy(self, rng: random.Random, epoch: int) -> None:
        folder = f"memory://fire-copies-{next(_STORES)}"
        self._check_totals(save_epoch(self.store, epoch, self.clock.now_ms, to=folder, name="copy"), epoch)

    def _fork(self, rng: random.Random, epoch: int) -> None:
        """A fork, run for some epochs concurrently with the job, or to its end."""
        out, own = Collect(), MemoryStore(f"fire-forks-{next(_STORES)}")
        job = prepared(own, ManualClock(), out, f"{self.store.url}@{epoch}")
        until = epoch + rng.randrange(2, 6)

        def look(progress: JobProgress) -> None:
            if progress.epoch >= until:
                job.stop()

        job.board.listen(look)
        job.start().result()
        newest = ManifestLog(own).newest()
        assert newest is not None
        self._check_totals(own.url, newest.epoch)


def plant_orphans(store: Store, rng: random.Random) -> None:
    """What losing attempts leave: files of past epochs, under names of their own."""
    for name in (*store.list("segments"), *store.list("staged")):
        if rng.random() < 0.1:
            store.put(re.sub(r"-[0-9a-z]+(\.arrow|-\d{5}\.pickle)$", r"-lost\1", name), b"lost")


def named_by_epochs(store: Store) -> set[str]:
    log = ManifestLog(store)
    return {name for epoch in log.epochs() for name in named_files(log.read(epoch))}


def run_with_visitors(store: Store, seed: int, patch: pytest.MonkeyPatch) -> Visitors:
    patch.setattr(driver, "Sweeper", functools.partial(Sweeper, every_epochs=2))
    clock, out, rng = ManualClock(), Collect(), random.Random(seed)
    job = prepared(store, clock, out)

    def look(progress: JobProgress) -> None:
        clock.advance(100)
        if rng.random() < 0.3:
            plant_orphans(store, rng)

    job.board.listen(look)
    with Visitors(store, clock, seed) as visitors:
        job.start().result()
    assert sorted(out.values) == ANSWER
    assert not visitors.wrong, "\n".join(visitors.wrong)
    # An hour later the job is started once more. It has no input left, but it collects.
    clock.advance(HOUR_MS)
    make_older(store, "leases", HOUR_MS)
    prepared(store, clock, Collect()).start().result()
    return visitors


def check_nothing_is_left_over(store: Store) -> None:
    """The newest epochs and the pinned ones are complete, and no unreferenced file remains."""
    log = ManifestLog(store)
    epochs, pinned = log.epochs(), {pin.epoch for pin in pins_of(store)}
    assert set(epochs) == pinned | set(epochs[-KEPT:]) and len(epochs) >= KEPT
    left = {*store.list("segments"), *store.list("staged")}
    named = named_by_epochs(store)
    assert left == named, f"orphans: {sorted(left - named)[:5]}; missing: {sorted(named - left)[:5]}"
    assert not leases_of(store) and not store.list("control") and not store.exists(leaving_name())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_held_epochs_survive_collection_and_no_unreferenced_file_remains(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Store = MemoryStore(f"fire-{next(_STORES)}") if kind == "memory" else LocalStore(tmp_path, fsync=False)
    run_with_visitors(store, seed, monkeypatch)
    check_nothing_is_left_over(store)
