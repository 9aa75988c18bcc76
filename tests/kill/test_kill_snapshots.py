"""Real kills around snapshots: of a job that is being restored, and of one that others read and save while it runs.

Moments are drawn from a seed, as in `test_kill.py`; every fourth of its seeds is one here.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from killing import PHASE_TIMEOUT_S, SEEDS, Strike, difference, output_of, run_to_the_end, run_until, start
from stores.stored_leases import leases_of
from stores.watched_store import make_older

from millstream.checkpoint.leases import LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch, unpin
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.errors import StoreDamagedError, StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.storage.local import LocalStore

SOME_SEEDS = [seed for seed in SEEDS if seed % 4 == 1] or list(SEEDS)
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


def same_output(seed: int, folder: Path, clean: dict[str, bytes], history: list[str]) -> None:
    found = output_of(folder)
    for sink, records in clean.items():
        if found[sink] != records:
            raise AssertionError(difference(range(seed, seed + 1), sink, found[sink], records, history, folder))


def run_to_epoch(folder: Path, epoch: int) -> None:
    """Run the job until it stops by itself."""
    start(folder, "", str(epoch)).run_out(PHASE_TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_a_job_killed_while_it_starts_from_a_snapshot_gives_the_whole_answer(
    seed: int,
    clean: dict[str, bytes],
    tmp_path: Path,
) -> None:
    """The job is stopped in one store and goes on in another. There it is killed, at its first look at the snapshot or
    in one of its first epochs, and started once more."""
    rng = random.Random(f"restore-{seed}")
    last = rng.randrange(2, 9)
    run_to_epoch(tmp_path, last)
    (tmp_path / "store").rename(tmp_path / "before")
    snapshot = str(tmp_path / "before")
    strike = Strike("session", rng.random()) if rng.random() < 0.6 else Strike(last + 2, rng.random())
    history = [f"stopped after epoch {last}", f"{strike}: {run_until(strike, tmp_path, snapshot)}"]
    print(f"seed {seed}: {history}")
    # Once its first manifest stands, the job goes on by itself and must not be told to begin anew.
    begun = ManifestLog(LocalStore(tmp_path / "store")).epochs()
    run_to_the_end(tmp_path, "" if begun else snapshot)
    same_output(seed, tmp_path, clean, history)


class Readers:
    """They hold, read and let go of epochs of a running job, and save some; with what they found missing."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.wrong: list[str] = []
        self.visits = 0
        self._store, self._seed = LocalStore(folder, fsync=False), seed
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._come_again, args=(number,)) for number in range(2)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _come_again(self, number: int) -> None:
        rng = random.Random(f"reader-{number}-{self._seed}")
        while not self._over.wait(rng.random() / 5):
            epochs = ManifestLog(self._store).epochs()
            if not epochs:
                continue
            try:
                (self._read if number else self._save)(rng, rng.choice(epochs))
                self.visits += 1
            except StoreDamagedError as error:
                self.wrong.append(str(error))
            except StoreError as error:
                if "has no epoch" not in str(error):
                    self.wrong.append(str(error))

    def _read(self, rng: random.Random, epoch: int) -> None:
        with LeasedEpoch(self._store, epoch, now_ms) as leased:
            self._over.wait(rng.random())
            for name in named_files(leased.manifest):
                self._store.get(name)

    def _save(self, rng: random.Random, epoch: int) -> None:
        name = f"saved-{rng.randrange(10**9)}"
        manifest = pin_epoch(self._store, Pin(name, epoch, "savepoint", now_ms()))
        self._over.wait(rng.random())
        for file in named_files(manifest):
            self._store.get(file)
        unpin(self._store, name)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_a_job_that_is_read_and_saved_while_it_is_killed_keeps_what_is_held(
    seed: int,
    clean: dict[str, bytes],
    tmp_path: Path,
) -> None:
    rng = random.Random(f"readers-{seed}")
    strike = Strike(rng.randrange(3, 10), rng.random())
    with Readers(tmp_path / "store", seed) as readers:
        history = [f"{strike}: {run_until(strike, tmp_path)}"]
        run_to_the_end(tmp_path)
    print(f"seed {seed}: {history}, {readers.visits} visits")
    assert not readers.wrong, "\n".join(readers.wrong)
    assert readers.visits > 0
    same_output(seed, tmp_path, clean, history)
    check_nothing_is_left_over(tmp_path / "store")


def check_nothing_is_left_over(folder: Path) -> None:
    """An hour later: the newest epochs, and the files that they name."""
    store = LocalStore(folder, fsync=False)
    log = ManifestLog(store)
    make_older(store, "leases", HOUR_MS)
    Sweeper(store, lambda: now_ms() + HOUR_MS, RetentionPolicy(keep_last=3)).sweep(log.newest())
    assert len(log.epochs()) == 3 and not leases_of(store)
    named = {name for epoch in log.epochs() for name in named_files(log.read(epoch))}
    assert {*store.list("segments"), *store.list("staged")} == named
    assert not list(folder.rglob(".tmp-*"))
