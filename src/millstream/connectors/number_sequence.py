"""A source of the whole numbers from `start` to `end`, both included.

The range is cut into equal, contiguous splits. How many is a function of the range alone: a job resumed at another
parallelism meets the same splits. Numbers are made as Arrow columns, never one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import ProgramError

__all__ = ["NumberSequenceSource", "split_count"]

_BATCH_RECORDS_MAX = 65_536
# Enough for every usual parallelism to share evenly; a long range gets more, for clusters with more cores than that.
_SPLITS_USUAL = 32
_SPLITS_MAX = 256
_SPLIT_RECORDS_LONG = 1_000_000
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def split_count(count: int) -> int:
    """How many splits a range of `count` numbers has.

    >>> split_count(0), split_count(5), split_count(10_000_000), split_count(10**12)
    (0, 5, 32, 256)
    """
    return min(count, max(_SPLITS_USUAL, min(_SPLITS_MAX, count // _SPLIT_RECORDS_LONG)))


class NumberSequenceSource(Source):
    """Every number from `start` to `end`, as LONG.

    >>> source = NumberSequenceSource(1, 3)
    >>> context = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)
    >>> splits = source.splits(context)
    >>> [batch["value"].to_pylist() for split in splits for batch in source.read(split, split.start, split.info)]
    [[1], [2], [3]]
    """

    bounded = True

    def __init__(self, start: int, end: int) -> None:
        for name, value in (("start", start), ("end", end)):
            if not isinstance(value, int) or isinstance(value, bool) or not _LONG_MIN <= value <= _LONG_MAX:
                raise ProgramError(f"NumberSequenceSource: {name} is {value!r}. Give a whole number of 64 bits.")
        if start > end:
            raise ProgramError(f"NumberSequenceSource: start {start} is above end {end}. Give start <= end.")
        self.start = start
        self.end = end
        self.type_info = Types.LONG()
        count = end - start + 1
        cuts = split_count(count)
        # The offset of a split is the next number itself, its info the first number that is not in it.
        bounds = [start + count * i // cuts for i in range(cuts + 1)]
        self._splits = tuple(Split(f"{i:05d}", bounds[i], bounds[i + 1]) for i in range(cuts))

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return self._splits

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(split.info, offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= split.info)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for at in range(start, stop, _BATCH_RECORDS_MAX):
            # The last number of a batch is computed inclusively: one past the largest LONG is no LONG.
            count = min(stop - at, _BATCH_RECORDS_MAX)
            numbers = np.arange(count, dtype=np.int64) + np.int64(at)
            yield pa.RecordBatch.from_arrays([pa.array(numbers)], names=["value"])
        return stop

    def describe(self) -> str:
        return f"numbers {self.start} to {self.end}"
