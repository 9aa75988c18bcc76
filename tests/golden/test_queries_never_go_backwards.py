"""Readers of a job that is crashed, stopped, rescaled and resumed, and retains almost no earlier epochs.

Every epoch counts each key once more, so all counts of one answer must be equal; and a reader never sees counts
decrease. Readers are replaced, as in a rolling restart of replicas.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partialmethod
from itertools import count
from typing import Any

import pytest
from programs.queryable import PAIR

from millstream import query
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.state import ReducingStateDescriptor
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.testing import CRASH, EPOCH, Script, run

STORES = count()
KEYS = [f"key-{n}" for n in range(7)]
ROUNDS, READERS = 30, 4


class Reader(threading.Thread):
    """Repeatedly queries all keys, through views that it reopens now and then."""

    def __init__(self, store: str, seed: int, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self._store, self._random, self._done = store, random.Random(seed), done
        self.answers: list[tuple[int, list[Any]]] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            job = query.open(f"memory://{self._store}")
            while not self._done.is_set():
                self._query(job.newest())
                if self._random.random() < 0.1:
                    job = query.open(f"memory://{self._store}")
                time.sleep(self._random.random() / 100)
            self._query(job.wait_for(job.epochs()[-1], 10))
        except BaseException as failure:
            self.failure = failure

    def _query(self, view: query.EpochView) -> None:
        answers = view.get_many("counts", KEYS)
        assert [view.get("counts", key) for key in KEYS] == answers
        self.answers.append((view.epoch, [number for _, number in answers]))


def plus(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return one[0], one[1] + other[1]


@pytest.mark.parametrize("seed", range(8))
def test_counts_never_decrease_and_belong_to_one_epoch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Garbage collection runs after every epoch, concurrently with the readers.
    monkeypatch.setattr(Sweeper, "__init__", partialmethod(Sweeper.__init__, every_epochs=1))
    chance, store, done = random.Random(seed), f"query-linear-{next(STORES)}", threading.Event()
    items: list[Any] = []
    for _ in range(ROUNDS):
        items += [(key, 1) for key in chance.sample(KEYS, len(KEYS))]
        items += [CRASH, EPOCH] if chance.random() < 0.1 else [EPOCH]

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("millstream.retention.epochs", "1"))
        keyed = env.add_source(Script(items, type_info=PAIR)).key_by(0)
        keyed.as_queryable_state("counts", ReducingStateDescriptor("counts", plus, PAIR))

    run(build, store=store, epochs=1)
    readers = [Reader(store, 100 * seed + number, done) for number in range(READERS)]
    for reader in readers:
        reader.start()
    status, reached = "", 2
    while status != "FINISHED":
        reached += chance.randint(3, 12)
        status = run(build, store=store, parallelism=chance.choice([1, 2, 3]), epochs=reached).status
    last_job = query.open(f"memory://{store}")
    last = last_job.newest()
    done.set()
    assert len(last_job.epochs()) <= 3
    for reader in readers:
        reader.join()
        assert reader.failure is None, reader.failure
        assert reader.answers == sorted(reader.answers, key=lambda answer: (answer[0], answer[1][0]))
        assert all(len(set(values)) == 1 for _, values in reader.answers)
        assert reader.answers[-1] == (last.epoch, [ROUNDS] * len(KEYS))
