"""What a time-to-live means, a change at a time: groups, and rows of Top-N, OVER and joins, are forgotten by the clock.

A group is forgotten when no row has come for it, or gone of it, for so long; a row so long after it came. What was
given of it stays, and what is taken away of rows that were forgotten is not missed. The clock is that of the epoch.
Of equal rows the first goes, and what comes in the same epoch comes before what goes: tasks are read in any order. So a
row that goes and comes again is young, wherever its changes were cut into epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.common.types import RowKind

__all__ = ["ExpiringGroups", "ExpiringJoin", "ExpiringRows"]

Change = tuple[RowKind, tuple[Any, ...]]
_COMES = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass
class ExpiringGroups:
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


def _in_order(changes: Iterable[Change]) -> list[Change]:
    """What comes, then what goes."""
    return sorted(changes, key=lambda change: change[0] not in _COMES)


@dataclass(eq=False)
class _PlacedRow:
    """A row of a partition that is not forgotten: when it came, and how it stands in what was given: by its number, or
    with its results; None: it was not given."""

    row: tuple[Any, ...]
    came_ms: int
    standing: Any = None


@dataclass
class ExpiringRows:
    """The rows of each value of the first column, which stand as `results_of` says of all rows of a partition, as they
    came. What is forgotten is not among them; rows that are left are given anew when something changes of their
    partition."""

    ttl_ms: int
    results_of: Callable[[list[tuple[Any, ...]]], list[Any]]
    keeps_all: bool = True
    rows: list[_PlacedRow] = field(default_factory=list)

    def apply(self, changes: Iterable[Change], now_ms: int) -> Counter[tuple[Any, ...]]:
        """What comes (above 0) and goes (below) in an epoch, each row with how it stands."""
        self.rows = [each for each in self.rows if each.came_ms + self.ttl_ms > now_ms]
        net: Counter[tuple[Any, ...]] = Counter()
        touched: dict[Any, None] = {}
        for kind, row in _in_order(changes):
            touched[row[0]] = None
            if kind in _COMES:
                self.rows.append(_PlacedRow(row, now_ms))
                continue
            found = next((each for each in self.rows if each.row == row), None)
            if found is not None:
                self.rows.remove(found)
                if found.standing is not None:
                    net[(*row, found.standing)] -= 1
        for key in touched:
            rows = [each for each in self.rows if each.row[0] == key]
            for each, standing in zip(rows, self.results_of([each.row for each in rows]), strict=True):
                if each.standing is not None:
                    net[(*each.row, each.standing)] -= 1
                if standing is not None:
                    net[(*each.row, standing)] += 1
                elif not self.keeps_all:
                    self.rows.remove(each)
                each.standing = standing
        return Counter({row: count for row, count in net.items() if count})


@dataclass(eq=False)
class _JoinedRow:
    """A row of a join that is not forgotten: when it came, and with how many partners it was given that have not
    gone."""

    row: tuple[Any, ...]
    came_ms: int
    partners: int = 0


@dataclass
class ExpiringJoin:
    """A join by the first columns of both sides. `matches` is the rest of its condition; `unique`: of which sides a key
    has one row at most; `widths`: how many NULLs stand for a side."""

    kind: str
    ttl_ms: tuple[int | None, int | None]
    widths: tuple[int, int]
    matches: Callable[[Any, Any], bool | None] = lambda a, b: True
    unique: tuple[bool, bool] = (False, False)
    rows: tuple[list[_JoinedRow], list[_JoinedRow]] = field(default_factory=lambda: ([], []))
    net: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def apply(self, changes: tuple[Iterable[Change], Iterable[Change]], now_ms: int) -> Counter[tuple[Any, ...]]:
        """What comes (above 0) and goes (below) in an epoch."""
        self.net = Counter()
        for rows, ttl_ms in zip(self.rows, self.ttl_ms, strict=True):
            rows[:] = [each for each in rows if ttl_ms is None or each.came_ms + ttl_ms > now_ms]
        for side in (0, 1):
            for kind, row in _in_order(changes[side]):
                if kind in _COMES:
                    self._come(side, row, now_ms)
                else:
                    self._go(side, row)
        return Counter({row: count for row, count in self.net.items() if count})

    def _come(self, side: int, row: tuple[Any, ...], now_ms: int) -> None:
        partners = self._partners(side, row)
        new = _JoinedRow(row, now_ms, len(partners))
        if row[0] is not None:
            self.rows[side].append(new)
        self._stand(side, new, 1)
        for other in partners:
            self._pair(side, row, other.row, 1)
            self._set_partners(1 - side, other, other.partners + 1)
        self._replaced(side, row)

    def _go(self, side: int, row: tuple[Any, ...]) -> None:
        if row[0] is None:  # it was never stored, and stood alone
            self._stand(side, _JoinedRow(row, 0), -1)
            return
        found = next((each for each in self.rows[side] if each.row == row), None)
        if found is None:  # it was forgotten: its partners stand with one less of those
            for other in self._partners(side, row):
                if other.partners > len(self._partners(1 - side, other.row)):
                    self._set_partners(1 - side, other, other.partners - 1)
        else:
            self.rows[side].remove(found)
            self._stand(side, found, -1)
            for other in self._partners(side, row):
                self._pair(side, row, other.row, -1)
                self._set_partners(1 - side, other, other.partners - 1)
        self._replaced(side, row)

    def _replaced(self, side: int, row: tuple[Any, ...]) -> None:
        """Where a key has one row at most, those that were forgotten are gone when the key changes."""
        for other in self.rows[1 - side] if self.unique[side] else ():
            if other.row[0] == row[0]:
                self._set_partners(1 - side, other, len(self._partners(1 - side, other.row)))

    def _partners(self, side: int, row: tuple[Any, ...]) -> list[_JoinedRow]:
        """The rows of the other side that are known, and are partners."""
        pairs = ((each, (row, each.row) if side == 0 else (each.row, row)) for each in self.rows[1 - side])
        return [each for each, (a, b) in pairs if a[0] is not None and a[0] == b[0] and self.matches(a, b)]

    def _set_partners(self, side: int, row: _JoinedRow, partners: int) -> None:
        self._stand(side, row, -1)
        row.partners = partners
        self._stand(side, row, 1)

    def _pair(self, side: int, row: tuple[Any, ...], other: tuple[Any, ...], sign: int) -> None:
        if self.kind not in ("SEMI", "ANTI"):
            self.net[(*row, *other) if side == 0 else (*other, *row)] += sign

    def _stand(self, side: int, row: _JoinedRow, sign: int) -> None:
        """What is given of a row beside pairs comes or goes."""
        if side == 0 and self.kind in ("SEMI", "ANTI"):
            self.net[row.row] += sign * ((row.partners > 0) == (self.kind == "SEMI"))
        elif self.kind in (("LEFT", "FULL"), ("RIGHT", "FULL"))[side] and not row.partners:
            nulls = (None,) * self.widths[1 - side]
            self.net[(*row.row, *nulls) if side == 0 else (*nulls, *row.row)] += sign
