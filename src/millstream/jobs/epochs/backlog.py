"""Estimates how far a job is behind its input, and when it will have caught up. Pure, except for querying the sources.

A source that can count its input estimates after every epoch how many records are left (`Source.backlog`). The rate at
which that number falls, which already accounts for arriving records, predicts when it reaches zero. Epochs differ in
size and duration, so the oldest and the newest sample within `WINDOW_MS` are compared. For a backlog that does not
fall, no time is predicted.
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
    """The number of records left at one point in time."""

    at_ms: int
    behind: int


@dataclass(frozen=True)
class Backlog:
    """The records left, and the ms until none is left; None: unknown, or never at this rate."""

    behind: int
    caught_up_in_ms: int | None
    samples: tuple[BacklogSample, ...] = ()


def records_behind(statistics: Mapping[str, Any]) -> int | None:
    """The backlog of all sources of an epoch together; None: no source can count its input.

    >>> records_behind({"behind": {"orders": 3, "clicks": 4}}), records_behind({})
    (7, None)
    """
    behind = statistics.get("behind")
    return sum(behind.values()) if isinstance(behind, dict) and behind else None


def left_behind(
    planned: InputPlan, read: Mapping[str, Mapping[str, SplitRead]], sources: Mapping[str, Source]
) -> dict[str, int]:
    """`planned.behind`, plus the rest of ranges that ended before their stops because they reached the limit on bytes.

    `read` is what the tasks of the sources reported, by uid and split.
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
    """The backlog after one more epoch.

    >>> backlog = None
    >>> for second in range(4):
    ...     backlog = backlog_after(backlog, BacklogSample(1000 * second, 1_000_000 - 100_000 * second))
    >>> backlog.behind, backlog.caught_up_in_ms
    (700000, 7000)
    """
    samples = () if before is None else before.samples
    samples = (*(old for old in samples if sample.at_ms - old.at_ms <= WINDOW_MS), sample)
    first = samples[0]
    fallen, elapsed_ms = first.behind - sample.behind, sample.at_ms - first.at_ms
    remaining_ms = round(sample.behind * elapsed_ms / fallen) if fallen > 0 and elapsed_ms > 0 else None
    return Backlog(sample.behind, 0 if sample.behind == 0 else remaining_ms, samples)
