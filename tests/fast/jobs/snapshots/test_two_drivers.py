"""Two drivers of one job, interleaved step by step: in any order, each committed epoch is published once.

A step is a write that another driver can see: a claim, a pin, a lease, a manifest, and a sink's publishing (before it
and before its receipt). The first driver runs to its i-th step, the second one to its j-th, then the first to its end,
then the second. `i` and `j` go through all existing steps. The sweeper's writes are excluded: it runs on its own thread
and decides nothing.

Invariants over the manifests that were created and the output that the sinks published, in the order in which both
happened:

1. one driver has each epoch's manifest, and only its output is published;
2. an epoch is published after all earlier ones, with the rows up to its manifest's positions;
3. a driver that is started to roll back and is not rejected rolls back once, and earlier output stays published;
4. the job ends as FINISHED, and at most one driver is rejected.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from stores.watched_store import WatchedStore
from test_snapshot_refusals import Total, at_epoch

from millstream.checkpoint.manifest import Manifest, ManifestLog, decode
from millstream.checkpoint.pins import pins_of
from millstream.common import Configuration, Types
from millstream.connectors.contracts import CommitId, Json
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import FencedError, MillstreamError, StoreError
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.names import MANIFESTS, RECEIPTS
from millstream.storage.store import Store
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
ROWS, EPOCHS, BEGUN = 3, 4, 2
NUMBERS = [n for part in range(EPOCHS) for n in (*range(part * ROWS, (part + 1) * ROWS), EPOCH)]
RESUME, BACK, FORK = "goes on", "goes back", "begins elsewhere"


@dataclass
class Turns:
    """Lets one driver run at a time: to a step, or to its end."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    left: int | None = 0  # steps that the driver may still take; None: all
    waits: bool = False
    is_done: bool = False

    def step(self) -> None:
        with self.changed:
            if self.left == 0:
                self.waits = True
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: self.left != 0, 60)
                self.waits = False
            if self.left is not None:
                self.left -= 1

    def end(self) -> None:
        with self.changed:
            self.is_done = True
            self.changed.notify_all()

    def run_to(self, steps: int | None) -> bool:
        """Let it take this many more steps; whether it has not ended by then."""
        with self.changed:
            self.left = steps
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.is_done or (self.waits and self.left == 0), 60)
            return not self.is_done


@dataclass
class History:
    """The events of both drivers, in order."""

    manifests: list[Manifest] = field(default_factory=list)
    published: list[tuple[CommitId, tuple[object, ...]]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)


class SteppingStore(WatchedStore):
    """A driver's access to the store: a step precedes each write that the other driver can see."""

    def __init__(self, name: str, driver: Driver) -> None:
        super().__init__(name)
        self._driver = driver

    def before_write(self) -> None:
        pass

    def put(self, name: str, data: bytes) -> None:
        if name.startswith((RECEIPTS, "leases")):
            self._driver.step(f"put {name.split('-')[0]}")
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._driver.step(f"create {name.split('-')[0]}")
        is_created = super().create(name, data)
        if is_created and name.startswith(MANIFESTS):
            self._driver.history.manifests.append(decode(data, name))
        return is_created


class SteppingSink(Collect):
    """Takes a step before it publishes: a driver may be stopped exactly there, after its check for a newer manifest."""

    def __init__(self, driver: Driver | None) -> None:
        super().__init__()
        self._driver = driver

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        assert self._driver is not None
        self._driver.step(f"publish {commit.epoch}")
        super().commit(commit, publish, store)
        values = tuple(sorted(record.value for record in self._commits[commit]))
        self._driver.history.published.append((commit, values))

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_driver": None}


