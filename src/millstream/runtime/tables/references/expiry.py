"""Time-to-live, a change at a time: the slow reference for groups, and for rows of Top-N, OVER and joins.

A group expires when it had no insert or delete for the time-to-live; a row expires that long after its arrival. Its
emitted output stays, and deletes of expired rows are ignored. Time is the epoch's processing time.

A delete removes the first of equal rows, and an epoch's inserts precede its deletes: tasks are read in any order. So a
row deleted and inserted again is new, however its changes are divided into epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.common.types import RowKind

__all__ = ["ExpiringGroups", "ExpiringJoin", "ExpiringRows"]

Change = tuple[RowKind, tuple[Any, ...]]
_INSERTS = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass
class ExpiringGroups:
    """COUNT(*) and SUM of the second column by the first one."""

    ttl_ms: int
    groups: dict[Any, tuple[int, int, int]] = field(default_factory=dict)  # rows, sum, last touched

    def apply(self, changes: Iterable[Change], now_ms: int) -> list[Change]:
        """The changes of the groups in an epoch."""
        alive = {key: group for key, group in self.groups.items() if group[2] + self.ttl_ms > now_ms}
        after = dict(alive)
        for kind, (key, value) in changes:
            rows, total, _ = after.get(key, (0, 0, 0))
            sign = 1 if kind in _INSERTS else -1
            after[key] = (rows + sign, total + sign * value, now_ms)
        self.groups = {key: group for key, group in after.items() if group[0] > 0}
        return _difference(_rows(alive), _rows(self.groups))


def _rows(groups: dict[Any, tuple[int, int, int]]) -> dict[Any, tuple[Any, ...]]:
    return {key: (key, rows, total) for key, (rows, total, _) in groups.items()}


def _difference(before: dict[Any, tuple[Any, ...]], after: dict[Any, tuple[Any, ...]]) -> list[Change]:
    emitted: list[Change] = []
    for key in {**before, **after}:
        previous, current = before.get(key), after.get(key)
        if previous == current:
            continue
        if previous is not None:
            emitted.append((RowKind.DELETE if current is None else RowKind.UPDATE_BEFORE, previous))
        if current is not None:
            emitted.append((RowKind.INSERT if previous is None else RowKind.UPDATE_AFTER, current))
    return emitted


def _in_order(changes: Iterable[Change]) -> list[Change]:
    """Inserts, then deletes."""
    return sorted(changes, key=lambda change: change[0] not in _INSERTS)


@dataclass(eq=False)
class _PlacedRow:
    """A live row of a partition: its arrival, and the result it was emitted with (its row number or OVER results);
    None: not emitted."""

    row: tuple[Any, ...]
    arrived_ms: int
    result: Any = None


@dataclass
class ExpiringRows:
    """The live rows of each value of the first column, with results from `results_of`, which gets all rows of a
    partition in arrival order. Remaining rows are emitted again when their partition changes."""

    ttl_ms: int
    results_of: Callable[[list[tuple[Any, ...]]], list[Any]]
    keeps_all: bool = True
    rows: list[_PlacedRow] = field(default_factory=list)

    def apply(self, changes: Iterable[Change], now_ms: int) -> Counter[tuple[Any, ...]]:
        """Net inserts (above 0) and deletes (below) of an epoch, each row with its result."""
        self.rows = [each for each in self.rows if each.arrived_ms + self.ttl_ms > now_ms]
        net: Counter[tuple[Any, ...]] = Counter()
        touched: dict[Any, None] = {}
        for kind, row in _in_order(changes):
            touched[row[0]] = None
            if kind in _INSERTS:
                self.rows.append(_PlacedRow(row, now_ms))
                continue
            match = next((each for each in self.rows if each.row == row), None)
            if match is not None:
                self.rows.remove(match)
                if match.result is not None:
                    net[(*row, match.result)] -= 1
        for key in touched:
            rows = [each for each in self.rows if each.row[0] == key]
            for each, result in zip(rows, self.results_of([each.row for each in rows]), strict=True):
                if each.result is not None:
                    net[(*each.row, each.result)] -= 1
                if result is not None:
                    net[(*each.row, result)] += 1
                elif not self.keeps_all:
                    self.rows.remove(each)
                each.result = result
        return Counter({row: count for row, count in net.items() if count})


@dataclass(eq=False)
class _JoinedRow:
    """A live row of a join: its arrival, and the number of its emitted matches that were not deleted."""

    row: tuple[Any, ...]
    arrived_ms: int
    matches_of: int = 0


@dataclass
class ExpiringJoin:
    """A join by the first columns of both sides. `matches` is the rest of its condition; `unique`: the sides whose keys
    are unique; `widths`: the number of NULLs that pad a side."""

    kind: str
    ttl_ms: tuple[int | None, int | None]
    widths: tuple[int, int]
    matches: Callable[[Any, Any], bool | None] = lambda a, b: True
    unique: tuple[bool, bool] = (False, False)
    rows: tuple[list[_JoinedRow], list[_JoinedRow]] = field(default_factory=lambda: ([], []))
    net: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def apply(self, changes: tuple[Iterable[Change], Iterable[Change]], now_ms: int) -> Counter[tuple[Any, ...]]:
        """Net inserts (above 0) and deletes (below) of an epoch."""
        self.net = Counter()
        for rows, ttl_ms in zip(self.rows, self.ttl_ms, strict=True):
            rows[:] = [each for each in rows if ttl_ms is None or each.arrived_ms + ttl_ms > now_ms]
        for side in (0, 1):
            for kind, row in _in_order(changes[side]):
                if kind in _INSERTS:
                    self._insert(side, row, now_ms)
                else:
                    self._delete(side, row)
        return Counter({row: count for row, count in self.net.items() if count})

    def _insert(self, side: int, row: tuple[Any, ...], now_ms: int) -> None:
        matches_of = self._matches(side, row)
        new = _JoinedRow(row, now_ms, len(matches_of))
        if row[0] is not None:
            self.rows[side].append(new)
        self._emit(side, new, 1)
        for other in matches_of:
            self._pair(side, row, other.row, 1)
            self._set_matches(1 - side, other, other.matches_of + 1)
        self._end_expired(side, row)

    def _delete(self, side: int, row: tuple[Any, ...]) -> None:
        if row[0] is None:  # it was never stored, and was emitted as unmatched
            self._emit(side, _JoinedRow(row, 0), -1)
            return
        match = next((each for each in self.rows[side] if each.row == row), None)
        if match is None:  # it had expired: subtract one expired match from its matches
            for other in self._matches(side, row):
                if other.matches_of > len(self._matches(1 - side, other.row)):
                    self._set_matches(1 - side, other, other.matches_of - 1)
        else:
            self.rows[side].remove(match)
            self._emit(side, match, -1)
            for other in self._matches(side, row):
                self._pair(side, row, other.row, -1)
                self._set_matches(1 - side, other, other.matches_of - 1)
        self._end_expired(side, row)

    def _end_expired(self, side: int, row: tuple[Any, ...]) -> None:
        """If keys of the side are unique, any change of a key ends its expired rows."""
        for other in self.rows[1 - side] if self.unique[side] else ():
            if other.row[0] == row[0]:
                self._set_matches(1 - side, other, len(self._matches(1 - side, other.row)))

    def _matches(self, side: int, row: tuple[Any, ...]) -> list[_JoinedRow]:
        """The live matches on the other side."""
        pairs = ((each, (row, each.row) if side == 0 else (each.row, row)) for each in self.rows[1 - side])
        return [each for each, (a, b) in pairs if a[0] is not None and a[0] == b[0] and self.matches(a, b)]

    def _set_matches(self, side: int, row: _JoinedRow, matches_of: int) -> None:
        self._emit(side, row, -1)
        row.matches_of = matches_of
        self._emit(side, row, 1)

    def _pair(self, side: int, row: tuple[Any, ...], other: tuple[Any, ...], sign: int) -> None:
        if self.kind not in ("SEMI", "ANTI"):
            self.net[(*row, *other) if side == 0 else (*other, *row)] += sign

    def _emit(self, side: int, row: _JoinedRow, sign: int) -> None:
        """Add or retract the row's own output: unmatched rows, and rows of SEMI and ANTI."""
        if side == 0 and self.kind in ("SEMI", "ANTI"):
            self.net[row.row] += sign * ((row.matches_of > 0) == (self.kind == "SEMI"))
        elif self.kind in (("LEFT", "FULL"), ("RIGHT", "FULL"))[side] and not row.matches_of:
            nulls = (None,) * self.widths[1 - side]
            self.net[(*row.row, *nulls) if side == 0 else (*nulls, *row.row)] += sign
