"""How far the next epoch reads: asked of every source, decided here, recorded only by the manifest.

The plan is not written down before it is run: if the epoch dies, the next one is planned anew, perhaps with other
ranges. Only what a manifest says was read has been read. A split that was begun and that its source no longer lists
stops the job: what it still holds would be missing in silence.

A split stays with its subtask from epoch to epoch, so that a strategy in mid-stream sees the same records' time in the
same place; it moves only when the parallelism changes or finished splits have left the others badly spread. A split
that is too far ahead of its alignment group is not read at all until the slowest has come closer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint.manifest import SplitPosition
from millstream.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from millstream.connectors.checked import is_complete, is_finished, listed_splits, reach_of
from millstream.connectors.contracts import Source, SourceContext, Split
from millstream.errors import StoreError
from millstream.runtime.barrier import MIN_WATERMARK
from millstream.runtime.event_time import IDLE_WATERMARK, KeptTime
from millstream.runtime.spec import ReadRange

__all__ = ["AlignedSplit", "InputPlan", "PlannedSource", "Waiting", "held_back", "homes", "plan_input", "without_reads"]

Positions = Mapping[str, Mapping[str, SplitPosition]]


@dataclass(frozen=True)
class PlannedSource:
    """A source of the job, by the uid of its node."""

    uid: str
    source: Source
    parallelism: int


@dataclass(frozen=True)
class Waiting:
    """An unfinished split that the epoch does not read: it has no input now, or its alignment group holds it back."""

    split: str
    time: KeptTime
    subtask: int
    held: bool = False


@dataclass(frozen=True)
class InputPlan:
    """The ranges of one epoch, and the splits each source listed. `exhausted`: nothing will ever follow them.

    `ended` are the sources of which nothing is left, `now_ms` is the epoch's processing time.
    """

    reads: Mapping[str, tuple[ReadRange, ...]]
    waiting: Mapping[str, tuple[Waiting, ...]]
    listed: Mapping[str, frozenset[str]]
    ended: frozenset[str]
    has_input: bool
    exhausted: bool
    now_ms: int
    run_started_ms: int


@dataclass(frozen=True)
class AlignedSplit:
    """A split as its alignment group sees it."""

    uid: str
    split: str
    alignment: WatermarkAlignment
    watermark: int
    idle: bool


@dataclass(frozen=True)
class _LiveSplit:
    """An unfinished split and where it stands."""

    split: Split
    offset: Any
    time: KeptTime
    subtask: int


def plan_input(
    sources: tuple[PlannedSource, ...],
    positions: Positions,
    budget: int,
    context: SourceContext,
    strategies: Mapping[str, WatermarkStrategy] | None = None,
    states: Mapping[str, Any] | None = None,
) -> InputPlan:
    """Ask every source how far it can be read; share `budget` records among the splits that may be read.

    `strategies` are those of the sources that have one; `states` is what the last manifest keeps per operator.
    """
    strategies, states = strategies or {}, states or {}
    live: dict[str, list[_LiveSplit]] = {}
    listed: dict[str, frozenset[str]] = {}
    for planned in sources:
        own = replace(context, parallelism=planned.parallelism)
        splits = listed_splits(planned.source, own)
        listed[planned.uid] = frozenset(split.name for split in splits)
        _check_none_vanished(planned, listed[planned.uid], positions.get(planned.uid, {}))
        kept = states.get(planned.uid, {}).get("splits", {})
        live[planned.uid] = _live(planned, splits, positions, kept, strategies.get(planned.uid), own)
    held = held_back(_aligned(live, strategies, context.now_ms))
    share = max(1, budget // max(1, sum(map(len, live.values())) - len(held)))
    reads: dict[str, tuple[ReadRange, ...]] = {}
    waiting: dict[str, tuple[Waiting, ...]] = {}
    ended: set[str] = set()
    exhausted = True
    for planned in sources:
        uid, own = planned.uid, replace(context, parallelism=planned.parallelism)
        names = frozenset(split for source, split in held if source == uid)
        reads[uid], waiting[uid], ends = _plan_source(planned.source, live[uid], names, share, own)
        ends = ends and is_complete(planned.source, own)
        exhausted = exhausted and ends
        if ends and not reads[uid]:
            ended.add(uid)
    has_input = any(reads.values())
    return InputPlan(
        reads, waiting, listed, frozenset(ended), has_input, exhausted, context.now_ms, context.run_started_ms
    )


def without_reads(planned: InputPlan) -> InputPlan:
    """The same, but nothing is read: the job is to end where it stands."""
    return replace(planned, reads=dict.fromkeys(planned.reads, ()), has_input=False)


def _live(
    planned: PlannedSource,
    splits: list[Split],
    positions: Positions,
    kept: Mapping[str, Mapping[str, Any]],
    strategy: WatermarkStrategy | None,
    context: SourceContext,
) -> list[_LiveSplit]:
    """The unfinished splits, each with its place, its time and its subtask."""
    standing = {split.name: _standing(planned, split, positions) for split in splits}
    unfinished = [split for split in splits if not standing[split.name].finished]
    before = {name: details["subtask"] for name, details in kept.items() if "subtask" in details}
    subtasks = homes([split.name for split in unfinished], before, planned.parallelism)
    live: list[_LiveSplit] = []
    for split in unfinished:
        at = standing[split.name]
        time = KeptTime.of(kept.get(split.name, {}), MIN_WATERMARK if at.watermark is None else at.watermark)
        if strategy is not None and strategy.idle_timeout_ms is not None:
            # A split is not idle for the time the job was down, nor before it was first seen.
            since_ms = context.now_ms if time.active_ms is None else max(time.active_ms, context.run_started_ms)
            time = replace(time, active_ms=since_ms)
        live.append(_LiveSplit(split, at.offset, time, subtasks[split.name]))
    return live


def _check_none_vanished(
    planned: PlannedSource, listed: frozenset[str], positions: Mapping[str, SplitPosition]
) -> None:
    """What a split still holds must not be passed over because its source has forgotten it."""
    gone = sorted(name for name, at in positions.items() if not at.finished and name not in listed)
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        raise StoreError(
            f"source '{planned.uid}' ({planned.source.describe()}) no longer lists split '{gone[0]}'{more}, which the "
            f"job has read to {positions[gone[0]].offset!r} and not to its end: the rest of it would be missing. Bring "
            f"it back (a file, a partition, the input this job was started with), or, to do without, give the source "
            f"another uid and start with --allow-non-restored-state: it is then read anew."
        )


def _standing(planned: PlannedSource, split: Split, positions: Positions) -> SplitPosition:
    known = positions.get(planned.uid, {}).get(split.name)
    if known is not None:
        return known
    return SplitPosition(split.start, is_finished(planned.source, split, split.start), None)


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
    for name in names:
        if before.get(name, parallelism) < parallelism:
            residents[before[name]].append(name)
    settled = {name for group in residents for name in group}
    for name in names:
        if name not in settled:
            min(residents, key=len).append(name)
    while len(max(residents, key=len)) - len(min(residents, key=len)) > 1:
        min(residents, key=len).append(max(residents, key=len).pop())
    found = {name: subtask for subtask, group in enumerate(residents) for name in group}
    return {name: found[name] for name in names}


def _aligned(
    live: Mapping[str, list[_LiveSplit]], strategies: Mapping[str, WatermarkStrategy], now_ms: int
) -> list[AlignedSplit]:
    aligned: list[AlignedSplit] = []
    for uid, strategy in strategies.items():
        if strategy.alignment is not None:
            for one in live.get(uid, ()):
                idle = one.time.stands(strategy.idle_timeout_ms, now_ms) == IDLE_WATERMARK
                aligned.append(AlignedSplit(uid, one.split.name, strategy.alignment, one.time.watermark, idle))
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
    for one in splits:
        if not one.idle:
            group = one.alignment.group
            slowest[group] = min(one.watermark, slowest.get(group, one.watermark))
    return frozenset(
        (one.uid, one.split)
        for one in splits
        if one.alignment.group in slowest and one.watermark > slowest[one.alignment.group] + one.alignment.max_drift_ms
    )


def _plan_source(
    source: Source, live: list[_LiveSplit], held: frozenset[str], share: int, context: SourceContext
) -> tuple[tuple[ReadRange, ...], tuple[Waiting, ...], bool]:
    """What is read, what waits, and whether all splits end with these ranges."""
    ranges: list[ReadRange] = []
    waiting: list[Waiting] = []
    ends = True
    for one in live:
        name = one.split.name
        stop = one.offset if name in held else reach_of(source, one.split, one.offset, share, context)
        finishes = is_finished(source, one.split, stop)
        if stop != one.offset:
            ranges.append(ReadRange(one.split, one.offset, stop, one.subtask, one.time.watermark))
        elif not finishes:
            waiting.append(Waiting(name, one.time, one.subtask, name in held))
        ends = ends and finishes
    return tuple(ranges), tuple(waiting), ends
