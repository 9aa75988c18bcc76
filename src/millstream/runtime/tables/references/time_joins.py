"""Joins by time the slow and obvious way, row by row, to hold the operators against.

An epoch is the rows of both sides, (key, time, contents), and the watermark when they are in. Results are pairs of
contents, None where a side has no row, with the epoch they come in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.records.watermarks import MIN_WATERMARK

__all__ = ["JoinEpoch", "TimedRow", "interval_pairs", "temporal_pairs", "window_pairs"]

Condition = Callable[[Any, Any], bool]
Result = tuple[int, Any, Any]


@dataclass(frozen=True)
class TimedRow:
    """A row of one side. For windows `time` is the last moment of its window, which is part of its key."""

    key: Any
    time: int
    contents: Any


@dataclass(frozen=True)
class JoinEpoch:
    lefts: Sequence[TimedRow]
    rights: Sequence[TimedRow]
    watermark: int


@dataclass
class _KeptRow:
    row: TimedRow
    until: int
    has_met: bool = False


def interval_pairs(
    epochs: Sequence[JoinEpoch], kind: str, lower_ms: int, upper_ms: int, condition: Condition
) -> list[Result]:
    """Pairs with `lower_ms <= right.time - left.time <= upper_ms`. A row goes when the watermark has passed what it may
    meet; with outer joins it is told then, if it has met nothing."""
    reaches, whole = (upper_ms + 1, 1 - lower_ms), (kind in ("LEFT", "FULL"), kind in ("RIGHT", "FULL"))
    results: list[Result] = []
    kept: tuple[list[_KeptRow], list[_KeptRow]] = ([], [])
    watermark = MIN_WATERMARK
    for number, epoch in enumerate(epochs):
        new = [
            [_KeptRow(row, row.time + reach) for row in rows]
            for rows, reach in zip((epoch.lefts, epoch.rights), reaches, strict=True)
        ]
        lots = ((kept[0], new[1]), (new[0], kept[1]), (new[0], new[1]))
        for left, right in ((a, b) for lefts, rights in lots for a in lefts for b in rights):
            is_near = lower_ms <= right.row.time - left.row.time <= upper_ms
            is_one = left.row.key is not None and left.row.key == right.row.key
            if is_near and is_one and condition(left.row.contents, right.row.contents):
                left.has_met = right.has_met = True
                results.append((number, left.row.contents, right.row.contents))
        watermark = max(watermark, epoch.watermark)
        for side in (0, 1):
            everything = [*kept[side], *new[side]]
            for each in everything:
                if each.until <= watermark and whole[side] and not each.has_met:
                    alone = (each.row.contents, None) if side == 0 else (None, each.row.contents)
                    results.append((number, *alone))
            kept[side][:] = [each for each in everything if each.until > watermark]
    return results


def temporal_pairs(epochs: Sequence[JoinEpoch], kind: str, condition: Condition) -> list[Result]:
    """Every left row, when the watermark has come to its time, with the last version of its key up to it. `rights` are
    versions; contents None: the row is gone. For rows that are not late."""
    results: list[Result] = []
    waiting: list[TimedRow] = []
    versions: dict[tuple[Any, int], Any] = {}
    watermark = MIN_WATERMARK
    for number, epoch in enumerate(epochs):
        versions.update({(row.key, row.time): row.contents for row in epoch.rights if row.key is not None})
        watermark = max(watermark, epoch.watermark)
        rows = [*waiting, *epoch.lefts]
        waiting = [row for row in rows if row.time > watermark]
        for row in rows:
            times = [time for key, time in versions if key == row.key and time <= row.time]
            found = versions[row.key, max(times)] if times else None
            if row.time > watermark:
                continue
            if found is not None and condition(row.contents, found):
                results.append((number, row.contents, found))
            elif kind == "LEFT":
                results.append((number, row.contents, None))
    return results


def window_pairs(epochs: Sequence[JoinEpoch], kind: str, condition: Condition) -> list[Result]:
    """What is in one window meets when the watermark has come to its last moment; what comes later is late."""
    results: list[Result] = []
    open_rows: tuple[list[TimedRow], list[TimedRow]] = ([], [])
    watermark = MIN_WATERMARK
    for number, epoch in enumerate(epochs):
        for side, rows in zip(open_rows, (epoch.lefts, epoch.rights), strict=True):
            side.extend(row for row in rows if row.time > watermark)
        watermark = max(watermark, epoch.watermark)
        lefts, rights = ([row for row in side if row.time <= watermark] for side in open_rows)
        for side in open_rows:
            side[:] = [row for row in side if row.time > watermark]

        def meet(left: TimedRow, right: TimedRow) -> bool:
            is_one = left.key is not None and (left.key, left.time) == (right.key, right.time)
            return is_one and condition(left.contents, right.contents)

        partners = [[right for right in rights if meet(left, right)] for left in lefts]
        for left, found in zip(lefts, partners, strict=True):
            if (kind == "SEMI" and found) or (kind == "ANTI" and not found):
                results.append((number, left.contents, None))
            elif kind not in ("SEMI", "ANTI"):
                results += [(number, left.contents, right.contents) for right in found]
                results += [(number, left.contents, None)] if not found and kind in ("LEFT", "FULL") else []
        if kind in ("RIGHT", "FULL"):
            alone = [right for right in rights if not any(meet(left, right) for left in lefts)]
            results += [(number, None, right.contents) for right in alone]
    return results
