"""Hundreds of readers of the counting job, in processes of their own: they ask in every way that a client can, and
check each answer by itself and against all that the reader was told before.

An answer is right if all its values are of one epoch and equal, if neither epoch nor count is less than the reader was
told before, of whichever key and in whichever way, and if the epoch has the same count for everybody.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection

import pyarrow as pa
from counted import KEYS, STATE

from millstream.query.client import QueryClient

__all__ = ["READERS", "Readers", "Told"]

READERS = 200
_PROCESSES = 2
_READERS_PER_CLIENT = 5
_AT_ONCE = 2  # questions in a row: another server may have come less far
_PAUSE_S = 12.0  # at most: two cores must bear the readers, the servers and the job
_TIMEOUT_S = 120.0  # for an answer, on a machine that does much else besides


@dataclass(frozen=True)
class Told:
    """What readers were told: how often each of them, the count of every epoch, and what was wrong."""

    answers: Sequence[int]
    counts: dict[int, int]
    wrong: Sequence[str] = field(default_factory=list)

    def and_of(self, other: Told) -> Told:
        """What both were told; one epoch with two counts is wrong."""
        two = [
            f"epoch {epoch} had count {count} for some and {other.counts[epoch]} for others"
            for epoch, count in self.counts.items()
            if other.counts.get(epoch, count) != count
        ]
        return Told([*self.answers, *other.answers], self.counts | other.counts, [*self.wrong, *other.wrong, *two])


class Reader(threading.Thread):
    """Asks again and again; some readers watch keys instead."""

    def __init__(self, number: int, client: QueryClient) -> None:
        super().__init__(daemon=True, name=f"reader-{number}")
        self._client, self._rng = client, random.Random(f"reader-{number}")
        questions: Sequence[Callable[[], None]] = (self._one, self._one, self._many, self._many, self._columns)
        self._questions = (self._one, self._watch) if _watches(number) else questions
        self._epoch = self._count = self._answers = 0
        self._counts: dict[int, int] = {}
        self._wrong: list[str] = []

    @property
    def told(self) -> Told:
        """What it was told so far."""
        return Told([self._answers], self._counts.copy(), self._wrong.copy())

    def run(self) -> None:
        while True:
            time.sleep(self._rng.random() * _PAUSE_S)
            for question in self._rng.choices(self._questions, k=_AT_ONCE):
                try:
                    question()
                except Exception as error:
                    self._wrong.append(f"{self.name}, asking {question.__name__}: {type(error).__name__}: {error}")

    def _one(self) -> None:
        answer = self._client.get(STATE, self._rng.choice(KEYS))
        self._check("one", [(answer.epoch, answer.value)])

    def _many(self) -> None:
        answers = self._client.get_many(STATE, self._some_keys())
        self._check("many", [(answer.epoch, answer.value) for answer in answers])

    def _columns(self) -> None:
        table = self._client.get_columns(STATE, pa.array(self._some_keys()))
        epoch = int(table.schema.metadata[b"epoch"])
        self._check("columns", [(epoch, count) for count in table["value"].to_pylist()])

    def _watch(self) -> None:
        for answer in islice(self._client.watch(STATE, self._rng.choice(KEYS)), self._rng.randint(1, 4)):
            self._check("watch", [(answer.epoch, answer.value)])

    def _some_keys(self) -> list[str]:
        return self._rng.sample(KEYS, 8)

    def _check(self, way: str, found: Sequence[tuple[int, int | None]]) -> None:
        (epoch, count), *others = set(found)
        before = f"{self.name}, asking {way}, was told {sorted(set(found), key=str)} (epoch, count)"
        if others or count is None:
            self._wrong.append(f"{before}: not of one epoch")
        elif epoch < self._epoch or count < self._count:
            self._wrong.append(f"{before} after {(self._epoch, self._count)}: it went back")
        elif self._counts.setdefault(epoch, count) != count:
            self._wrong.append(f"{before}, and {self._counts[epoch]} at the same epoch before")
        else:
            self._epoch, self._count = epoch, count
        self._answers += 1


def _watches(number: int) -> bool:
    return number % 10 == 0


def _all(told: Iterable[Told]) -> Told:
    whole = Told([], {})
    for one in told:
        whole = whole.and_of(one)
    return whole


def read(store: str, numbers: range, questions: Connection) -> None:
    """A process of readers: tells what they were told whenever it is asked, and ends with who started it."""
    clients = [
        QueryClient(store, timeout_s=_TIMEOUT_S, hedge_after_s=1.0) for _ in range(0, len(numbers), _READERS_PER_CLIENT)
    ]
    readers = [Reader(number, clients[i // _READERS_PER_CLIENT]) for i, number in enumerate(numbers)]
    for reader in readers:
        reader.start()
    try:
        while True:
            questions.recv()
            questions.send(_all(reader.told for reader in readers))
    except EOFError:
        os._exit(0)


class Readers:
    """All readers of a job."""

    def __init__(self, store: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._processes, self._pipes = [], []
        each = READERS // _PROCESSES
        for first in range(0, READERS, each):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=read, args=(store, range(first, first + each), theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def told(self) -> Told:
        """What all of them were told so far."""
        for pipe in self._pipes:
            pipe.send("what were you told?")
        return _all(pipe.recv() for pipe in self._pipes)

    def told_after(self, before: Told, epoch: int, timeout_s: float) -> Told:
        """What they were told, once each was told more than before (but for watchers, who wait for news), and somebody
        of this epoch; or once something is wrong."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = self.told()
            waiting = [i for i in range(READERS) if now.answers[i] == before.answers[i] and not _watches(i)]
            if (not waiting and epoch in now.counts) or now.wrong != before.wrong:
                return now
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"in {timeout_s:g} s, {len(waiting)} of {READERS} readers were told nothing, and of epoch {epoch} "
                    f"{'somebody' if epoch in now.counts else 'nobody'}"
                )
            time.sleep(0.1)

    def close(self) -> None:
        """End them."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(10)
            process.close()
