"""Event time between epochs: what the tasks are told of it, what the manifest keeps, when it moves by itself. Pure.

While records come, watermarks move in the tasks. Two things move them without a record: an input that has been quiet
for its idle timeout stops holding the others back, and a source that has come to its end does. `standing_at` works out
where every operator's event time would stand after an epoch without input. If that is further than the manifest says,
such an epoch is wanted; after it, it no longer is. So an idle job runs one epoch for each time that becomes due, and
none when nothing is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from millstream.checkpoint.manifest import Manifest, SplitPosition
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.graph.nodes import AssignTimestamps, Node, Read
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.plan.stages import Plan
from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.task.event_time import KeptTime, restored_times
from millstream.runtime.task.spec import ReadRange

__all__ = [
    "floors",
    "kept_of_source",
    "next_watermark_ms",
    "standing_at",
    "strategies_of",
    "timed_reads",
    "told_times",
    "uneven_times",
    "watermark_is_due",
]

Strategies = Mapping[str, WatermarkStrategy]
Ranges = tuple[ReadRange, ...]


def strategies_of(plan: Plan) -> dict[str, WatermarkStrategy]:
    """The watermark strategies of a program, by the uid of the operator that applies them."""
    found: dict[str, WatermarkStrategy] = {}
    for node in plan.nodes():
        operation = node.operation
        if isinstance(operation, (Read, AssignTimestamps)) and operation.watermarks is not None:
            found[node.uid or ""] = operation.watermarks
    return found


# --- what the tasks are told -----------------------------------------------------------------------------------


def floors(planned: InputPlan, strategies: Strategies, states: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """What holds each source's event time back besides the ranges read; IDLE or MAX where nothing does."""
    return {uid: _floor(uid, planned, strategies.get(uid), states.get(uid, {}), now_ms) for uid in planned.reads}


def _floor(
    uid: str, planned: InputPlan, strategy: WatermarkStrategy | None, kept: Mapping[str, Any], now_ms: int
) -> int:
    timeout_ms = None if strategy is None else strategy.idle_timeout_ms
    if planned.unread.get(uid):
        return MIN_WATERMARK  # nothing is known of their time, and nobody is to find his records late
    if not planned.waiting[uid] and not planned.reads[uid] and uid not in planned.ended:
        # All it ever had is read, and more may come: the source as a whole stands where it stands.
        return _as_a_whole(kept, planned.run_started_ms).stands(timeout_ms, now_ms)
    # A split that its group holds back is not idle: it is we who do not read it.
    stands = (one.time.stands(None if one.held else timeout_ms, now_ms) for one in planned.waiting[uid])
    return min(stands, default=MAX_WATERMARK)


def _as_a_whole(kept: Mapping[str, Any], run_started_ms: int) -> KeptTime:
    active_ms = max(kept.get("active_ms", run_started_ms), run_started_ms)
    return KeptTime(kept.get("watermark", MIN_WATERMARK), active_ms)


def told_times(strategies: Strategies, states: Mapping[str, Any], planned: InputPlan) -> dict[str, dict[str, Any]]:
    """What the manifest keeps of subtasks, for the operators that keep time in mid-stream. Read by them as `states`."""
    return {
        uid: _awake_since(states[uid]["subtasks"], planned.run_started_ms)
        for uid in strategies
        if uid not in planned.reads and "subtasks" in states.get(uid, {})
    }


def timed_reads(planned: InputPlan, strategies: Strategies, states: Mapping[str, Any]) -> dict[str, Ranges]:
    """The ranges to read, each with what the manifest keeps of its split's time besides the watermark."""
    return {
        uid: _timed(ranges, states.get(uid, {}).get("splits", {}), planned.run_started_ms)
        if uid in strategies
        else ranges
        for uid, ranges in planned.reads.items()
    }


def _timed(ranges: Ranges, splits: Mapping[str, Mapping[str, Any]], run_started_ms: int) -> Ranges:
    names = {range_.split.name for range_ in ranges}
    # The subtask alone is no news: the range says it.
    known = _awake_since({name: one for name, one in splits.items() if name in names and len(one) > 1}, run_started_ms)
    if not known:
        return ranges
    return tuple(replace(range_, time=known.get(range_.split.name, {})) for range_ in ranges)


def _awake_since(times: Mapping[str, Mapping[str, Any]], run_started_ms: int) -> dict[str, dict[str, Any]]:
    """Nobody was idle while the job was down."""
    return {
        name: {**one, "active_ms": max(one["active_ms"], run_started_ms)} if "active_ms" in one else dict(one)
        for name, one in times.items()
    }


# --- what the manifest keeps -----------------------------------------------------------------------------------


