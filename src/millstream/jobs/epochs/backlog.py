"""How far a job is behind its input, and when it will have caught up. Pure, but for asking the sources.

A source that can count tells, with every epoch, about how many records it has left (`Source.backlog`). How fast that
number falls, over the last while, says when it will be nothing: the rate at which records arrive is in it already. One
epoch alone says little, because epochs are of different sizes and take different times; so the oldest and the newest
within `WINDOW_MS` are compared. A backlog that does not fall has no end in sight, and none is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.connectors.contract_checks import backlog_of
from millstream.connectors.contracts import Source, SourceContext
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.runtime.exchange.messages import SplitRead

__all__ = ["WINDOW_MS", "Backlog", "BacklogSample", "backlog_after", "left_behind", "records_behind"]

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


def left_behind(
    planned: InputPlan, read: Mapping[str, Mapping[str, SplitRead]], sources: Mapping[str, Source]
) -> dict[str, int]:
    """`planned.behind`, with what was left of ranges that ended before their stops: at their bytes, not their records.

    `read` is what the sources' tasks told, by uid and split.
    """
    behind = dict(planned.behind)
    for uid in behind:
        context = SourceContext(planned.now_ms, planned.run_started_ms, 1, uid=uid)
        for range_ in planned.reads.get(uid, ()):
            split = read.get(uid, {}).get(range_.split.name)
            if split is None or split.offset == range_.stop:
                continue
            left, counted = (
                backlog_of(sources[uid], range_.split, offset, context) for offset in (split.offset, range_.stop)
            )
            behind[uid] += max(0, (left or 0) - (counted or 0))
    return behind


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
