"""Event time between epochs: what the tasks are told of it, what the manifest keeps, when it moves by itself. Pure.

While records come, watermarks move in the tasks. Two things move them without a record: an input that has been quiet
for its idle timeout stops holding the others back, and a source that has come to its end does. `standing_at` works out
where every operator's event time would stand after an epoch without input. If that is further than the manifest says,
such an epoch is wanted; after it, it no longer is. So an idle job runs one epoch for each time that becomes due, and
none when nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.checkpoint.manifest import Manifest, SplitPosition
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.graph.nodes import AssignTimestamps, Node, Read
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.plan.stages import Plan
from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.messages import SplitRead
from millstream.runtime.task.event_time import restored_times
from millstream.runtime.task.spec import ReadRange
from millstream.state.stored.accounts import OperatorAccount, SplitAccount, SubtaskAccount, accounts_of
from millstream.state.stored.times import EventTimeState

__all__ = [
    "floors",
    "standing_at",
    "strategies_of",
    "subtask_times",
    "timed_reads",
    "uneven_times",
    "watermark_is_due",
    "with_splits",
]

Strategies = Mapping[str, WatermarkStrategy]
Ranges = tuple[ReadRange, ...]
Accounts = Mapping[str, OperatorAccount]


def strategies_of(plan: Plan) -> dict[str, WatermarkStrategy]:
    """The watermark strategies of a program, by the uid of the operator that applies them."""
    strategies: dict[str, WatermarkStrategy] = {}
    for node in plan.nodes():
        operation = node.operation
        if isinstance(operation, (Read, AssignTimestamps)) and operation.watermarks is not None:
            strategies[node.uid or ""] = operation.watermarks
    return strategies


# --- what the tasks are told -----------------------------------------------------------------------------------


def floors(planned: InputPlan, strategies: Strategies, accounts: Accounts, now_ms: int) -> dict[str, int]:
    """What holds each source's event time back besides the ranges read; IDLE or MAX where nothing does."""
    return {
        uid: _floor(uid, planned, strategies.get(uid), accounts.get(uid, OperatorAccount()), now_ms)
        for uid in planned.reads
    }


def _floor(
    uid: str, planned: InputPlan, strategy: WatermarkStrategy | None, account: OperatorAccount, now_ms: int
) -> int:
    timeout_ms = None if strategy is None else strategy.idle_timeout_ms
    if planned.unread.get(uid):
        return MIN_WATERMARK  # nothing is known of their time, and nobody is to find his records late
    if not planned.waiting[uid] and not planned.reads[uid] and uid not in planned.ended:
        # All it ever had is read, and more may come: the source as a whole stands where it stands.
        return _as_a_whole(account, planned).stands(timeout_ms, now_ms)
    # A split that its group holds back is not idle: it is we who do not read it.
    stands = (one.time.stands(None if one.held else timeout_ms, now_ms) for one in planned.waiting[uid])
    return min(stands, default=MAX_WATERMARK)


def _as_a_whole(account: OperatorAccount, planned: InputPlan) -> EventTimeState:
    return _awake(EventTimeState(account.event_time, account.active_ms or planned.run_started_ms), planned)


def subtask_times(
    strategies: Strategies, accounts: Accounts, planned: InputPlan
) -> dict[str, dict[int, SubtaskAccount]]:
    """What the manifest keeps of subtasks, for the operators that keep time in mid-stream. Read by them as `states`."""
    return {
        uid: _awake_since(accounts[uid], planned)
        for uid in strategies
        if uid not in planned.reads and uid in accounts and accounts[uid].subtasks
    }


def timed_reads(planned: InputPlan, strategies: Strategies, accounts: Accounts) -> dict[str, Ranges]:
    """The ranges to read, each with what the manifest keeps of its split's time besides the watermark."""
    return {
        uid: _timed(ranges, accounts[uid].splits, planned) if uid in strategies and uid in accounts else ranges
        for uid, ranges in planned.reads.items()
    }


def _timed(ranges: Ranges, splits: Mapping[str, SplitAccount], planned: InputPlan) -> Ranges:
    if not any(split.has_details for split in splits.values()):
        return ranges
    times = (splits.get(range_.split.name, SplitAccount()).time(range_.watermark) for range_ in ranges)
    return tuple(
        replace(range_, time=_awake(time, planned).details()) for range_, time in zip(ranges, times, strict=True)
    )