class Driver:
    """One driver on its own thread. `path`: the snapshot it starts from; `ahead`: how many epochs run ahead."""

    def __init__(self, name: str, store: str, path: str | None, history: History, ahead: int) -> None:
        self.name, self.history, self.turns = name, history, Turns()
        self.refusal: MillstreamError | None = None
        self.error: BaseException | None = None
        self._out = SteppingSink(self)
        self._store, self._path, self._ahead = SteppingStore(store, self), path, ahead
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def step(self, what: str) -> None:
        self.turns.step()
        self.history.steps.append(f"{self.name}: {what}")

    def end(self) -> None:
        self.turns.run_to(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            prepare_job(self._store, self._out, self._path, self._ahead).start().result()
        except (FencedError, StoreError) as error:
            self.refusal = error
        except BaseException as error:
            self.error = error
        finally:
            self.turns.end()


def prepare_job(store: Store, out: Collect, path: str | None = None, ahead: int = 0) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    configuration = Configuration().set_string("millstream.ahead.max-epochs", str(ahead))
    if path is not None:
        configuration.set_string("execution.state-recovery.path", path)
    env.configure(configuration)
    numbers = env.add_source(Script(NUMBERS, type_info=Types.LONG())).uid("numbers")
    numbers.key_by(lambda n: n % 2, Types.LONG()).process(Total()).uid("totals").sink_to(out).uid("out")
    return Launch(ManualClock(), LocalRunner(), store, is_leased=False).prepare(env._graph("job"), env._job_settings())


def stopped_store() -> tuple[MemoryStore, History]:
    """A store in which the job was stopped after `BEGUN` epochs, and the events until then."""
    store, history, out = MemoryStore(f"two-drivers-{next(_STORES)}"), History(), Collect()
    job = prepare_job(store, out)
    at_epoch(job, BEGUN, job.stop)
    job.start().result()
    history.manifests += map(ManifestLog(store).read, ManifestLog(store).epochs())
    for commit, records in out._commits.items():
        history.published.append((commit, tuple(sorted(record.value for record in records))))
    return store, history


def rows_between(start: int, end: int) -> tuple[tuple[int, int], ...]:
    """The running totals of the numbers from `start` on, before `end`."""
    return tuple(sorted((n % 2, sum(range(n % 2, n + 1, 2))) for n in range(start, end)))


def position(manifest: Manifest) -> int:
    """How many numbers were read."""
    return sum(ROWS * (n // (ROWS + 1)) for n in map(_offset, manifest.sources["numbers"].values()))


def _offset(split: object) -> int:
    offset = split.offset  # type: ignore[attr-defined]
    assert isinstance(offset, int)
    return offset


def check(history: History, drivers: Sequence[Driver], backs: int) -> None:
    for driver in drivers:
        if driver.error is not None:
            raise driver.error
    refused = [driver.refusal for driver in drivers if driver.refusal is not None]
    assert len(refused) <= 1
    assert all("another driver" in str(error) or "already has epochs" in str(error) for error in refused)
    epochs = [manifest.epoch for manifest in history.manifests]
    assert epochs == [*range(epochs[0], epochs[0] + len(epochs))]
    assert history.manifests[-1].status == "FINISHED"
    outputs: dict[int, tuple[object, ...]] = {}
    for commit, values in history.published:
        assert commit.epoch in outputs or commit.epoch > max(outputs, default=0)
        assert outputs.setdefault(commit.epoch, values) == values
    last, went_back = 0, 0
    for manifest in history.manifests:
        at = position(manifest)
        if manifest.run.startswith("restore"):
            # A driver that continues may commit, too: under a number that no file of epochs running ahead has.
            went_back += at == ROWS
            assert at in (ROWS, last)
        else:
            assert outputs.pop(manifest.epoch, ()) == rows_between(last, at)
        last = at
    assert not outputs
    assert last == ROWS * EPOCHS
    assert 0 <= backs - went_back <= len(refused)


def run_interleaved(ways: tuple[str, str], ahead: int, first_steps: int, second_steps: int) -> tuple[bool, bool]:
    """Run both; whether each was still running when the other one's turn came."""
    store, history = stopped_store()
    own, paths = store, [None if way == RESUME else f"{store.url}@1" for way in ways]
    if FORK in ways:
        own, history = MemoryStore(f"two-drivers-{next(_STORES)}"), History()
    name = own.url.removeprefix("memory://")
    drivers = [Driver(f"driver {n}", name, path, history, ahead) for n, path in enumerate(paths)]
    try:
        is_on_way = drivers[0].turns.run_to(first_steps), drivers[1].turns.run_to(second_steps)
    finally:
        for driver in drivers:
            driver.end()
    try:
        check(history, drivers, 2 - ways.count(RESUME))
        assert len(pins_of(store)) == (own is not store)
    except BaseException as error:
        error.add_note("\n".join(history.steps))
        raise
    return is_on_way


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 2], ids=["in step", "ahead"])
@pytest.mark.parametrize(
    "ways", [*itertools.product([RESUME, BACK], repeat=2), (FORK, FORK)], ids=lambda ways: " and ".join(ways)
)
def test_of_two_drivers_in_one_store_each_committed_epoch_is_published_once(ways: tuple[str, str], ahead: int) -> None:
    """Every pair of steps at which one driver may be stopped, for example by SIGSTOP, while the other one continues."""
    pairs = 0
    for first_steps in itertools.count():
        for second_steps in itertools.count():
            first_on_way, second_on_way = run_interleaved(ways, ahead, first_steps, second_steps)
            pairs += 1
            if not second_on_way:
                break
        if not first_on_way:
            break
    assert pairs > 20
