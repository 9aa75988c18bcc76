"""The input of an epoch, as data, and the rules that distribute splits and budget. Pure.

**Which subtask** (`homes`): a split stays with its subtask from epoch to epoch, so that a watermark strategy in the
middle of the stream sees the times of the same records in the same subtask. A split moves only when the parallelism
changes, or when finished splits have left the distribution uneven.

**Which wait** (`held_back`): a split that is too far ahead of its alignment group is not read until the slowest has
caught up.

**How much** (`share_out`): splits with little input leave the rest of the epoch's budget to those with more. The amount
of a split's input is unknown: only its source understands offsets. A source can only report the offset that a number of
records would reach, and two such answers can be compared. So every split is queried with a fair share and with a small
part of it. A split that reaches no further with the larger number has no more input, and is assigned the smaller one.
The rest of the budget is distributed among the other splits in the same way, in growing shares. The shares add up to at
most the budget (or to one record each, if there are more splits than that). A split that is limited by its share has
the largest share of all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millstream.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from millstream.connectors.contracts import Source, SourceContext, Split
from millstream.records.watermarks import IDLE_WATERMARK
from millstream.runtime.task.spec import ReadRange
from millstream.state.stored.times import EventTimeState

__all__ = [
    "NO_CURSOR",
    "AlignedSplit",
    "Cursor",
    "InputPlan",
    "LiveSplit",
    "PlannedSource",
    "WaitingSplit",
    "aligned_splits",
    "held_back",
    "homes",
    "share_out",
    "without_reads",
]

_SMALL_PART = 64
_GROWTH_MIN = 1.25
"""Another round of queries must increase the share by at least this factor."""


@dataclass(frozen=True)
class PlannedSource:
    """A source of the job, by the uid of its node."""

    uid: str
    source: Source
    parallelism: int

    def in_context(self, context: SourceContext) -> SourceContext:
        """The context for querying this source."""
        return replace(context, parallelism=self.parallelism, uid=self.uid)


class LiveSplit(NamedTuple):
    """An unfinished split with its position."""

    split: Split
    offset: Any
    time: EventTimeState
    subtask: int


@dataclass(frozen=True)
class WaitingSplit:
    """An unfinished split that the epoch does not read: it currently has no input, or its alignment group holds it
    back."""

    split: str
    time: EventTimeState
    subtask: int
    held: bool = False


@dataclass(frozen=True)
class Cursor:
    """The part of a sequential source's list that need not be examined again: the first `passed` splits are all
    finished except those at `unfinished`; `listed` splits are known in total."""

    passed: int = 0
    listed: int = 0
    unfinished: tuple[int, ...] = ()


NO_CURSOR = Cursor()


@dataclass(frozen=True)
class InputPlan:
    """The ranges of one epoch. `exhausted`: no input will ever follow them.

    `ended` are the sources without further input, `now_ms` is the epoch's processing time. `shares`: the number of
    records planned for each range. `unread`: the number of splits of a sequential source after those that are read;
    `cursors`: where the next plan may begin. `unlisted`: finished splits that a source no longer lists, so the manifest
    need not list them either. `behind`: about how many records each source has left after these ranges, if it can count
    them. `starts`: the beginnings of splits that have no position yet, of sources that store these
    (`Source.keeps_starts`). `by_time`: the sources that are read in time order (`reading_order`). Many fields:
    the result of one query of all sources.
    """

    reads: Mapping[str, tuple[ReadRange, ...]]
    waiting: Mapping[str, tuple[WaitingSplit, ...]]
    ended: frozenset[str]
    has_input: bool
    exhausted: bool
    now_ms: int
    run_started_ms: int
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    unlisted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_time: frozenset[str] = frozenset()


def without_reads(planned: InputPlan) -> InputPlan:
    """The plan without its ranges: the job ends at its current positions."""
    return replace(planned, reads=dict.fromkeys(planned.reads, ()), has_input=False)


# --- which subtask, which wait, how much -----------------------------------------------------------------------


def homes(splits: Iterable[str], before: Mapping[str, int], parallelism: int) -> dict[str, int]:
    """The subtask that reads each split: the previous one, unless that leaves a subtask two splits short of another.

    >>> homes(["a", "b", "c"], {}, 2)
    {'a': 0, 'b': 1, 'c': 0}
    >>> homes(["b", "c", "d"], {"a": 0, "b": 1, "c": 0}, 2)
    {'b': 1, 'c': 0, 'd': 0}
    >>> homes(["a", "c"], {"a": 0, "b": 1, "c": 0}, 2)
    {'a': 0, 'c': 1}
    """
    names = list(splits)
    residents: list[list[str]] = [[] for _ in range(parallelism)]
    newcomers: list[str] = []
    for name in names:
        home = before.get(name, parallelism)
        (residents[home] if home < parallelism else newcomers).append(name)
    by_number = [(len(group), subtask) for subtask, group in enumerate(residents)]
    heapq.heapify(by_number)
    for name in newcomers:
        count, subtask = by_number[0]
        residents[subtask].append(name)
        heapq.heapreplace(by_number, (count + 1, subtask))
    while len(max(residents, key=len)) - len(min(residents, key=len)) > 1:
        min(residents, key=len).append(max(residents, key=len).pop())
    subtasks = {name: subtask for subtask, group in enumerate(residents) for name in group}
    return {name: subtasks[name] for name in names}


@dataclass(frozen=True)
class AlignedSplit:
    """A split as its alignment group sees it."""

    uid: str
    split: str
    alignment: WatermarkAlignment
    watermark: int
    idle: bool


def aligned_splits(
    live: Mapping[str, list[LiveSplit]], strategies: Mapping[str, WatermarkStrategy], now_ms: int
) -> list[AlignedSplit]:
    """The splits that belong to alignment groups."""
    aligned: list[AlignedSplit] = []
    for uid, strategy in strategies.items():
        if strategy.alignment is not None:
            for split, _, split_time, _ in live.get(uid, ()):
                idle = split_time.effective_watermark(strategy.idle_timeout_ms, now_ms) == IDLE_WATERMARK
                aligned.append(AlignedSplit(uid, split.name, strategy.alignment, split_time.watermark, idle))
    return aligned


def held_back(splits: Iterable[AlignedSplit]) -> frozenset[tuple[str, str]]:
    """The splits, as (uid, name), that must wait for the slowest of their group. Idle splits do not hold a group back.

    >>> group = WatermarkAlignment("g", max_drift_ms=10, update_interval_ms=1000)
    >>> fast, slow = (AlignedSplit("in", name, group, at, idle=False) for name, at in (("fast", 50), ("slow", 20)))
    >>> held_back([fast, slow]), held_back([fast, replace(slow, idle=True)])
    (frozenset({('in', 'fast')}), frozenset())
    """
    splits = list(splits)
    slowest: dict[str, int] = {}
    for split in splits:
        if not split.idle:
            group = split.alignment.group
            slowest[group] = min(split.watermark, slowest.get(group, split.watermark))
    return frozenset(
        (split.uid, split.split)
        for split in splits
        if split.alignment.group in slowest
        and split.watermark > slowest[split.alignment.group] + split.alignment.max_drift_ms
    )


def share_out(offsets: Sequence[Any], budget: int, reach: Callable[[int, int], Any]) -> list[tuple[Any, int]]:
    """The stop offset of each split, and its planned share; 0: it cannot be read now.

    `reach(i, share)` returns how far split `i`, at `offsets[i]`, can be read with `share` records.

    >>> stored = [3, 0, 1000, 0]
    >>> share_out([0, 0, 0, 0], 100, lambda i, share: min(stored[i], share))
    [(3, 25), (0, 0), (75, 75), (0, 0)]
    """
    shares: list[tuple[Any, int]] = [(offset, 0) for offset in offsets]
    hungry, budget_left, share_before = list(range(len(offsets))), budget, 0
    while hungry:
        fair = max(1, budget_left // len(hungry))
        if share_before and fair < share_before * _GROWTH_MIN:
            break
        first = () if share_before or fair == 1 else (max(1, fair // _SMALL_PART),)
        for share in (*first, fair):
            further = []
            for i in hungry:
                stop = reach(i, share)
                if stop == shares[i][0]:
                    budget_left -= shares[i][1]
                else:
                    shares[i] = (stop, share)
                    further.append(i)
            hungry, share_before = further, share
    return shares
