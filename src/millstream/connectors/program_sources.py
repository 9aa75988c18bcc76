"""Sources with records from the program itself: a list of values, a function of an index, a range of numbers.

`CollectionSource`: one split, whose offset is the index of the next value. The values are sent to the tasks inside the
plan, so this is for tests and small inputs; the order of the list is preserved. A plan is pickled more than once (to
check that it can be, and to send it); the values are pickled only the first time. It does not validate: the stream
checks the values against their type, where the error can name the value.

`DataGeneratorSource`: index i belongs to split i mod k, so the splits advance together and the stream grows in the
order of its indexes. The function must be pure: a replayed epoch calls it again with the same indexes. The rate is for
the whole source. It is counted from the time and the offsets at which this driver took over: a job
that was down for an hour does not catch up.

`ColumnGeneratorSource`: the same for a function of many indexes at once, which returns columns.

`NumberSequenceSource`: the range, both ends included, is divided into equal, contiguous splits. Their number is a
function of the range alone: a job resumed at another parallelism has the same splits. Numbers are generated as Arrow
columns, never one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import ProgramError

__all__ = [
    "CollectionSource",
    "ColumnGeneratorSource",
    "DataGeneratorSource",
    "NumberSequenceSource",
    "NumberedSource",
    "split_count",
]

_BATCH_RECORDS_MAX = 65_536


class CollectionSource(Source):
    """The values of a list, in order, once.

    >>> source = CollectionSource(["a", "b", "c"])
    >>> [split] = source.splits(SourceContext(now_ms=0, run_started_ms=0, parallelism=1))
    >>> list(source.read(split, 1, 3))
    [['b', 'c']]
    """

    bounded = True
    single = True

    def __init__(self, values: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        self._values = list(values)
        self.type_info = type_info
        self._pickled_values: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._pickled_values is None:
            self._pickled_values = cloudpickle.dumps(self._values)
        return {name: value for name, value in vars(self).items() if name != "_values"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._values = cloudpickle.loads(state["_pickled_values"])

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return (Split("collection"),)

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(len(self._values), offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self._values))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for at in range(start, stop, _BATCH_RECORDS_MAX):
            yield self._values[at : min(stop, at + _BATCH_RECORDS_MAX)]
        return stop

    def describe(self) -> str:
        return f"collection of {len(self._values)} values"


_SPLITS_OF_FUNCTION = 16


class NumberedSource(Source):
    """Records numbered 0, 1, 2, …: `count` of them, or unbounded. Subclasses define the records; an offset
    is the number of records read of a split."""

    def __init__(self, count: int | None, rate_per_second: float | None, splits: int = _SPLITS_OF_FUNCTION) -> None:
        _check_numbers(count, rate_per_second, splits)
        self.count = count
        self.rate_per_second = rate_per_second
        self.bounded = count is not None
        # A function of the arguments alone, so that a resumed job has the same splits.
        self.split_count = splits if count is None else min(splits, max(count, 1))
        self._splits = tuple(Split(f"{i:05d}", 0, i) for i in range(self.split_count))
        self._run_started_ms: int | None = None
        self._run_offsets: dict[str, int] = {}
        self._rated_ms = self._last_ms = 0

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return self._splits

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        stop = offset + budget
        if self.count is not None:
            stop = min(stop, self._members(split.info, self.count))
        if self.rate_per_second is not None:
            stop = min(stop, self._rate_limit(split, offset, context))
        return max(offset, stop)

    def finished(self, split: Split, offset: Offset) -> bool:
        return self.count is not None and bool(offset >= self._members(split.info, self.count))

    def _numbers(self, split: Split, start: int, stop: int) -> Iterator[range]:
        """The numbers of a split's records from start to stop, in batches."""
        step, first = self.split_count, split.info
        for at in range(start, stop, _BATCH_RECORDS_MAX):
            yield range(first + at * step, first + min(stop, at + _BATCH_RECORDS_MAX) * step, step)

    def describe(self) -> str:
        size = "without end" if self.count is None else f"of {self.count} records"
        rate = "" if self.rate_per_second is None else f", {self.rate_per_second:g} per second"
        return f"generator {size}{rate}"

    def _members(self, split: int, total: int) -> int:
        """The count of numbers 0 … total-1 that belong to this split."""
        return (total + self.split_count - 1 - split) // self.split_count

    def _rate_limit(self, split: Split, offset: int, context: SourceContext) -> int:
        """The rate limit of this split by now."""
        assert self.rate_per_second is not None
        if self._run_started_ms != context.run_started_ms:
            self._run_started_ms = context.run_started_ms
            self._run_offsets = {}
            self._rated_ms = self._last_ms = context.run_started_ms
        # A clock that is set back does not reduce the limit.
        self._rated_ms -= max(0, self._last_ms - context.now_ms)
        self._last_ms = context.now_ms
        began_at = self._run_offsets.setdefault(split.name, offset)
        elapsed_ms = context.now_ms - self._rated_ms
        return began_at + self._members(split.info, int(elapsed_ms * self.rate_per_second / 1000))


