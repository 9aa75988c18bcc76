"""Interval joins: the slow reference for the operator. Two loops over lists.

It stores every timely record forever, and compares each new one with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.records.watermarks import MIN_WATERMARK

__all__ = ["IntervalJoinReference", "Timed"]


@dataclass(frozen=True)
class Timed:
    """A record with its key and its timestamp."""

    key: Any
    time_ms: int
    value: Any


@dataclass
class IntervalJoinReference:
    """Joins its input, epoch by epoch; both bounds are inclusive.

    >>> join = IntervalJoinReference(lower_ms=-1, upper_ms=1)
    >>> join.epoch([Timed("k", 5, "a")], [], watermark_ms=5)
    []
    >>> join.epoch([], [Timed("k", 6, "b"), Timed("k", 7, "c"), Timed("k", 4, "d")], watermark_ms=9)
    [('a', 'b', 6)]
    >>> join.late_right
    ['d']
    """

    lower_ms: int
    upper_ms: int
    late_left: list[Any] = field(default_factory=list)
    late_right: list[Any] = field(default_factory=list)
    _left: list[Timed] = field(default_factory=list)
    _right: list[Timed] = field(default_factory=list)
    _watermark_ms: int = MIN_WATERMARK

    def epoch(self, left: Sequence[Timed], right: Sequence[Timed], watermark_ms: int) -> list[tuple[Any, Any, int]]:
        """The pairs of an epoch with at least one new record, and the time of each. Event time then advances."""
        new_left, new_right = self._on_time(left, self.late_left), self._on_time(right, self.late_right)
        old_left, old_right = len(self._left), len(self._right)
        self._left += new_left
        self._right += new_right
        pairs = [
            (a.value, b.value, max(a.time_ms, b.time_ms))
            for row, a in enumerate(self._left)
            for other, b in enumerate(self._right)
            if (row >= old_left or other >= old_right) and self._joins(a, b)
        ]
        self._watermark_ms = max(self._watermark_ms, watermark_ms)
        return pairs

    def _on_time(self, records: Sequence[Timed], late: list[Any]) -> list[Timed]:
        late += [record.value for record in records if record.time_ms < self._watermark_ms]
        return [record for record in records if record.time_ms >= self._watermark_ms]

    def _joins(self, a: Timed, b: Timed) -> bool:
        return bool(a.key == b.key) and a.time_ms + self.lower_ms <= b.time_ms <= a.time_ms + self.upper_ms
