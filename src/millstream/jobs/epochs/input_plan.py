"""How far the next epoch reads: asked of every source, decided here, recorded only by the manifest.

The plan is not written down before it is run: if the epoch dies, the next one is planned anew, perhaps with other
ranges. Only what a manifest says was read has been read. A split that was begun and that its source no longer lists
stops the job: what it still holds would be missing in silence.

A split stays with its subtask from epoch to epoch, so that a strategy in mid-stream sees the same records' time in the
same place; it moves only when the parallelism changes or finished splits have left the others badly spread. A split
that is too far ahead of its alignment group is not read at all until the slowest has come closer.

Of a source whose splits may be read one after the other (`Source.sequential`) only the first unfinished ones are
planned (`SPLITS_AT_ONCE`). The rest is counted: it holds event time back, and costs nothing else. What is finished at
the beginning of its list is passed over from then on (`Cursor`, which is no truth, only a short cut).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millstream.checkpoint.manifest import SplitPosition
from millstream.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from millstream.connectors.contract_checks import is_complete, is_finished, listed_splits, reach_of
from millstream.connectors.contracts import Source, SourceContext, Split
from millstream.errors import StoreError
from millstream.jobs.epochs.split_shares import share_out
from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.runtime.task.event_time import KeptTime
from millstream.runtime.task.spec import ReadRange

__all__ = ["AlignedSplit", "InputPlan", "PlannedSource", "Waiting", "held_back", "homes", "plan_input", "without_reads"]

Positions = Mapping[str, Mapping[str, SplitPosition]]

SPLITS_AT_ONCE = 256
"""So many unfinished splits of a sequential source are read side by side, or as many as it has subtasks."""


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
class Cursor:
    """How much of the list of a sequential source need not be looked at again: so many splits at its beginning are
    finished (`passed`), and so many are known to be splits (`listed`)."""

    passed: int = 0
    listed: int = 0


@dataclass(frozen=True)
class InputPlan:
    """The ranges of one epoch. `exhausted`: nothing will ever follow them.

    `ended` are the sources of which nothing is left, `now_ms` is the epoch's processing time. `shares`: how many
    records each range was meant to be. `unread`: how many splits of a sequential source stand behind those that are
    read; `cursors`: where the next plan may begin. `forgotten`: finished splits that a source does not list any more,
    so that the manifest need not do so either.
    """

    reads: Mapping[str, tuple[ReadRange, ...]]
    waiting: Mapping[str, tuple[Waiting, ...]]
    ended: frozenset[str]
    has_input: bool
    exhausted: bool
    now_ms: int
    run_started_ms: int
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    forgotten: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class AlignedSplit:
    """A split as its alignment group sees it."""

    uid: str
    split: str
    alignment: WatermarkAlignment
    watermark: int
    idle: bool


class _LiveSplit(NamedTuple):
    """An unfinished split and where it stands."""

    split: Split
    offset: Any
    time: KeptTime
    subtask: int


@dataclass(frozen=True)
class _Listing:
    """What a source lists, as far as it concerns an epoch: its unfinished splits with their positions, in order."""

    unfinished: Sequence[tuple[Split, SplitPosition]]
    forgotten: frozenset[str] = frozenset()
    unread: int = 0
    cursor: Cursor = Cursor()


def plan_input(
    sources: tuple[PlannedSource, ...],
    positions: Positions,
    budget: int,
    context: SourceContext,
    strategies: Mapping[str, WatermarkStrategy] | None = None,
    states: Mapping[str, Any] | None = None,
    finished: Mapping[str, Collection[str]] | None = None,
    cursors: Mapping[str, Cursor] | None = None,
) -> InputPlan:
    """Ask every source how far it can be read; share `budget` records among the splits that may be read.

    `strategies` are those of the sources that have one; `states` is what the last manifest keeps per operator.
    `finished` are splits that are read to their end and have no position any more; `cursors` are the last plan's.
    """
    strategies, states, finished, cursors = strategies or {}, states or {}, finished or {}, cursors or {}
    listings: dict[str, _Listing] = {}
    live: dict[str, list[_LiveSplit]] = {}
    for planned in sources:
        uid, own = planned.uid, replace(context, parallelism=planned.parallelism)
        listing = _listing(planned, positions.get(uid, {}), finished.get(uid, ()), cursors.get(uid, Cursor()), own)
        listings[uid] = listing
        kept = states.get(uid, {}).get("splits", {})
        live[uid] = _live(planned, listing, kept, strategies.get(uid), own)
    held = held_back(_aligned(live, strategies, context.now_ms))
    stops = _stops(sources, live, held, budget, context)
    reads: dict[str, tuple[ReadRange, ...]] = {}
    waiting: dict[str, tuple[Waiting, ...]] = {}
    ended: set[str] = set()
    exhausted = True
    for planned in sources:
        uid, own = planned.uid, replace(context, parallelism=planned.parallelism)
        names = frozenset(split for source, split in held if source == uid)
        reads[uid], waiting[uid], ends = _plan_source(planned.source, live[uid], names, stops[uid])
        ends = ends and not listings[uid].unread and is_complete(planned.source, own)
        exhausted = exhausted and ends
        if ends and not reads[uid]:
            ended.add(uid)
    return InputPlan(
        reads,
        waiting,
        frozenset(ended),
        any(reads.values()),
        exhausted,
        context.now_ms,
        context.run_started_ms,
        shares={uid: {name: share for name, (_, share) in of_source.items()} for uid, of_source in stops.items()},
        unread={uid: listing.unread for uid, listing in listings.items() if listing.unread},
        cursors={uid: listing.cursor for uid, listing in listings.items()},
        forgotten={uid: listing.forgotten for uid, listing in listings.items()},
    )


def _listing(
    planned: PlannedSource,
    positions: Mapping[str, SplitPosition],
    finished: Collection[str],
    cursor: Cursor,
    context: SourceContext,
) -> _Listing:
    source = planned.source
    splits = listed_splits(source, context, known_count=cursor.listed if source.sequential else 0)
    if source.sequential:
        return _in_sequence(planned, splits, positions, finished, cursor.passed)
    unlisted = positions.keys() - {split.name for split in splits}
    _check_none_vanished(planned, unlisted, positions)
    standing = ((split, _standing(source, split, positions, finished)) for split in splits)
    return _Listing([(split, at) for split, at in standing if not at.finished], frozenset(unlisted))


def _check_none_vanished(
    planned: PlannedSource, unlisted: Collection[str], positions: Mapping[str, SplitPosition]
) -> None:
    """What a split still holds must not be passed over because its source has forgotten it."""
    gone = sorted(name for name in unlisted if not positions[name].finished)
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        raise StoreError(
            f"source '{planned.uid}' ({planned.source.describe()}) no longer lists split '{gone[0]}'{more}, which the "
            f"job has read to {positions[gone[0]].offset!r} and not to its end: the rest of it would be missing. Bring "
            f"it back (a file, a partition, the input this job was started with), or, to do without, give the source "
            f"another uid and start with --allow-non-restored-state: it is then read anew."
        )


def _in_sequence(
    planned: PlannedSource,
    splits: Sequence[Split],
    positions: Mapping[str, SplitPosition],
    finished: Collection[str],
    passed: int,
) -> _Listing:
    """Go on behind what is finished at the beginning, as far as there is to be read now."""
    most = max(SPLITS_AT_ONCE, planned.parallelism)
    unfinished: list[tuple[Split, SplitPosition]] = []
    at = passed
    while at < len(splits) and len(unfinished) < most:
        position = _standing(planned.source, splits[at], positions, finished)
        if not position.finished:
            unfinished.append((splits[at], position))
        elif not unfinished:
            passed = at + 1
        at += 1
    return _Listing(unfinished, unread=len(splits) - at, cursor=Cursor(passed, len(splits)))


def _stops(
    sources: tuple[PlannedSource, ...],
    live: Mapping[str, list[_LiveSplit]],
    held: frozenset[tuple[str, str]],
    budget: int,
    context: SourceContext,
) -> dict[str, dict[str, tuple[Any, int]]]:
    """How far each split that may be read is read, and the share it was given for that; by uid and split."""
    stops: dict[str, dict[str, tuple[Any, int]]] = {}
    asked: list[tuple[Source, SourceContext, _LiveSplit, dict[str, tuple[Any, int]]]] = []
    for planned in sources:
        own, stops[planned.uid] = replace(context, parallelism=planned.parallelism), {}
        asked += (
            (planned.source, own, standing, stops[planned.uid])
            for standing in live[planned.uid]
            if not held or (planned.uid, standing.split.name) not in held
        )

    def reach(number: int, share: int) -> Any:
        source, own, standing, _ = asked[number]
        return reach_of(source, standing.split, standing.offset, share, own)

    given = share_out([standing.offset for _, _, standing, _ in asked], budget, reach)
    for (_, _, standing, of_source), stop in zip(asked, given, strict=True):
        of_source[standing.split.name] = stop
    return stops


def without_reads(planned: InputPlan) -> InputPlan:
    """The same, but nothing is read: the job is to end where it stands."""
    return replace(planned, reads=dict.fromkeys(planned.reads, ()), has_input=False)


def _live(
    planned: PlannedSource,
    listing: _Listing,
    kept: Mapping[str, Mapping[str, Any]],
    strategy: WatermarkStrategy | None,
    context: SourceContext,
) -> list[_LiveSplit]:
    """The unfinished splits, each with its place, its time and its subtask."""
    before = {name: details["subtask"] for name, details in kept.items() if "subtask" in details}
    subtasks = homes([split.name for split, _ in listing.unfinished], before, planned.parallelism)
    live: list[_LiveSplit] = []
    nothing: Mapping[str, Any] = {}
    plain: dict[int, KeptTime] = {}
    for split, at in listing.unfinished:
        watermark = MIN_WATERMARK if at.watermark is None else at.watermark
        details = kept.get(split.name, nothing)
        # Most splits keep no more than where they are read: a source may have ten thousand of them.
        if len(details) > 1:
            time = KeptTime.of(details, watermark)
        else:
            time = plain.get(watermark) or plain.setdefault(watermark, KeptTime(watermark))
        if strategy is not None and strategy.idle_timeout_ms is not None:
            # A split is not idle for the time the job was down, nor before it was first seen.
            since_ms = context.now_ms if time.active_ms is None else max(time.active_ms, context.run_started_ms)
            time = replace(time, active_ms=since_ms)
        live.append(_LiveSplit(split, at.offset, time, subtasks[split.name]))
    return live


def _standing(
    source: Source, split: Split, positions: Mapping[str, SplitPosition], finished: Collection[str]
) -> SplitPosition:
    known = positions.get(split.name)
    if known is not None:
        return known
    return SplitPosition(split.start, split.name in finished or is_finished(source, split, split.start), None)


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
    source: Source, live: list[_LiveSplit], held: frozenset[str], stops: Mapping[str, tuple[Any, int]]
) -> tuple[tuple[ReadRange, ...], tuple[Waiting, ...], bool]:
    """What is read, what waits, and whether all splits end with these ranges."""
    ranges: list[ReadRange] = []
    waiting: list[Waiting] = []
    ends = True
    for one in live:
        name = one.split.name
        stop = one.offset if name in held else stops[name][0]
        finishes = is_finished(source, one.split, stop)
        if stop != one.offset:
            ranges.append(ReadRange(one.split, one.offset, stop, one.subtask, one.time.watermark))
        elif not finishes:
            waiting.append(Waiting(name, one.time, one.subtask, name in held))
        ends = ends and finishes
    return tuple(ranges), tuple(waiting), ends
