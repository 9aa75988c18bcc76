"""What a time-to-live means, a change at a time: groups and first rows that are forgotten by the clock.

A group is forgotten when no row has come for it, or gone of it, for so long; a row of a Top-N so long after it came.
What is taken away of rows that were forgotten is not missed. The clock is that of the epoch, whose changes are netted
before anything else: a row that goes and an equal one that comes are no change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.common.types import RowKind

__all__ = ["ForgettingGroups", "ForgettingRanks"]

Change = tuple[RowKind, tuple[Any, ...]]
_COMES = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass
class ForgettingGroups:
    """COUNT(*) and SUM of the second column by the first one."""

    ttl_ms: int
    groups: dict[Any, tuple[int, int, int]] = field(default_factory=dict)  # rows, sum, last touched

    def apply(self, changes: Iterable[Change], now_ms: int) -> list[Change]:
        """What changes of the groups in an epoch."""
        alive = {key: group for key, group in self.groups.items() if group[2] + self.ttl_ms > now_ms}
        after = dict(alive)
        for kind, (key, value) in changes:
            rows, total, _ = after.get(key, (0, 0, 0))
            sign = 1 if kind in _COMES else -1
            after[key] = (rows + sign, total + sign * value, now_ms)
        self.groups = {key: group for key, group in after.items() if group[0] > 0}
        return _difference(_rows(alive), _rows(self.groups))


def _rows(groups: dict[Any, tuple[int, int, int]]) -> dict[Any, tuple[Any, ...]]:
    return {key: (key, rows, total) for key, (rows, total, _) in groups.items()}


def _difference(before: dict[Any, tuple[Any, ...]], after: dict[Any, tuple[Any, ...]]) -> list[Change]:
    given: list[Change] = []
    for key in {**before, **after}:
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if was is not None:
            given.append((RowKind.DELETE if now is None else RowKind.UPDATE_BEFORE, was))
        if now is not None:
            given.append((RowKind.INSERT if was is None else RowKind.UPDATE_AFTER, now))
    return given


def _netted(changes: Iterable[Change]) -> list[Change]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for kind, row in changes:
        counts[row] += 1 if kind in _COMES else -1
    kinds = ((RowKind.INSERT if count > 0 else RowKind.DELETE, row, abs(count)) for row, count in counts.items())
    return [(kind, row) for kind, row, count in kinds for _ in range(count)]


@dataclass
class ForgettingRanks:
    """Of each value of the first column the `last` rows with the largest second one; of equal ones the first."""

    ttl_ms: int
    last: int
    is_changing: bool
    rows: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)  # as they came, and when

    def apply(self, changes: Iterable[Change], now_ms: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The rows that go from among the first in an epoch, and those that come; of partitions that changed."""
        changes = _netted(changes)
        self.rows = [each for each in self.rows if each[1] + self.ttl_ms > now_ms]
        before, touched = self._first(), {row[0] for _, row in changes}
        for kind, row in changes:
            if kind in _COMES:
                self.rows.append((row, now_ms))
            else:
                found = next((at for at, (each, _) in enumerate(self.rows) if each == row), None)
                if found is not None:
                    del self.rows[found]
        after = self._first()
        if not self.is_changing:
            self.rows = [each for each in self.rows if each in after or each[0][0] not in touched]
        was = [row for row, _ in before if row[0] in touched]
        now = [row for row, _ in after if row[0] in touched]
        for row in list(was):
            if row in now:
                was.remove(row)
                now.remove(row)
        return was, now

    def _first(self) -> list[tuple[tuple[Any, ...], int]]:
        first: list[tuple[tuple[Any, ...], int]] = []
        for key in {row[0] for row, _ in self.rows}:
            rows = [each for each in self.rows if each[0][0] == key]
            first += sorted(rows, key=lambda each: -each[0][1])[: self.last]
        return first
