"""The rows of a changing result: the state of its changelog, as of a committed epoch.

A result is a multiset of rows. Changes are applied by whole epochs, and within an epoch additions before retractions:
tasks deliver in any order, and a row that moves from one task to another is then neither counted twice nor lost. If
there are very many rows, only the newest are retained, because the screen shows no others; the rest are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["LiveRows"]

_RETAINED_MAX = 100_000
_ADDING = ("+I", "+U")


class LiveRows:
    """The current rows of a result, in the order in which they were added.

    >>> rows = LiveRows()
    >>> rows.apply([["+I", "a", "1"], ["+I", "b", "1"]])
    >>> rows.apply([["-U", "a", "1"], ["+U", "a", "2"]])
    >>> rows.count, rows.newest(10)
    (2, [('b', '1'), ('a', '2')])
    """

    def __init__(self, retained_max: int = _RETAINED_MAX) -> None:
        self._retained_max = retained_max
        self._times: dict[tuple[str, ...], int] = {}
        self._retained = self._evicted = 0

    @property
    def count(self) -> int:
        """The number of rows."""
        return self._retained + self._evicted

    def apply(self, changes: Iterable[Sequence[str]]) -> None:
        """Apply the changes of whole epochs: the kind of each, then its row."""
        retracted: list[tuple[str, ...]] = []
        for kind, *values in changes:
            if kind in _ADDING:
                self._add(tuple(values))
            else:
                retracted.append(tuple(values))
        for row in retracted:
            self._retract(row)
        self._evict()

    def _add(self, row: tuple[str, ...]) -> None:
        self._times[row] = self._times.pop(row, 0) + 1
        self._retained += 1

    def _retract(self, row: tuple[str, ...]) -> None:
        times = self._times.get(row, 0)
        if times == 0:
            # The row was evicted. (Retracting a row that never was in the result changes nothing.)
            self._evicted = max(0, self._evicted - 1)
            return
        self._retained -= 1
        if times > 1:
            self._times[row] = times - 1
        else:
            del self._times[row]

    def _evict(self) -> None:
        while len(self._times) > self._retained_max:
            times = self._times.pop(next(iter(self._times)))
            self._retained -= times
            self._evicted += times

    def newest(self, most: int) -> list[tuple[str, ...]]:
        """The newest rows, in the order of their arrival."""
        newest: list[tuple[str, ...]] = []
        for row in reversed(self._times):
            newest += [row] * min(self._times[row], most - len(newest))
            if len(newest) >= most:
                break
        return newest[::-1]
