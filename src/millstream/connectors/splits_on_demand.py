"""A long list of splits, each created when it is accessed.

A source of a million files plans a few hundred of them at a time. This sequence creates the splits of an item (a file)
on access, caches the latest ones, and evicts the others: of a planned item, only a number in an array remains. Planning
an item again returns the same splits, so dropping them has no visible effect.

The length counts an item that is not yet planned as one split. It only ever grows, and the list is append-only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

from millstream.connectors.contracts import Split

__all__ = ["SplitsOnDemand"]

_Thing = TypeVar("_Thing")
_RECENT_MAX = 2_048


class SplitsOnDemand(Sequence[Split], Generic[_Thing]):
    """The splits of `things`, which is append-only. `plan` returns the splits of one item: at least one, always the
    same.

    >>> splits = SplitsOnDemand(["ab", "c"], lambda word: [Split(letter) for letter in word])
    >>> len(splits), splits[1].name, len(splits), [split.name for split in splits]
    (2, 'b', 3, ['a', 'b', 'c'])
    """

    def __init__(self, things: Sequence[_Thing], plan: Callable[[_Thing], Sequence[Split]]) -> None:
        self._things = things
        self._plan = plan
        self._starts = array("q")  # for each planned thing: the number of its first split
        self._count = 0
        self._recent: OrderedDict[int, Sequence[Split]] = OrderedDict()

    def __len__(self) -> int:
        return self._count + len(self._things) - len(self._starts)

    @overload
    def __getitem__(self, at: int) -> Split: ...

    @overload
    def __getitem__(self, at: slice) -> list[Split]: ...

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return list(self)[at]
        while at >= self._count:
            thing = len(self._starts)
            if thing == len(self._things):
                raise IndexError(at)
            self._starts.append(self._count)
            self._count += len(self._splits_of(thing))
        number = at if at >= 0 else at + len(self)
        thing = bisect_right(self._starts, number) - 1
        return self._splits_of(thing)[number - self._starts[thing]]

    def _splits_of(self, thing: int) -> Sequence[Split]:
        splits = self._recent.get(thing)
        if splits is not None:
            self._recent.move_to_end(thing)
        else:
            splits = self._recent[thing] = self._plan(self._things[thing])
            if len(self._recent) > _RECENT_MAX:
                self._recent.popitem(last=False)
        return splits
