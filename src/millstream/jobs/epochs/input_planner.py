"""Plans how far the next epoch reads, by querying every source. Only the manifest records the result.

The plan is not stored before it is run: if the epoch fails, the next one is planned anew, perhaps with other ranges.
Only ranges that a manifest records have been read. If a source no longer lists a split that was begun, the job stops,
because the rest of the split would be lost silently.

If the splits of a source may be read one after the other (`Source.sequential`), only the first `SPLITS_AT_ONCE`
unfinished ones are planned. The others are only counted: they hold event time back, and cost nothing else. Finished
splits at the beginning of its list are skipped from then on (`Cursor`, a cache that `begin_anew` discards).

The driver talks to sources through the `InputPlanner` only: it plans, and notifies them of commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from millstream.checkpoint.finished_splits import FinishedSplits
from millstream.checkpoint.manifest import Manifest, SplitFile, SplitPosition
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contract_checks import (
    backlog_of,
    is_complete,
    is_finished,
    listed_splits,
    may_end_early,
    removes_input,
)
from millstream.connectors.contracts import Outlook, Source, SourceContext, Split
from millstream.errors import StoreError
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.input_plan import (
    NO_CURSOR,
    Cursor,
    InputPlan,
    LiveSplit,
    PlannedSource,
    WaitingSplit,
    aligned_splits,
    held_back,
    homes,
    without_reads,
)
from millstream.jobs.epochs.processing_time import ProcessingTime, RunTimes
from millstream.jobs.epochs.reading_order import outlooks_of, reading_stops, watermark_from
from millstream.jobs.epochs.retained_epochs import RetainedHistory
from millstream.jobs.epochs.watermarks import strategies_of
from millstream.plan.stages import Plan
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.task.spec import ReadRange
from millstream.state.stored.accounts import OperatorAccount, SplitAccount, accounts_of
from millstream.state.stored.times import EventTimeState
from millstream.storage.store import Store

__all__ = ["InputPlanner", "plan_input"]

Positions = Mapping[str, Mapping[str, SplitPosition]]

SPLITS_AT_ONCE = 256
"""This many unfinished splits of a sequential source are read concurrently, or as many as it has subtasks if that is
more."""


class InputPlanner:
    """The sources of one driver's job. `strategies` are the program's watermark strategies, by uid. `is_recorded`: the
    job records its input, to be replayed without its sources; so no decision may depend on anything else the sources
    know."""

    def __init__(
        self, plan: Plan, sources: tuple[PlannedSource, ...], store: Store, clock: Clock, *, is_recorded: bool = False
    ) -> None:
        self.strategies = strategies_of(plan)
        self._is_recorded = is_recorded
        self._sources, self._processing_time = sources, ProcessingTime(clock)
        self._finished = FinishedSplits(store)
        self._clock, self._clock_started_ms = clock, clock.now_ms()
        self._cursors: Mapping[str, Cursor] = {}

    def adopt(self, plan: Plan, sources: tuple[PlannedSource, ...]) -> None:
        """Continue with the plan of the same program at another parallelism."""
        self.strategies, self._sources = strategies_of(plan), sources

    def begin_anew(self) -> None:
        """The job continues from its newest manifest. Splits that were finished only in discarded epochs are unfinished
        again."""
        self._cursors = {}

    def plan(self, newest: Manifest | None, budget: int, bytes_max: int, *, drains: bool) -> InputPlan:
        """The input of the epoch after `newest`: about `budget` records of about `bytes_max` bytes together. `drains`:
        read no input, because the job ends."""
        record_bytes_max = max(1, bytes_max // max(1, budget))
        # Sources poll and limit their rate by the machine's clock, because processing time may be held back.
        context = SourceContext(self._clock.now_ms(), self._clock_started_ms, 1, record_bytes_max=record_bytes_max)
        positions, accounts = {} if newest is None else newest.sources, accounts_of(newest)
        finished = self._finished.names(newest)
        planned = plan_input(
            self._sources,
            positions,
            budget,
            context,
            self.strategies,
            accounts,
            finished,
            self._cursors,
            uses_outlooks=not self._is_recorded,
            times=self._processing_time.run_times(newest),
        )
        self._cursors = planned.cursors
        if drains:
            planned = without_reads(planned)
        # The epoch's processing time is fixed here: retries see the same.
        return replace(planned, now_ms=self._processing_time.now_ms(newest))

    def by_uid(self) -> dict[str, Source]:
        """The sources by the uids of their nodes."""
        return {planned.uid: planned.source for planned in self._sources}

    def filed(self, newest: Manifest | None, epoch: int) -> dict[str, SplitFile]:
        """Writes, per source, a file that lists from `epoch` on the splits finished before it."""
        listed = {planned.uid for planned in self._sources if removes_input(planned.source)}
        return {} if newest is None else self._finished.filed(newest, epoch, listed)

    def notify_committed(self, manifest: Manifest) -> None:
        """Notify the sources of their committed positions."""
        for planned in self._sources:
            positions = manifest.sources.get(planned.uid, {})
            planned.source.committed({split: at.offset for split, at in positions.items()})

    @property
    def removing_sources(self) -> tuple[str, ...]:
        """The uids of the sources that remove stored input. Others may have very many positions."""
        return tuple(planned.uid for planned in self._sources if removes_input(planned.source))

    def release(self, history: RetainedHistory) -> None:
        """Have the sources remove stored input that none of the retained epochs in `history` needs."""
        for planned in self._sources:
            if planned.uid in history.positions:
                planned.source.released(history.positions[planned.uid])


@dataclass(frozen=True)
class _Listing:
    """The unfinished splits that a source lists, with their positions, in order."""

    unfinished: Sequence[tuple[Split, SplitPosition]]
    unlisted: frozenset[str] = frozenset()
    unread: int = 0
    cursor: Cursor = NO_CURSOR
    outlooks: Mapping[str, Outlook] = field(default_factory=dict)


def plan_input(
    sources: tuple[PlannedSource, ...],
    positions: Positions,
    budget: int,
    context: SourceContext,
    strategies: Mapping[str, WatermarkStrategy] | None = None,
    accounts: Mapping[str, OperatorAccount] | None = None,
    finished: Mapping[str, Collection[str]] | None = None,
    cursors: Mapping[str, Cursor] | None = None,
    *,
    uses_outlooks: bool = True,
    times: RunTimes | None = None,
) -> InputPlan:
    """Query every source how far it can be read, and divide `budget` records among the splits that may be read.

    `accounts` and `finished` splits are the last manifest's, `cursors` the last plan's. `uses_outlooks`: read in time
    order (`reading_order`). `times`: the processing time that decides idleness; by default that of `context`.
    """
    times = times or RunTimes(context.now_ms, context.run_started_ms)
    strategies, accounts, finished, cursors = strategies or {}, accounts or {}, finished or {}, cursors or {}
    listings: dict[str, _Listing] = {}
    live: dict[str, list[LiveSplit]] = {}
    for planned in sources:
        uid, scoped = planned.uid, planned.in_context(context)
        listing = _listing(planned, positions.get(uid, {}), finished.get(uid, ()), cursors.get(uid, NO_CURSOR), scoped)
        listings[uid] = listing = _with_outlooks(
            listing, planned.source, strategies.get(uid) if uses_outlooks else None
        )
        split_accounts = accounts.get(uid, OperatorAccount()).splits
        live[uid] = _live(planned, listing, split_accounts, strategies.get(uid), times)
    held_splits = held_back(aligned_splits(live, strategies, times.now_ms))
    outlooks = {uid: listing.outlooks for uid, listing in listings.items()}
    stops, held_splits = reading_stops(sources, live, outlooks, held_splits, budget, context)
    reads: dict[str, tuple[ReadRange, ...]] = {}
    waiting: dict[str, tuple[WaitingSplit, ...]] = {}
    ends: dict[str, bool] = {}
    for planned in sources:
        uid, scoped = planned.uid, planned.in_context(context)
        names = frozenset(split for source, split in held_splits if source == uid)
        reads[uid], waiting[uid], ends[uid] = _plan_source(
            planned.source, live[uid], names, stops[uid], listings[uid].unread, scoped
        )
    return InputPlan(
        reads,
        waiting,
        frozenset(uid for uid, is_read in ends.items() if is_read and not reads[uid]),
        any(reads.values()),
        all(ends.values()),
        times.now_ms,
        times.run_started_ms,
        shares={uid: {name: share for name, (_, share) in of_source.items()} for uid, of_source in stops.items()},
        unread={uid: listing.unread for uid, listing in listings.items() if listing.unread},
        cursors={uid: listing.cursor for uid, listing in listings.items()},
        unlisted={uid: listing.unlisted for uid, listing in listings.items()},
        starts=_starts(sources, live, positions),
        behind=_behind(sources, live, stops, context),
        by_time=frozenset(uid for uid, known in outlooks.items() if known),
    )


def _starts(
    sources: tuple[PlannedSource, ...], live: Mapping[str, list[LiveSplit]], positions: Positions
) -> dict[str, dict[str, Any]]:
    """The beginnings of splits that have no position yet, of the sources that store them."""
    return {
        planned.uid: {
            live_split.split.name: live_split.offset
            for live_split in live[planned.uid]
            if live_split.split.name not in positions.get(planned.uid, {})
        }
        for planned in sources
        if planned.source.keeps_starts
    }


def _behind(
    sources: tuple[PlannedSource, ...],
    live: Mapping[str, list[LiveSplit]],
    stops: Mapping[str, Mapping[str, tuple[Any, int]]],
    context: SourceContext,
) -> dict[str, int]:
    """About how many records are left after the planned ranges, of the sources that can count all their splits."""
    behind: dict[str, int] = {}
    for planned in sources:
        if type(planned.source).backlog is Source.backlog:
            continue
        source_context = planned.in_context(context)
        left = [
            backlog_of(
                planned.source,
                live_split.split,
                stops[planned.uid].get(live_split.split.name, (live_split.offset, 0))[0],
                source_context,
            )
            for live_split in live[planned.uid]
        ]
        if None not in left:
            behind[planned.uid] = sum(count or 0 for count in left)
    return behind


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
        return _in_sequence(planned, splits, positions, finished, cursor)
    unlisted = positions.keys() - {split.name for split in splits}
    _check_none_vanished(planned, unlisted, positions)
    placed = ((split, _position(source, split, positions, finished)) for split in splits)
    return _Listing([(split, at) for split, at in placed if not at.finished], frozenset(unlisted))


def _with_outlooks(listing: _Listing, source: Source, strategy: WatermarkStrategy | None) -> _Listing:
    """The listing, with what the source knows in advance of its unfinished splits."""
    # With unread splits event time does not advance, whatever the outlooks say. The start times of later splits of an
    # unbounded source are unknown: there, only the strategy's delay is reliable.
    if listing.unread or not source.bounded:
        return listing
    unfinished = ((split, at.offset) for split, at in listing.unfinished)
    return replace(listing, outlooks=outlooks_of(source, strategy, unfinished))


def _check_none_vanished(
    planned: PlannedSource, unlisted: Collection[str], positions: Mapping[str, SplitPosition]
) -> None:
    """Raises if the source no longer lists a split that was not read to its end."""
    vanished = sorted(name for name in unlisted if not positions[name].finished)
    if vanished:
        more = f" and {len(vanished) - 1} more" if len(vanished) > 1 else ""
        raise StoreError(
            f"source '{planned.uid}' ({planned.source.describe()}) no longer lists split '{vanished[0]}'{more}, which "
            f"the job has read to {positions[vanished[0]].offset!r} and not to its end: its remaining records would "
            "be lost."
            " Restore it (a file, a partition, the input this job was started with), or, to continue without it, "
            "set another uid"
            " for the source and start with --allow-non-restored-state: it is then read from the start."
        )


def _in_sequence(
    planned: PlannedSource,
    splits: Sequence[Split],
    positions: Mapping[str, SplitPosition],
    finished: Collection[str],
    cursor: Cursor,
) -> _Listing:
    """The previously unfinished splits, then the next ones in order, up to the number read at once."""
    most = max(SPLITS_AT_ONCE, planned.parallelism)
    unfinished: dict[int, tuple[Split, SplitPosition]] = {}
    passed = cursor.passed
    for at in chain(cursor.unfinished, count(passed)):
        if at >= passed and (at >= len(splits) or len(unfinished) >= most):
            break
        position = _position(planned.source, splits[at], positions, finished)
        if not position.finished:
            unfinished[at] = (splits[at], position)
        passed = max(passed, at + 1)
    next_cursor = Cursor(passed, len(splits), tuple(unfinished))
    return _Listing(list(unfinished.values()), unread=len(splits) - passed, cursor=next_cursor)


def _live(
    planned: PlannedSource,
    listing: _Listing,
    split_accounts: Mapping[str, SplitAccount],
    strategy: WatermarkStrategy | None,
    times: RunTimes,
) -> list[LiveSplit]:
    """The unfinished splits, each with its position, its time and its subtask."""
    before = {name: split.subtask for name, split in split_accounts.items() if split.subtask is not None}
    subtasks = homes([split.name for split, _ in listing.unfinished], before, planned.parallelism)
    live: list[LiveSplit] = []
    plain: dict[int, EventTimeState] = {}
    for split, at in listing.unfinished:
        watermark = MIN_WATERMARK if at.watermark is None else at.watermark
        watermark = watermark_from(watermark, listing.outlooks.get(split.name))
        account = split_accounts.get(split.name)
        # Most splits store only their position: a source may have ten thousand of them.
        if account is not None and account.has_details:
            time = account.time(watermark)
        else:
            time = plain.get(watermark) or plain.setdefault(watermark, EventTimeState(watermark))
        if strategy is not None and strategy.idle_timeout_ms is not None:
            # A split is not idle for the time the job was down, nor before it was first seen.
            is_new = time.active_ms is None
            time = replace(time, active_ms=times.now_ms) if is_new else time.awake(times.run_started_ms, times.now_ms)
        live.append(LiveSplit(split, at.offset, time, subtasks[split.name]))
    return live


def _position(
    source: Source, split: Split, positions: Mapping[str, SplitPosition], finished: Collection[str]
) -> SplitPosition:
    position = positions.get(split.name)
    if position is not None:
        return position
    return SplitPosition(split.start, split.name in finished or is_finished(source, split, split.start), None)


def _plan_source(
    source: Source,
    live: list[LiveSplit],
    held_names: frozenset[str],
    stops: Mapping[str, tuple[Any, int]],
    unread: int,
    context: SourceContext,
) -> tuple[tuple[ReadRange, ...], tuple[WaitingSplit, ...], bool]:
    """The ranges to read, the splits that wait, and whether the source is known to end with these ranges."""
    ranges: list[ReadRange] = []
    waiting: list[WaitingSplit] = []
    ends = True
    for each in live:
        name, begin = each.split.name, each.offset
        stop, share = (begin, 0) if name in held_names else stops[name]
        finishes = is_finished(source, each.split, stop)
        if stop != begin:
            bytes_max = None if context.record_bytes_max is None else max(1, share * context.record_bytes_max)
            range_ = ReadRange(each.split, begin, stop, each.subtask, each.time.watermark, bytes_max=bytes_max)
            ranges.append(range_)
        elif not finishes:
            waiting.append(WaitingSplit(name, each.time, each.subtask, name in held_names))
        ends = ends and finishes
    ends = ends and not unread and is_complete(source, context)
    if ends and ranges and may_end_early(source):
        # The range may be read partially, and only reading shows whether anything follows it.
        ranges, ends = [replace(range_, is_last=True) for range_ in ranges], False
    return tuple(ranges), tuple(waiting), ends
