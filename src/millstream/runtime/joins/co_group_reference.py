"""Window joins and coGroups: the slow reference for the operators.

Covers event-time windows with fixed bounds that fire when the watermark passes their end, without allowed lateness:
every window of every key has two lists. A record is added to those of its windows that had not ended when its epoch
began; if all had ended, it is late. At the end of an epoch, when the watermark has moved, every ended window emits its
two lists, once. Merging, counting and evicting are tested against `runtime.windows.reference`, on tagged records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.records.watermarks import MIN_WATERMARK

__all__ = ["CoGroupReference", "Met", "TwoSidedEpoch"]

Timed = tuple[Any, Any, int]  # key, value, timestamp


@dataclass(frozen=True)
class TwoSidedEpoch:
    """The records of both streams, and the watermark after them."""

    lefts: Sequence[Timed]
    rights: Sequence[Timed]
    watermark: int


@dataclass(frozen=True)
class Met:
    """The records of both sides of a window, and the epoch in which it fired (the first is 0)."""

    epoch: int
    key: Any
    window: Any
    lefts: tuple[Any, ...]
    rights: tuple[Any, ...]


@dataclass
class CoGroupReference:
    """`met` and `late` (of each side) collect the results of the epochs run so far."""

    assigner: Any
    met: list[Met] = field(default_factory=list)
    late: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))

    def run(self, epochs: Sequence[TwoSidedEpoch]) -> CoGroupReference:
        """Run all epochs in order."""
        windows: dict[tuple[Any, Any], tuple[list[Any], list[Any]]] = {}
        watermark = MIN_WATERMARK
        for number, epoch in enumerate(epochs):
            for side, records in enumerate((epoch.lefts, epoch.rights)):
                for key, value, timestamp in records:
                    assigned = self.assigner.assign_windows(value, timestamp, None)
                    in_time = [window for window in assigned if window.max_timestamp() > watermark]
                    for window in in_time:
                        windows.setdefault((key, window), ([], []))[side].append(value)
                    if not in_time:
                        self.late[side].append(value)
            watermark = max(watermark, epoch.watermark)
            for key, window in [place for place in windows if place[1].max_timestamp() <= watermark]:
                lefts, rights = windows.pop((key, window))
                self.met.append(Met(number, key, window, tuple(lefts), tuple(rights)))
        return self

    def pairs(self) -> Iterator[tuple[Met, Any, Any]]:
        """The results of a join: every left record with every right one."""
        for met in self.met:
            for left in met.lefts:
                for right in met.rights:
                    yield met, left, right
