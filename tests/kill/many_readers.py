"""Hundreds of readers of the counting job, in processes of their own: they use every kind of query, and check each
answer by itself and against the reader's earlier answers.

An answer is correct if all its values are of one epoch and equal, if neither epoch nor count is less than in the
reader's earlier answers, for any key and kind of query, and if the epoch has the same count for every reader.
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

__all__ = ["READERS", "Answers", "Readers"]

READERS = 200
_PROCESSES = 2
_READERS_PER_CLIENT = 5
_AT_ONCE = 2  # queries in a row: another server may be at an earlier epoch
_PAUSE_S = 12.0  # at most: two cores are shared by the readers, the servers and the job
_TIMEOUT_S = 120.0  # for an answer, on a busy machine


@dataclass(frozen=True)
class Answers:
    """The readers' answers: how many each received, the count of every epoch, and errors."""

    answer_counts: Sequence[int]
    counts: dict[int, int]
    wrong: Sequence[str] = field(default_factory=list)

    def and_of(self, other: Answers) -> Answers:
        """The combination of both; one epoch with two counts is an error."""
        two = [
            f"epoch {epoch} had count {count} for some and {other.counts[epoch]} for others"
            for epoch, count in self.counts.items()
            if other.counts.get(epoch, count) != count
        ]
        return Answers(
            [*self.answer_counts, *other.answer_counts], self.counts | other.counts, [*self.wrong, *other.wrong, *two]
        )


class Reader(threading.Thread):
    """Queries repeatedly; some readers watch keys instead."""

    def __init__(self, number: int, client: QueryClient) -> None:
        super().__init__(daemon=True, name=f"reader-{number}")
        self._client, self._rng = client, random.Random(f"reader-{number}")
        questions: Sequence[Callable[[], None]] = (self._one, self._one, self._many, self._many, self._columns)
        self._questions = (self._one, self._watch) if _watches(number) else questions
        self._epoch = self._count = self._answers = 0
        self._counts: dict[int, int] = {}
        self._wrong: list[str] = []

    @property
    def answers(self) -> Answers:
        """Its answers so far."""
        return Answers([self._answers], self._counts.copy(), self._wrong.copy())

    def run(self) -> None:
        while True:
            time.sleep(self._rng.random() * _PAUSE_S)
            for question in self._rng.choices(self._questions, k=_AT_ONCE):
                try:
                    question()
                except Exception as error:
                    self._wrong.append(f"{self.name}, in {question.__name__}: {type(error).__name__}: {error}")

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

    def _check(self, way: str, answers: Sequence[tuple[int, int | None]]) -> None:
        (epoch, count), *others = set(answers)
        before = f"{self.name}, by {way}, received {sorted(set(answers), key=str)} (epoch, count)"
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


def _all(parts: Iterable[Answers]) -> Answers:
    whole = Answers([], {})
    for one in parts:
        whole = whole.and_of(one)
    return whole


def read(store: str, numbers: range, questions: Connection) -> None:
    """A process of readers: reports their answers on request, and ends with its parent."""
    clients = [
        QueryClient(store, timeout_s=_TIMEOUT_S, hedge_after_s=1.0) for _ in range(0, len(numbers), _READERS_PER_CLIENT)
    ]
    readers = [Reader(number, clients[i // _READERS_PER_CLIENT]) for i, number in enumerate(numbers)]
    for reader in readers:
        reader.start()
    try:
        while True:
            questions.recv()
            questions.send(_all(reader.answers for reader in readers))
    except EOFError:
        os._exit(0)


class Readers:
    """All readers of a job."""

    def __init__(self, store: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._processes, self._pipes = [], []
        each = READERS // _PROCESSES
        for first in range(0, READERS, each):
            near, far = spawn.Pipe()
            process = spawn.Process(target=read, args=(store, range(first, first + each), far), daemon=True)
            process.start()
            far.close()
            self._processes.append(process)
            self._pipes.append(near)

    def answers(self) -> Answers:
        """The answers of all readers so far."""
        for pipe in self._pipes:
            pipe.send("answers?")
        return _all(pipe.recv() for pipe in self._pipes)

    def answers_after(self, before: Answers, epoch: int, timeout_s: float) -> Answers:
        """Their answers, once each reader has received more than before (except watchers, which wait for changes),
        and some reader has reached this epoch; or once there is an error.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            now = self.answers()
            waiting = [i for i in range(READERS) if now.answer_counts[i] == before.answer_counts[i] and not _watches(i)]
            if (not waiting and epoch in now.counts) or now.wrong != before.wrong:
                return now
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"in {timeout_s:g} s, {len(waiting)} of {READERS} readers received nothing, and epoch {epoch} "
                    f"was {'' if epoch in now.counts else 'not '}reached"
                )
            time.sleep(0.1)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(10)
            process.close()
