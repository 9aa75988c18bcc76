"""The records of both sides of a comparison: the same batches, generated in the task at next to no cost.

Both sides read them in Python, so that neither pays for a source that the other does not have. A kind of records is
pickled as the few numbers that describe it; its batch is generated once per worker process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import Types

__all__ = ["BATCH_RECORDS", "KEYED_DDL", "KEYED_TYPE", "MIXED_ROW_TYPE", "MIXED_TUPLE_TYPE", "Keyed", "Longs", "Mixed"]

BATCH_RECORDS = 65_536
_KEYS = 1_000

_MIXED = [Types.LONG(), Types.DOUBLE(), Types.STRING()]
MIXED_TUPLE_TYPE = Types.TUPLE(_MIXED)
MIXED_ROW_TYPE = Types.ROW_NAMED(["f0", "f1", "f2"], _MIXED)
KEYED_TYPE = Types.ROW_NAMED(["key", "value", "time"], [Types.STRING(), Types.DOUBLE(), Types.SQL_TIMESTAMP()])
KEYED_DDL = "key string, value double, time timestamp_ntz"


def _pieces(total: int, split: int, splits: int) -> Iterator[tuple[int, int]]:
    """(first, count) of every batch of a split's share of `total` records."""
    start, stop = total * split // splits, total * (split + 1) // splits
    for first in range(start, stop, BATCH_RECORDS):
        yield first, min(BATCH_RECORDS, stop - first)


@dataclass(frozen=True)
class Longs:
    """The numbers below `total`, in one column."""

    total: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        for first, count in _pieces(self.total, split, splits):
            numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
            yield pa.RecordBatch.from_arrays([numbers], names=["value"])


@dataclass(frozen=True)
class Mixed:
    """`total` records of a long, a double and a string."""

    total: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        for _, count in _pieces(self.total, split, splits):
            yield _mixed().slice(0, count)


@dataclass(frozen=True)
class Keyed:
    """`total` records of a string key (one of a thousand), a double and a timestamp."""

    total: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        for _, count in _pieces(self.total, split, splits):
            yield _keyed().slice(0, count)


@lru_cache(maxsize=1)
def _mixed() -> pa.RecordBatch:
    numbers = np.arange(BATCH_RECORDS, dtype=np.int64)
    texts = pa.array([f"user-{i % _KEYS:04d}" for i in range(BATCH_RECORDS)])
    return pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(numbers * 0.5), texts], names=["f0", "f1", "f2"])


@lru_cache(maxsize=1)
def _keyed() -> pa.RecordBatch:
    random = np.random.default_rng(7)
    keys = pa.array([f"user-{key:04d}" for key in random.integers(0, _KEYS, BATCH_RECORDS).tolist()])
    values = pa.array(random.random(BATCH_RECORDS))
    times = pa.array(1_700_000_000_000_000 + np.arange(BATCH_RECORDS, dtype=np.int64)).cast(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays([keys, values, times], names=["key", "value", "time"])
