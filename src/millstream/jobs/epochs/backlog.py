"""How far a job is behind its input, and when it will have caught up. Pure.

A source that can count tells, with every epoch, about how many records it has left (`Source.backlog`). How fast that
number falls, over the last while, says when it will be nothing: the rate at which records arrive is in it already. One
epoch alone says little, because epochs are of different sizes and take different times; so the oldest and the newest
within `WINDOW_MS` are compared. A backlog that does not fall has no end in sight, and none is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["WINDOW_MS", "Backlog", "BacklogSample", "backlog_after", "records_behind"]

WINDOW_MS = 60_000


@dataclass(frozen=True)
class BacklogSample:
    """So many records were left at this moment."""

    at_ms: int
    behind: int


@dataclass(frozen=True)
class Backlog:
    """What is left, and in how many ms there will be nothing of it; None: not known, or never at this rate."""

    behind: int
    caught_up_in_ms: int | None
    samples: tuple[BacklogSample, ...] = ()


def records_behind(statistics: Mapping[str, Any]) -> int | None:
    """What all sources of an epoch together had left; None: none of them can tell.

    >>> records_behind({"behind": {"orders": 3, "clicks": 4}}), records_behind({})
    (7, None)
    """
    behind = statistics.get("behind")
    return sum(behind.values()) if isinstance(behind, dict) and behind else None


def backlog_after(before: Backlog | None, sample: BacklogSample) -> Backlog:
    """After one more epoch.

    >>> backlog = None
    >>> for second in range(4):
    ...     backlog = backlog_after(backlog, BacklogSample(1000 * second, 1_000_000 - 100_000 * second))
    >>> backlog.behind, backlog.caught_up_in_ms
    (700000, 7000)
    """
    samples = () if before is None else before.samples
    samples = (*(old for old in samples if sample.at_ms - old.at_ms <= WINDOW_MS), sample)
    first = samples[0]
    fallen, took_ms = first.behind - sample.behind, sample.at_ms - first.at_ms
    remaining_ms = round(sample.behind * took_ms / fallen) if fallen > 0 and took_ms > 0 else None
    return Backlog(sample.behind, 0 if sample.behind == 0 else remaining_ms, samples)
