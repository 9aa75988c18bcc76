"""Time joins, row by row: the slow reference for the operators.

An epoch has the rows of both sides, (key, time, contents), and the watermark at its end. Results are pairs of contents,
None for an absent side, with the epoch that emits them.
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
    """A row of one side. For windows `time` is the last time of its window, which is part of its key."""

    key: Any
    time: int
    contents: Any


@dataclass(frozen=True)
class JoinEpoch:
    lefts: Sequence[TimedRow]
    rights: Sequence[TimedRow]
    watermark: int


@dataclass
class _StoredRow:
    row: TimedRow
    until: int
    is_matched: bool = False


def interval_pairs(
    epochs: Sequence[JoinEpoch], kind: str, lower_ms: int, upper_ms: int, condition: Condition
) -> list[Result]:
    """Pairs with `lower_ms <= right.time - left.time <= upper_ms`. A row expires when the watermark passes its last
    possible match; outer joins then emit it if it is unmatched."""
    reaches, whole = (upper_ms + 1, 1 - lower_ms), (kind in ("LEFT", "FULL"), kind in ("RIGHT", "FULL"))
    results: list[Result] = []
    stored: tuple[list[_StoredRow], list[_StoredRow]] = ([], [])
    watermark = MIN_WATERMARK
    for number, epoch in enumerate(epochs):
        new = [
            [_StoredRow(row, row.time + reach) for row in rows]
            for rows, reach in zip((epoch.lefts, epoch.rights), reaches, strict=True)
        ]
        sides = ((stored[0], new[1]), (new[0], stored[1]), (new[0], new[1]))
        for left, right in ((a, b) for lefts, rights in sides for a in lefts for b in rights):
            is_near = lower_ms <= right.row.time - left.row.time <= upper_ms
            is_one = left.row.key is not None and left.row.key == right.row.key
            if is_near and is_one and condition(left.row.contents, right.row.contents):
                left.is_matched = right.is_matched = True
                results.append((number, left.row.contents, right.row.contents))
        watermark = max(watermark, epoch.watermark)
        for side in (0, 1):
            rows_of_side = [*stored[side], *new[side]]
            for each in rows_of_side:
                if each.until <= watermark and whole[side] and not each.is_matched:
                    unmatched = (each.row.contents, None) if side == 0 else (None, each.row.contents)
                    results.append((number, *unmatched))
            stored[side][:] = [each for each in rows_of_side if each.until > watermark]
    return results


def temporal_pairs(epochs: Sequence[JoinEpoch], kind: str, condition: Condition) -> list[Result]:
    """Every left row, when the watermark reaches its time, with the last version of its key up to it. `rights` are
    versions; contents None: a delete. Assumes that no row is late."""
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
            version = versions[row.key, max(times)] if times else None
            if row.time > watermark:
                continue
            if version is not None and condition(row.contents, version):
                results.append((number, row.contents, version))
            elif kind == "LEFT":
                results.append((number, row.contents, None))
    return results


def window_pairs(epochs: Sequence[JoinEpoch], kind: str, condition: Condition) -> list[Result]:
    """Rows of one window are joined when the watermark reaches its last time; later rows are late."""
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

        def is_match(left: TimedRow, right: TimedRow) -> bool:
            is_one = left.key is not None and (left.key, left.time) == (right.key, right.time)
            return is_one and condition(left.contents, right.contents)

        matches_of_left = [[right for right in rights if is_match(left, right)] for left in lefts]
        for left, matches in zip(lefts, matches_of_left, strict=True):
            if (kind == "SEMI" and matches) or (kind == "ANTI" and not matches):
                results.append((number, left.contents, None))
            elif kind not in ("SEMI", "ANTI"):
                results += [(number, left.contents, right.contents) for right in matches]
                results += [(number, left.contents, None)] if not matches and kind in ("LEFT", "FULL") else []
        if kind in ("RIGHT", "FULL"):
            unmatched = [right for right in rights if not any(is_match(left, right) for left in lefts)]
            results += [(number, None, right.contents) for right in unmatched]
    return results
