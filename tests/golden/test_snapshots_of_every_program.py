"""Every stateful program, saved half-way and restored: at another parallelism, changed, crashing during the restore, in
its own store, in a new one and from a savepoint. There is one golden answer.

The whole matrix is large: for every program, change and fate one pair of parallelism and place is drawn at random in
every run. HYPOTHESIS_PROFILE=thorough runs all of them. A failing case has its seed in its id.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
from changed_programs import Version, narrow_states
from programs.plain import (
    CONNECTED,
    INTERVAL_JOINS,
    LOOPED,
    LOOPS,
    PROGRAMS,
    STATEFUL,
    WINDOW_JOINS,
    WINDOWED,
    multiset,
)
from stores.watched_store import WatchedStore

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import JobStatus, Types
from millstream.errors import FencedError, MillstreamError
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, ManualClock

_STORES = itertools.count()
SAVED = 2  # of the four epochs
KEEPING = [name for name in CONNECTED if "keyed" in name or "state" in name]
NAMES = [*STATEFUL, *WINDOWED, *KEEPING, *WINDOW_JOINS, *INTERVAL_JOINS, *LOOPED]
CHANGES = ("none", "operator", "types")
RESCALED = ((2, 2), (1, 3), (3, 2))
PLACES = ("own store", "new store", "savepoint")

# The state of these has no int64 that could have been narrower, or must not change: built-in aggregates of open
# windows, and records in a loop.
NOT_WIDENED = (
    "alarms",
    "sliding windows",
    "every ready aggregate",
    "sliding windows in columns",
    "cumulative windows in columns",
    "connected keyed flat_map",
    "window join in columns",
    "sliding window join in columns",
    "chosen fields of sessions",
    "interval join in columns",
    "interval join with a function",
    "loop: Collatz",
    "loop in a loop",
    "loop: windows behind it",
)


@dataclass(frozen=True)
class Case:
    """How a program is restored. `writes`: the restored job crashes after this many writes; None: it does not."""

    name: str
    change: str
    before: int
    after: int
    place: str
    writes: int | None
    seed: int

    def __str__(self) -> str:
        fate = "clean" if self.writes is None else f"crash after {self.writes} writes"
        return f"{self.name}, {self.change}, {self.before} to {self.after}, {self.place}, {fate}, {self.seed}"


def cases() -> Iterator[Case]:
    thorough = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
    rng = random.Random(os.environ.get("MILLSTREAM_SNAPSHOT_SEED", "millstream"))
    ways = list(itertools.product(RESCALED, PLACES))
    for name, change, dies in itertools.product(NAMES, CHANGES, (False, True)):
        if change == "types" and name in NOT_WIDENED:
            continue
        drawn = ways if thorough else [rng.choice(ways)]
        for (before, after), place in drawn:
            yield Case(name, change, before, after, place, rng.randrange(14) if dies else None, rng.randrange(10**6))


class Dies(OSError):
    """The error of a store whose process is gone."""


class DyingStore(WatchedStore):
    """After this many writes, every write fails."""

    def __init__(self, name: str, writes: int) -> None:
        super().__init__(name)
        self._writes_left = writes

    @property
    def is_dead(self) -> bool:
        return self._writes_left < 0

    def before_write(self) -> None:
        self._writes_left -= 1
        if self.is_dead:
            raise Dies("the process has died")


def versions_of(case: Case) -> tuple[Version, Version]:
    """The program as it was saved, and as it is restored."""
    program = {**PROGRAMS, **LOOPS}[case.name]
    if case.change == "none":
        return Version(program), Version(program)
    old = Version(program, uids=True)
    if case.change == "operator":
        return old, replace(old, inserted=case.seed)
    return replace(old, source_type=Types.INT()), old


def prepared(version: Version, out: Collect, parallelism: int, store: MemoryStore, path: str | None = None) -> Job:
    graph, settings = version.built(out, parallelism, path)
    return Launch(ManualClock(), LocalRunner(), store).prepare(graph, settings)


def saved(case: Case, version: Version, store: MemoryStore) -> Collect:
    """Run past the epoch that is restored, and stop."""
    out = Collect()
    with narrow_states() if case.change == "types" else nullcontext():
        job = prepared(version, out, case.before, store)

        def look(progress: JobProgress) -> None:
            if progress.epoch == SAVED + 1:
                job.stop()

        job.board.listen(look)
        job.start().result()
    return out


def places_of(case: Case, store: MemoryStore) -> tuple[str, str]:
    """The snapshot, and the name of the store to restore into."""
    at, new = f"{store.url}@{SAVED}", f"snapshots-of-programs-{next(_STORES)}"
    if case.place == "own store":
        return at, store.url.removeprefix("memory://")
    if case.place == "new store":
        return at, new
    copy = MemoryStore(f"snapshots-of-programs-{next(_STORES)}")
    copy_savepoint(find_snapshot(parse_snapshot_name(at)), copy)
    for name in store.list(""):
        store.delete(name)
    return copy.url, new


def is_restored(store: MemoryStore) -> bool:
    """Whether the manifest exists with which the job resumes from the snapshot."""
    log = ManifestLog(store)
    return any(log.read(epoch).run.startswith("restore") for epoch in log.epochs())


def restored(case: Case, version: Version, path: str, name: str) -> list[Collect]:
    """Start from the snapshot; if that crashes, start again with its leftovers."""
    outs = [Collect()]
    if case.writes is not None:
        store = DyingStore(name, case.writes)
        try:
            prepared(version, outs[0], case.after, store, path).start().result()
        except (Dies, MillstreamError) as error:
            assert store.is_dead and not isinstance(error, FencedError), error
        outs.append(Collect())
    again = None if is_restored(MemoryStore(name)) else path
    job = prepared(version, outs[-1], case.after, MemoryStore(name), again).start()
    job.result()
    assert job.status() is JobStatus.FINISHED
    return outs


def check(case: Case) -> None:
    store = MemoryStore(f"snapshots-of-programs-{next(_STORES)}")
    old, new = versions_of(case)
    before = saved(case, old, store)
    path, name = places_of(case, store)
    after = restored(case, new, path, name)
    # An epoch published again by a second start counts once.
    epochs = {epoch: sink for sink in after for epoch in sink.publications}
    found = [record.value for record in before.records if record.epoch <= SAVED]
    found += [record.value for epoch, sink in epochs.items() for record in sink.records if record.epoch == epoch]
    assert multiset(found) == multiset(old.program.golden(case.after))


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_program_restored_from_a_snapshot_produces_its_golden_answer(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("name", "before", "after"), [("every kind of state", 1, 128), ("keyed broadcast state", 128, 1)]
)
def test_a_program_is_rescaled_between_one_task_and_one_per_key_group(name: str, before: int, after: int) -> None:
    check(Case(name, "none", before, after, "new store", None, 0))
