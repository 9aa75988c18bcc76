"""Savepoints, forks and leases made concurrently with garbage collection, and collectors that die at any step.

A client whose pin was confirmed has a complete epoch, without a start of the original job and without another
collection; and it stays complete through any later collections.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from millstream.checkpoint.job_record import claim
from millstream.checkpoint.leases import LeasedEpoch, held_epochs
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch
from millstream.checkpoint.removals import remove_runs, settle_removals
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.savepoints import find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.errors import StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.snapshots.forking import beginning_of, claim_fork
from millstream.storage.memory import MemoryStore
from millstream.storage.names import REMOVALS, manifest_name, segment_name
from millstream.storage.store import Names, Store, open_store

_STORES = itertools.count()
EPOCHS, SAVED = 6, 3


class Killed(BaseException):
    """The collector's process is dead."""


class Stepped(MemoryStore):
    """A store that calls `step` before every operation; with `is_coarse`, not before reads."""

    def __init__(self, name: str, step: Callable[[], None], *, is_coarse: bool = False) -> None:
        super().__init__(name)
        self.step, self.is_coarse = step, is_coarse

    def put(self, name: str, data: bytes) -> None:
        self.step()
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self.step()
        return super().create(name, data)

    def get(self, name: str) -> bytes:
        if not self.is_coarse:
            self.step()
        return super().get(name)

    def exists(self, name: str) -> bool:
        self.step()
        return super().exists(name)

    def list(self, prefix: str) -> Names:
        self.step()
        return super().list(prefix)

    def delete_many(self, names: Sequence[str]) -> None:
        """Each of them may be the last."""
        for name in names:
            self.step()
            super().delete(name)


def prepared() -> str:
    """A store in which every epoch has a file of its own and one that it shares with the next."""
    store = MemoryStore(f"beside-a-sweep-{next(_STORES)}")
    claim(store, "job", job_id="id", now_ms=0)
    log = ManifestLog(store)
    for epoch in range(1, EPOCHS + 1):
        files = [segment_name("op", "state", written, 0, "a") for written in (epoch - 1, epoch) if written]
        store.put(files[-1], b"rows")
        assert log.commit(
            Manifest(
                "job", "id", epoch, epoch - 1, 0, "run", states={"op": {"files": files}}, published_through=epoch - 1
            )
        )
    return store.url


def sweep(store: Store, keep: int = 1) -> None:
    newest = ManifestLog(MemoryStore(store.url.removeprefix("memory://"))).newest()
    Sweeper(store, lambda: 0, RetentionPolicy(keep)).sweep(newest)


def check_whole(snapshot: str, epoch: int = SAVED) -> None:
    found = find_snapshot(parse_snapshot_name(snapshot))
    assert found.manifest.epoch == epoch
    for name in named_files(found.manifest):
        assert found.store.get(name) == b"rows"


def save(url: str) -> Callable[[], None]:
    pin_epoch(open_store(url), Pin("saved", SAVED, "savepoint", 0))
    return lambda: check_whole(f"{url}@saved")


def fork(url: str) -> Callable[[], None]:
    snapshot, own = find_snapshot(parse_snapshot_name(f"{url}@{SAVED}")), f"{url}-fork"
    claim_fork(open_store(own), snapshot, "fork", 0)
    return lambda: check_whole(beginning_of(snapshot))


def lease(url: str) -> Callable[[], None]:
    held = LeasedEpoch(open_store(url), SAVED, lambda: 0)

    def check() -> None:
        assert ManifestLog(open_store(url)).read(SAVED) == held.manifest
        check_whole(f"{url}@{SAVED}")

    return check


def steps_of(act: Callable[[Store], None], url: str) -> int:
    steps = itertools.count()
    act(Stepped(url.removeprefix("memory://"), lambda: next(steps) and None))
    return next(steps)


@pytest.mark.parametrize("make", [save, fork, lease])
def test_a_pin_created_between_any_two_steps_survives_a_collector_that_dies_at_any_step(
    make: Callable[[str], Callable[[], None]],
) -> None:
    steps = steps_of(sweep, prepared())
    made_times = 0
    for made, killed in itertools.combinations_with_replacement(range(steps + 1), 2):
        url, checks, number = prepared(), [], itertools.count()

        def step(
            url: str = url,
            checks: list[Callable[[], None]] = checks,
            number: Iterator[int] = number,
            made: int = made,
            killed: int = killed,
        ) -> None:
            now = next(number)
            if now == made:
                try:
                    checks.append(make(url))
                except StoreError:
                    return  # it is collected, and the client was told so
            if now == killed:
                raise Killed

        with suppress(Killed):
            sweep(Stepped(url.removeprefix("memory://"), step))
        for check in checks:
            made_times += 1
            check()
            sweep(open_store(url))  # the next start of the original
            check()
        if not checks:
            sweep(open_store(url))
            assert ManifestLog(open_store(url)).epochs() == [EPOCHS]
        assert not open_store(url).list_after("manifests", REMOVALS)
    assert made_times > steps