def kept_of_source(
    uid: str,
    planned: InputPlan,
    read: Mapping[str, Mapping[str, Any]],
    positions: Mapping[str, SplitPosition],
    strategy: WatermarkStrategy | None,
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """What a manifest keeps of a source's time besides its splits' positions. `read`: what the tasks said of them."""
    splits: dict[str, Any] = {}
    for range_ in planned.reads[uid]:
        name = range_.split.name
        if not positions[name].finished:
            splits[name] = {"subtask": range_.subtask, **read[name]["time"]}
    for one in planned.waiting[uid]:
        time = replace(one.time, active_ms=planned.now_ms) if one.held and one.time.active_ms is not None else one.time
        splits[one.split] = {"subtask": one.subtask, **time.details()}
    kept: dict[str, Any] = {"splits": splits} if splits else {}
    if planned.unread.get(uid):
        kept["unread"] = planned.unread[uid]
    if strategy is not None and strategy.idle_timeout_ms is not None:
        had_records = any(one["records"] for one in read.values())
        kept["active_ms"] = planned.now_ms if had_records else before.get("active_ms", planned.now_ms)
    return kept


def uneven_times(outcome: EpochOutcome, uid: str, watermark: int) -> list[int]:
    """Where each subtask of an operator goes on, if not all do at its watermark; else nothing, which says the same.

    >>> uneven_times(EpochOutcome(event_times={"count": {"0": 7, "1": 5}}), "count", 5)
    [7, 5]
    """
    times = outcome.event_times.get(uid, {})
    ahead = any(event_time > watermark for event_time in times.values())
    return [times[str(subtask)] for subtask in range(len(times))] if ahead else []


# --- when event time moves by itself ---------------------------------------------------------------------------


def standing_at(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest, now_ms: int
) -> dict[str, int]:
    """Where each operator's event time would stand after an epoch without input at `now_ms`."""
    states: Mapping[str, Any] = newest.states
    floor = floors(planned, strategies, states, now_ms)
    reached: dict[int, int] = {}
    standing: dict[str, int] = {}
    for node in plan.nodes():
        uid = node.uid or ""
        before = states.get(uid, {}).get("watermark", MIN_WATERMARK)
        heard = min((reached[channel.source] for channel in plan.into(node.id)), default=MAX_WATERMARK)
        here = _emitted(node, heard, floor, states.get(uid, {}), planned.run_started_ms, now_ms)
        reached[node.id] = here if here == IDLE_WATERMARK else max(here, before)
        standing[uid] = before if here == IDLE_WATERMARK else max(here, before)
    return standing


def _emitted(
    node: Node, heard: int, floor: Mapping[str, int], kept: Mapping[str, Any], run_started_ms: int, now_ms: int
) -> int:
    if isinstance(node.operation, Read):
        return floor[node.uid or ""]
    if isinstance(node.operation, AssignTimestamps) and heard != MAX_WATERMARK:
        timeout_ms = node.operation.watermarks.idle_timeout_ms
        times = restored_times(_awake_since(kept.get("subtasks", {}), run_started_ms), node.parallelism or 1)
        return min(time.stands(timeout_ms, now_ms) for time in times)
    return heard


def next_watermark_ms(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest | None, now_ms: int
) -> int | None:
    """The first moment from `now_ms` on at which an epoch without input would move event time; None: it never would."""
    if newest is None:
        return None
    states: Mapping[str, Any] = newest.states
    for at_ms in sorted({now_ms, *(due for due in _due_times(plan, planned, strategies, states) if due > now_ms)}):
        if _moves(plan, planned, strategies, newest, at_ms):
            return at_ms
    return None


def _moves(plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest, now_ms: int) -> bool:
    states: Mapping[str, Any] = newest.states
    standing = standing_at(plan, planned, strategies, newest, now_ms)
    return any(here > states.get(uid, {}).get("watermark", MIN_WATERMARK) for uid, here in standing.items())


def _due_times(plan: Plan, planned: InputPlan, strategies: Strategies, states: Mapping[str, Any]) -> Iterable[int]:
    """When something may become idle."""
    started_ms = planned.run_started_ms
    for uid, strategy in strategies.items():
        if strategy.idle_timeout_ms is None:
            continue
        kept = states.get(uid, {})
        times = [one.time for one in planned.waiting.get(uid, ())]
        times += restored_times(_awake_since(kept.get("subtasks", {}), started_ms), len(kept.get("subtasks", {})))
        if uid in planned.reads:
            times.append(_as_a_whole(kept, started_ms))
        yield from (time.active_ms + strategy.idle_timeout_ms for time in times if time.active_ms is not None)


def watermark_is_due(
    plan: Plan, planned: InputPlan, strategies: Strategies, newest: Manifest | None, now_ms: int
) -> bool:
    """Whether an epoch is wanted now, because it would move event time although it has no input."""
    if newest is None or planned.has_input:
        return False
    return _moves(plan, planned, strategies, newest, now_ms)