class _FunctionSource(NumberedSource):
    """Computes records by a function of their numbers."""

    def __init__(
        self,
        generator_function: Callable[[Any], Any],
        count: int | None = None,
        rate_per_second: float | None = None,
        type_info: TypeInformation | None = None,
        splits: int = _SPLITS_OF_FUNCTION,
    ) -> None:
        _check_function(generator_function)
        super().__init__(count, rate_per_second, splits)
        self.generator_function = generator_function
        self.type_info = type_info


class DataGeneratorSource(_FunctionSource):
    """Records `generator_function(0), generator_function(1), …`; `count` of them, or unbounded.

    >>> source = DataGeneratorSource(lambda index: index * index, count=5, splits=2)
    >>> context = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)
    >>> [list(source.read(s, 0, source.reach(s, 0, 100, context))) for s in source.splits(context)]
    [[[0, 4, 16]], [[1, 9]]]
    """

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        function = self.generator_function
        for numbers in self._numbers(split, start, stop):
            yield [function(number) for number in numbers]
        return stop


class ColumnGeneratorSource(_FunctionSource):
    """Records by their numbers, many at once: the function takes an array of numbers and returns as many rows.

    >>> source = ColumnGeneratorSource(lambda at: pa.record_batch({"value": at * at}), count=5, splits=2)
    >>> [batch["value"].to_pylist() for batch in source.read(Split("00001", 0, 1), 0, 2)]
    [[1, 9]]
    """

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for numbers in self._numbers(split, start, stop):
            yield self.generator_function(np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64))
        return stop


def _check_function(function: object) -> None:
    if not callable(function):
        raise ProgramError(
            f"DataGeneratorSource: the generator function is {function!r}. Pass a callable that takes an index."
        )


def _check_numbers(count: int | None, rate_per_second: float | None, splits: int) -> None:
    if count is not None and not (isinstance(count, Integral) and count >= 0):
        raise ProgramError(f"DataGeneratorSource: count is {count!r}. Use 0 or more, or None for an unbounded stream.")
    if rate_per_second is not None and not (isinstance(rate_per_second, Real) and rate_per_second > 0):
        raise ProgramError(f"DataGeneratorSource: rate_per_second is {rate_per_second!r}. Use more than 0, or None.")
    if not (isinstance(splits, Integral) and splits >= 1):
        raise ProgramError(f"DataGeneratorSource: splits is {splits!r}. Use at least 1.")


# Enough to be shared evenly at the usual parallelisms; a long range has more, for larger clusters.
_SPLITS_USUAL = 32
_SPLITS_MAX = 256
_SPLIT_RECORDS_LONG = 1_000_000
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def split_count(count: int) -> int:
    """The number of splits of a range of `count` numbers.

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
                raise ProgramError(f"NumberSequenceSource: {name} is {value!r}. Use a 64-bit whole number.")
        if start > end:
            raise ProgramError(f"NumberSequenceSource: start {start} is above end {end}. Use start <= end.")
        self.start = start
        self.end = end
        self.type_info = Types.LONG()
        count = end - start + 1
        cuts = split_count(count)
        # The offset of a split is the next number itself, its info the first number after it.
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
            # The last number of a batch is computed inclusively: one past the largest LONG would overflow.
            count = min(stop - at, _BATCH_RECORDS_MAX)
            numbers = np.arange(count, dtype=np.int64) + np.int64(at)
            yield pa.RecordBatch.from_arrays([pa.array(numbers)], names=["value"])
        return stop

    def describe(self) -> str:
        return f"numbers {self.start} to {self.end}"
