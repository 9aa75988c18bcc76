"""A source whose record is a function of its index, at a chosen rate.

Index i lives in split i mod k, so the splits advance side by side and the stream grows in the order of its indexes.
The function must be pure: a replayed epoch calls it again with the same indexes.

The rate is for the source as a whole. It is counted from the moment this driver took over and from the offsets it
found then: a job that was down for an hour does not hurry to make up for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import ProgramError

__all__ = ["DataGeneratorSource"]

_BATCH_RECORDS_MAX = 65_536
_SPLITS_USUAL = 16


class DataGeneratorSource(Source):
    """Records `generator_function(0), generator_function(1), …`; `count` of them, or without end.

    >>> source = DataGeneratorSource(lambda index: index * index, count=5, splits=2)
    >>> context = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)
    >>> [list(source.read(s, 0, source.reach(s, 0, 100, context))) for s in source.splits(context)]
    [[[0, 4, 16]], [[1, 9]]]
    """

    def __init__(
        self,
        generator_function: Callable[[int], Any],
        count: int | None = None,
        rate_per_second: float | None = None,
        type_info: TypeInformation | None = None,
        splits: int = _SPLITS_USUAL,
    ) -> None:
        _check(generator_function, count, rate_per_second, splits)
        self.generator_function = generator_function
        self.count = count
        self.rate_per_second = rate_per_second
        self.type_info = type_info
        self.bounded = count is not None
        # A function of the arguments alone, so that a resumed job meets the same splits.
        self._split_count = splits if count is None else min(splits, max(count, 1))
        self._splits = tuple(Split(f"{i:05d}", 0, i) for i in range(self._split_count))
        self._run_started_ms: int | None = None
        self._run_offsets: dict[str, int] = {}

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

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        function, step, first = self.generator_function, self._split_count, split.info
        for at in range(start, stop, _BATCH_RECORDS_MAX):
            until = min(stop, at + _BATCH_RECORDS_MAX)
            yield [function(index) for index in range(first + at * step, first + until * step, step)]
        return stop

    def describe(self) -> str:
        size = "without end" if self.count is None else f"of {self.count} records"
        rate = "" if self.rate_per_second is None else f", {self.rate_per_second:g} per second"
        return f"generator {size}{rate}"

    def _members(self, split: int, total: int) -> int:
        """How many of the indexes 0 … total-1 live in this split."""
        return (total + self._split_count - 1 - split) // self._split_count

    def _rate_limit(self, split: Split, offset: int, context: SourceContext) -> int:
        """How far the rate lets this split be by now."""
        assert self.rate_per_second is not None
        if self._run_started_ms != context.run_started_ms:
            self._run_started_ms = context.run_started_ms
            self._run_offsets = {}
        began_at = self._run_offsets.setdefault(split.name, offset)
        elapsed_ms = max(0, context.now_ms - context.run_started_ms)
        return began_at + self._members(split.info, int(elapsed_ms * self.rate_per_second / 1000))


def _check(function: object, count: int | None, rate_per_second: float | None, splits: int) -> None:
    if not callable(function):
        raise ProgramError(
            f"DataGeneratorSource: the generator function is {function!r}. Give a callable that takes an index."
        )
    if count is not None and count < 0:
        raise ProgramError(f"DataGeneratorSource: count is {count}. Give 0 or more, or None for a stream without end.")
    if rate_per_second is not None and not rate_per_second > 0:
        raise ProgramError(f"DataGeneratorSource: rate_per_second is {rate_per_second}. Give more than 0, or None.")
    if splits < 1:
        raise ProgramError(f"DataGeneratorSource: splits is {splits}. Give at least 1.")
