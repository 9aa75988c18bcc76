"""Random numbers for the rows of a task: RAND, RAND_INTEGER, UUID.

An epoch that is run again or replayed must emit the same values. The generator is therefore seeded with the job, the
operator, the subtask, the epoch and the position of the row in the operator's input of that epoch. Calls are
distinguished by their order in the statement.

A call with a constant seed reproduces Java's generator: each subtask starts a sequence from the seed and continues it
from batch to batch. Operators that store sequences (`random_sequences`) continue them across epochs and restarts; in
others the sequence restarts every epoch.
"""

from __future__ import annotations

import hashlib

import numpy as np

from millstream.runtime.expressions.java_random import JavaRandom

__all__ = ["Draws"]

_NUMBERS_A_BLOCK = 4  # numbers per Philox step


class Draws:
    """The random numbers of one subtask of an operator. `begin` starts an epoch, `next_batch` a batch of `rows`
    rows."""

    def __init__(self, *names: object) -> None:
        self._names = names
        self.sequences: dict[tuple[int, int], JavaRandom] = {}  # by position of the call, and seed
        self.keeps_sequences = False
        self._epoch = self._rows = self._first_row = self._calls = 0

    def begin(self, epoch: int) -> None:
        self._epoch, self._rows = epoch, 0
        if not self.keeps_sequences:
            self.sequences.clear()

    def next_batch(self, rows: int) -> None:
        self._first_row, self._calls = self._rows, 0
        self._rows += rows

    def sequence(self, place: int, seed: int) -> JavaRandom:
        """The sequence of a call with a seed."""
        return self.sequences.setdefault((place, seed), JavaRandom(seed))

    def generator(self, numbers_a_row: int = 1) -> np.random.Generator:
        """A generator for the next call in the statement, positioned at the first row of the batch.

        >>> whole, parts = Draws("job", "uid", 0), Draws("job", "uid", 0)
        >>> whole.next_batch(3)
        >>> at_once = whole.generator().random(3).tolist()
        >>> one_by_one = []
        >>> for _ in range(3):
        ...     parts.next_batch(1)
        ...     one_by_one += parts.generator().random(1).tolist()
        >>> one_by_one == at_once
        True
        """
        self._calls += 1
        name = repr((*self._names, self._epoch, f"call {self._calls}")).encode()
        key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")
        source = np.random.Philox(key=key)
        blocks, numbers = divmod(self._first_row * numbers_a_row, _NUMBERS_A_BLOCK)
        source.advance(blocks)
        generator = np.random.Generator(source)
        generator.random(numbers)
        return generator