# --- every interleaving of their steps ----------------------------------------------------------------------------


class Actors:
    """Threads that take their steps in a given order, one at a time; each may be killed at a step."""

    def __init__(self, acts: Sequence[Callable[[Callable[[], None]], None]], killed_at: Sequence[int | None]) -> None:
        self._turns = [threading.Semaphore(0) for _ in acts]
        self._waits = [threading.Semaphore(0) for _ in acts]
        self._killed_at = killed_at
        self.ended = [False] * len(acts)
        self._threads = [threading.Thread(target=self._run, args=(n, act)) for n, act in enumerate(acts)]
        for number, thread in enumerate(self._threads):
            thread.start()
            self._waits[number].acquire()

    def _run(self, actor: int, act: Callable[[Callable[[], None]], None]) -> None:
        steps = itertools.count()

        def step() -> None:
            self._waits[actor].release()
            self._turns[actor].acquire()
            if next(steps) == self._killed_at[actor]:
                raise Killed

        with suppress(Killed):
            act(step)
        self.ended[actor] = True
        self._waits[actor].release()

    def take(self, actor: int) -> None:
        if not self.ended[actor]:
            self._turns[actor].release()
            self._waits[actor].acquire()

    def finish(self) -> None:
        for actor, thread in enumerate(self._threads):
            while not self.ended[actor]:
                self.take(actor)
            thread.join()


def removes(url: str, *, is_coarse: bool = False) -> Callable[[Callable[[], None]], None]:
    """The part of a collection that conflicts with pins, and the files it removes."""

    def act(step: Callable[[], None]) -> None:
        store = Stepped(url.removeprefix("memory://"), step, is_coarse=is_coarse)

        def held(epochs: object) -> set[int]:
            step()
            return held_epochs(open_store(url), list(epochs), lambda *_: None, {})  # type: ignore[call-overload]

        plain = open_store(url)
        for epoch in remove_runs(store, [[SAVED]], held):
            step()
            plain.delete(segment_name("op", "state", epoch, 0, "a"))

    return act


def settles(url: str) -> Callable[[Callable[[], None]], None]:
    return lambda step: settle_removals(Stepped(url.removeprefix("memory://"), step))


def pins(url: str, reported: list[int], *, is_coarse: bool = False) -> Callable[[Callable[[], None]], None]:
    def act(step: Callable[[], None]) -> None:
        try:
            store = Stepped(url.removeprefix("memory://"), step, is_coarse=is_coarse)
            pin_epoch(store, Pin("saved", SAVED, "savepoint", 0))
            reported.append(SAVED)
        except StoreError:
            pass

    return act


def count(act: Callable[[Callable[[], None]], None]) -> int:
    steps = itertools.count()
    act(lambda: next(steps) and None)
    return next(steps)


def check_reported(url: str, reported: list[int]) -> None:
    """Without any collection, and after that of the next start, which also removes leftovers."""
    store = open_store(url)
    for _ in range(2):
        if reported:
            check_whole(f"{url}@saved")
        for epoch in ManifestLog(store).epochs():
            if epoch != SAVED or reported:
                assert all(
                    store.exists(name) for name in named_files(ManifestLog(store).read(epoch)) if epoch in reported
                )
        sweep(store, keep=EPOCHS)
    assert not store.list_after("manifests", REMOVALS)


@pytest.mark.slow
def test_a_pin_and_a_removal_agree_in_every_order_of_steps_wherever_the_collector_dies() -> None:
    url = prepared()
    # If they conflict, the pin decides as well, and may be withdrawn.
    pin_steps = count(pins(prepared(), [], is_coarse=True)) + 2
    remove_steps = count(removes(url, is_coarse=True))
    outcomes = set()
    for killed in range(remove_steps + 1):
        for places in itertools.combinations(range(killed + pin_steps), pin_steps):
            url, reported = prepared(), list[int]()
            actors = Actors([removes(url, is_coarse=True), pins(url, reported, is_coarse=True)], [killed, None])
            for turn in range(killed + pin_steps):
                actors.take(turn in places)
            actors.finish()
            outcomes.add((bool(reported), open_store(url).exists(manifest_name(SAVED))))
            check_reported(url, reported)
    assert outcomes == {(True, True), (False, True), (False, False)}


@pytest.mark.slow
def test_two_collectors_and_a_resolving_one_agree_with_a_pin_in_any_order() -> None:
    draw, outcomes = random.Random(1), set()
    for _ in range(1_000):
        url, reported = prepared(), list[int]()
        killed = [draw.choice([None, draw.randrange(14)]) for _ in range(3)]
        acts = [removes(url), removes(url), settles(url), pins(url, reported)]
        actors = Actors(acts, [*killed, None])
        for _ in range(60):
            actors.take(draw.randrange(len(acts)))
        actors.finish()
        outcomes.add((bool(reported), open_store(url).exists(manifest_name(SAVED))))
        check_reported(url, reported)
    assert outcomes == {(True, True), (False, True), (False, False)}
