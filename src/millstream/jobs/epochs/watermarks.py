"""Event time between epochs: how tasks receive it, how the manifest stores it, when it advances without input. Pure.

While records arrive, watermarks advance in the tasks. Two events advance them without a record: an input reaches its
idle timeout, or a source its end; neither then holds the others back. `event_times_without_input` computes the event
time of every operator after an epoch without input. If that is later than in the manifest, such an epoch is needed. So
an idle job runs one epoch for each time that becomes due, and otherwise none.
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
    "event_times_without_input",
    "floors",
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


# --- for the tasks ---------------------------------------------------------------------------------------------


def floors(planned: InputPlan, strategies: Strategies, accounts: Accounts, now_ms: int) -> dict[str, int]:
    """The limit of each source's event time besides the ranges read; IDLE or MAX where nothing limits it."""
    return {
        uid: _floor(uid, planned, strategies.get(uid), accounts.get(uid, OperatorAccount()), now_ms)
        for uid in planned.reads
    }


def _floor(
    uid: str, planned: InputPlan, strategy: WatermarkStrategy | None, account: OperatorAccount, now_ms: int
) -> int:
    timeout_ms = None if strategy is None else strategy.idle_timeout_ms
    if planned.unread.get(uid):
        return MIN_WATERMARK  # the times of unread splits are unknown, and their records must not be late
    if not planned.waiting[uid] and not planned.reads[uid] and uid not in planned.ended:
        # The source is exhausted for now, and more may arrive: its own watermark is unchanged.
        return _as_a_whole(account, planned).effective_watermark(timeout_ms, now_ms)
    # A split held back by its alignment group is not idle: the planner chose not to read it.
    watermarks = (
        one.time.effective_watermark(None if one.held else timeout_ms, now_ms) for one in planned.waiting[uid]
    )
    return min(watermarks, default=MAX_WATERMARK)


def _as_a_whole(account: OperatorAccount, planned: InputPlan) -> EventTimeState:
    return _awake(EventTimeState(account.event_time, account.active_ms or planned.run_started_ms), planned)


def subtask_times(
    strategies: Strategies, accounts: Accounts, planned: InputPlan
) -> dict[str, dict[int, SubtaskAccount]]:
    """The stored accounts of subtasks, for operators that make watermarks in the middle of the stream and read them as
    `states`."""
    return {
        uid: _awake_since(accounts[uid], planned)
        for uid in strategies
        if uid not in planned.reads and uid in accounts and accounts[uid].subtasks
    }


def timed_reads(planned: InputPlan, strategies: Strategies, accounts: Accounts) -> dict[str, Ranges]:
    """The ranges to read, each with the stored details of its split's time besides the watermark."""
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


# --- for the manifest ------------------------------------------------------------------------------------------


def with_splits(
    account: OperatorAccount,
    uid: str,
    planned: InputPlan,
    read: Mapping[str, SplitRead],
    positions: Mapping[str, SplitPosition],
    strategy: WatermarkStrategy | None,
    before: OperatorAccount,
) -> OperatorAccount:
    """The account of a source with its times in addition to its splits' positions. `read`: the tasks' reports on the
    splits; `before`: its last account."""
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
    """The time from which each subtask of an operator continues; empty if all continue from its watermark.

    >>> uneven_times(EpochOutcome(event_times={"count": {0: 7, 1: 5}}), "count", 5)
    [7, 5]
    """
    times = outcome.event_times.get(uid, {})
    ahead = any(event_time > watermark for event_time in times.values())
    return [times[subtask] for subtask in range(len(times))] if ahead else []


# --- when event time advances without input --------------------------------------------------------------------


def event_times_without_input(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest, now_ms: int
) -> dict[str, int]:
    """The event time of each operator after an epoch without input at `now_ms`."""
    accounts = accounts_of(newest)
    floor = floors(planned, strategies, accounts, now_ms)
    reached: dict[int, int] = {}
    event_times: dict[str, int] = {}
    for node in plan.nodes():
        uid = node.uid or ""
        account = accounts.get(uid, OperatorAccount())
        before = account.event_time
        upstream = min((reached[channel.source] for channel in plan.into(node.id)), default=MAX_WATERMARK)
        here = _emitted(node, upstream, floor, account, planned, now_ms)
        reached[node.id] = here if here == IDLE_WATERMARK else max(here, before)
        event_times[uid] = before if here == IDLE_WATERMARK else max(here, before)
    return event_times


def _emitted(
    node: Node, upstream: int, floor: Mapping[str, int], account: OperatorAccount, planned: InputPlan, now_ms: int
) -> int:
    if isinstance(node.operation, Read):
        return floor[node.uid or ""]
    if isinstance(node.operation, AssignTimestamps) and upstream != MAX_WATERMARK:
        timeout_ms = node.operation.watermarks.idle_timeout_ms
        times = restored_times(_awake_since(account, planned), node.parallelism or 1)
        return min(time.effective_watermark(timeout_ms, now_ms) for time in times)
    return upstream


def watermark_is_due(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest | None, now_ms: int
) -> bool:
    """Whether an epoch is needed now because it would advance event time even without input."""
    if newest is None or planned.has_input:
        return False
    accounts = accounts_of(newest)
    event_times = event_times_without_input(plan, planned, strategies, newest, now_ms)
    return any(here > accounts.get(uid, OperatorAccount()).event_time for uid, here in event_times.items())
