"""What an epoch reads, as data, and the rules by which splits are shared out. Pure.

**Which subtask** (`homes`): a split stays with its subtask from epoch to epoch, so that a strategy in mid-stream sees
the same records' time in the same place; it moves only when the parallelism changes or finished splits have left the
others badly spread.

**Which wait** (`held_back`): a split that is too far ahead of its alignment group is not read at all until the slowest
has come closer.

**How much** (`share_out`): splits that have little leave the rest of the epoch's budget to those that have more. How
much a split has is not known: an offset means something to its source only. What a source can be asked is how far a
number of records would go, and two answers can be compared. So all splits are asked with a fair share and with a small
part of it. A split that gets no further with the larger number has no more; it is taken to need the smaller one. What
is left of the budget is shared out among the others in the same way, in larger and larger shares. The shares add up to
no more than the budget (or to one record each, if there are more splits than that). A split that could not be read
further than its share has one that no other split's is larger than.
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
"""Asking again is worth it for so much more."""


@dataclass(frozen=True)
class PlannedSource:
    """A source of the job, by the uid of its node."""

    uid: str
    source: Source
    parallelism: int

    def in_context(self, context: SourceContext) -> SourceContext:
        """What this source is told when it is asked."""
        return replace(context, parallelism=self.parallelism, uid=self.uid)


class LiveSplit(NamedTuple):
    """An unfinished split and where it stands."""

    split: Split
    offset: Any
    time: EventTimeState
    subtask: int


@dataclass(frozen=True)
class WaitingSplit:
    """An unfinished split that the epoch does not read: it has no input now, or its alignment group holds it back."""

    split: str
    time: EventTimeState
    subtask: int
    held: bool = False


@dataclass(frozen=True)
class Cursor:
    """How much of the list of a sequential source need not be looked at again: of so many splits at its beginning
    (`passed`) all are finished but those at `unfinished`, and so many are known to be splits (`listed`)."""

    passed: int = 0
    listed: int = 0
    unfinished: tuple[int, ...] = ()


NO_CURSOR = Cursor()


@dataclass(frozen=True)
class InputPlan:
    """The ranges of one epoch. `exhausted`: nothing will ever follow them.

    `ended` are the sources of which nothing is left, `now_ms` is the epoch's processing time. `shares`: how many
    records each range was meant to be. `unread`: how many splits of a sequential source stand behind those that are
    read; `cursors`: where the next plan may begin. `forgotten`: finished splits that a source does not list any more,
    so that the manifest need not do so either. `behind`: about how many records each source has left behind these
    ranges, where it can tell. `starts`: where splits begin that have no position yet and whose source keeps that
    (`Source.keeps_starts`). `by_time`: the sources that are read in the order of time (`reading_order`). Many fields:
    all that one look at the sources tells.
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
    forgotten: Mapping[str, frozenset[str]] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_time: frozenset[str] = frozenset()


def without_reads(planned: InputPlan) -> InputPlan:
    """The same, but nothing is read: the job is to end where it stands."""
    return replace(planned, reads=dict.fromkeys(planned.reads, ()), has_input=False)


# --- which subtask, which wait, how much -----------------------------------------------------------------------


def homes(splits: Iterable[str], before: Mapping[str, int], parallelism: int) -> dict[str, int]:
    """Which subtask reads each split: where it was before, if that leaves no subtask two splits short of another.

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
                idle = split_time.stands(strategy.idle_timeout_ms, now_ms) == IDLE_WATERMARK
                aligned.append(AlignedSplit(uid, split.name, strategy.alignment, split_time.watermark, idle))
    return aligned


def held_back(splits: Iterable[AlignedSplit]) -> frozenset[tuple[str, str]]:
    """The splits, as (uid, name), that must wait for the slowest of their group. Idle ones do not slow a group.

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
    """Where each split is read to, and the share it was given for that; 0: it cannot be read now.

    `reach(i, share)` says how far split `i`, which stands at `offsets[i]`, can be read with so many records.

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
