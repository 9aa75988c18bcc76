"""A source over values that the program itself holds.

One split, whose offset is the index of the next value. The values travel to the tasks inside the plan, so this is
for tests and small inputs; the order of the list is kept. It refuses nothing: checking the values against their
type is the stream's own business, where the error can name the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split

__all__ = ["CollectionSource"]

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