def _awake(time: EventTimeState, planned: InputPlan) -> EventTimeState:
    return time.awake(planned.run_started_ms, planned.now_ms)


def _awake_since(account: OperatorAccount, planned: InputPlan) -> dict[int, SubtaskAccount]:
    """The accounts of its subtasks, with their times as if the job had never been down."""
    return {
        subtask: one if one.time is None else replace(one, time=_awake(one.time, planned))
        for subtask, one in account.subtasks.items()
    }


# --- what the manifest keeps -----------------------------------------------------------------------------------


def with_splits(
    account: OperatorAccount,
    uid: str,
    planned: InputPlan,
    read: Mapping[str, SplitRead],
    positions: Mapping[str, SplitPosition],
    strategy: WatermarkStrategy | None,
    before: OperatorAccount,
) -> OperatorAccount:
    """The account of a source with what a manifest keeps of its time besides its splits' positions. `read`: what the
    tasks said of them; `before`: its last account."""
    splits: dict[str, SplitAccount] = {}
    for range_ in planned.reads[uid]:
        name = range_.split.name
        if not positions[name].finished:
            splits[name] = SplitAccount.of(range_.subtask, read[name].time)
    for one in planned.waiting[uid]:
        time = replace(one.time, active_ms=planned.now_ms) if one.held and one.time.active_ms is not None else one.time
        splits[one.split] = SplitAccount.of(one.subtask, time)
    active_ms = None
    if strategy is not None and strategy.idle_timeout_ms is not None:
        had_records = any(split.records for split in read.values())
        active_ms = planned.now_ms if had_records or before.active_ms is None else before.active_ms
    unread, by_time = planned.unread.get(uid, 0), uid in planned.by_time
    return replace(account, splits=splits, unread=unread, active_ms=active_ms, by_time=by_time)


def uneven_times(outcome: EpochOutcome, uid: str, watermark: int) -> list[int]:
    """Where each subtask of an operator goes on, if not all do at its watermark; else nothing, which says the same.

    >>> uneven_times(EpochOutcome(event_times={"count": {0: 7, 1: 5}}), "count", 5)
    [7, 5]
    """
    times = outcome.event_times.get(uid, {})
    ahead = any(event_time > watermark for event_time in times.values())
    return [times[subtask] for subtask in range(len(times))] if ahead else []


# --- when event time moves by itself ---------------------------------------------------------------------------


def standing_at(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest, now_ms: int
) -> dict[str, int]:
    """Where each operator's event time would stand after an epoch without input at `now_ms`."""
    accounts = accounts_of(newest)
    floor = floors(planned, strategies, accounts, now_ms)
    reached: dict[int, int] = {}
    standing: dict[str, int] = {}
    for node in plan.nodes():
        uid = node.uid or ""
        account = accounts.get(uid, OperatorAccount())
        before = account.event_time
        heard = min((reached[channel.source] for channel in plan.into(node.id)), default=MAX_WATERMARK)
        here = _emitted(node, heard, floor, account, planned, now_ms)
        reached[node.id] = here if here == IDLE_WATERMARK else max(here, before)
        standing[uid] = before if here == IDLE_WATERMARK else max(here, before)
    return standing


def _emitted(
    node: Node, heard: int, floor: Mapping[str, int], account: OperatorAccount, planned: InputPlan, now_ms: int
) -> int:
    if isinstance(node.operation, Read):
        return floor[node.uid or ""]
    if isinstance(node.operation, AssignTimestamps) and heard != MAX_WATERMARK:
        timeout_ms = node.operation.watermarks.idle_timeout_ms
        times = restored_times(_awake_since(account, planned), node.parallelism or 1)
        return min(time.stands(timeout_ms, now_ms) for time in times)
    return heard


def watermark_is_due(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest | None, now_ms: int
) -> bool:
    """Whether an epoch is wanted now, because it would move event time although it has no input."""
    if newest is None or planned.has_input:
        return False
    accounts = accounts_of(newest)
    standing = standing_at(plan, planned, strategies, newest, now_ms)
    return any(here > accounts.get(uid, OperatorAccount()).event_time for uid, here in standing.items())
