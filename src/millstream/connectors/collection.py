"""A source over values that the program itself holds.

One split, whose offset is the index of the next value. The values travel to the tasks inside the plan, so this is for
tests and small inputs; the order of the list is kept. A plan is pickled more than once (to see whether it can travel,
and to send it): the values are pickled the first time, and never changed. It refuses nothing: checking the values
against their type is the stream's own business, where the error can name the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle

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
