"""Collection under fire: a job at full speed that keeps three epochs and sweeps after every other one, while readers,
savepoints and forks open whatever epoch they find.

Whoever gets hold of an epoch finds it whole and right as long as it holds it; whoever comes too late is told so. When
all is over and an hour has passed, nothing is left that no epoch names. `MILLSTREAM_KILL_SEEDS` says how many seeds (8
by default, `make chaos SEEDS=50` for more), `MILLSTREAM_KILL_FIRST_SEED` where to begin.
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
    """How many numbers an epoch and those before it have read. The script's marks are items too."""
    items = manifest.sources["numbers"]["script-0"].offset
    assert isinstance(items, int)
    return items - items // (PER_EPOCH + 1)


class Visitors:
    """Those who come while the job runs, each in a thread of its own, with what went wrong."""

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
            threading.Thread(target=self._come_again, args=(name, visit), name=f"visitor-{name}")
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

    def _come_again(self, name: str, visit: Callable[[random.Random, int], None]) -> None:
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
        """The state of an epoch is that of the numbers it has read."""
        reader = JobReader(open_job_store(url), SnapshotName(url), now_ms=self.clock.now_ms)
        with reader.at(epoch=epoch) as snapshot:
            found = sum(snapshot.read("totals", "total").to_arrow().read_all().column("value").to_pylist())
            assert found == sum(range(numbers_read(snapshot.manifest)))

    def _read(self, rng: random.Random, epoch: int) -> None:
        self._check_totals(self.store.url, epoch)

    def _hold(self, rng: random.Random, epoch: int) -> None:
        """Some forget to close what they hold."""
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
        """A fork, run for some epochs beside the job, or to its end."""
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
    """What attempts that lost leave behind: files of epochs that are past, under names of their own."""
    for name in (*store.list("segments"), *store.list("staged")):
        if rng.random() < 0.1:
            store.put(re.sub(r"-[0-9a-z]+(\.arrow|-\d{5}\.pickle)$", r"-lost\1", name), b"lost")


def named_by_epochs(store: Store) -> set[str]:
    log = ManifestLog(store)
    return {name for epoch in log.epochs() for name in named_files(log.read(epoch))}


def run_under_fire(store: Store, seed: int, patch: pytest.MonkeyPatch) -> Visitors:
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
    # An hour later the job is started once more. It has nothing to do, but it tidies up.
    clock.advance(HOUR_MS)
    make_older(store, "leases", HOUR_MS)
    prepared(store, clock, Collect()).start().result()
    return visitors


def check_nothing_is_left_over(store: Store) -> None:
    """The newest epochs and those that are kept, whole; and nothing that they do not name."""
    log = ManifestLog(store)
    epochs, pinned = log.epochs(), {pin.epoch for pin in pins_of(store)}
    assert set(epochs) == pinned | set(epochs[-KEPT:]) and len(epochs) >= KEPT
    left = {*store.list("segments"), *store.list("staged")}
    named = named_by_epochs(store)
    assert left == named, f"orphans: {sorted(left - named)[:5]}; missing: {sorted(named - left)[:5]}"
    assert not leases_of(store) and not store.list("control") and not store.exists(leaving_name())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_nobody_loses_an_epoch_under_their_feet_and_nothing_is_left_behind(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Store = MemoryStore(f"fire-{next(_STORES)}") if kind == "memory" else LocalStore(tmp_path, fsync=False)
    run_under_fire(store, seed, monkeypatch)
    check_nothing_is_left_over(store)
