"""Detects stalled watermarks: which source event time waits for, since when, and the warning about it.

The smallest watermark determines event time. So a source without watermarks, or without records for a while, holds back
every downstream timer and window, as in Flink: nothing fails, and no results appear. `stalled_watermarks` detects such
sources when the manifest of an epoch is made. Epochs count only if they have input and some operator waits for a later
event time, and never if the input of the job is bounded: its end releases everything that waits. Pure.

`StallReport` warns once per source, and reports when time advances again. Subtasks without a watermark where others
have one are reported by `silent_subtasks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millstream.checkpoint.manifest import Manifest, SplitPosition
from millstream.checkpoint.stalled_watermarks import StalledWatermark, StallReason, stalled_watermarks_of
from millstream.common.watermark_strategy import WatermarkKind, WatermarkStrategy
from millstream.graph.nodes import AssignTimestamps, Node, Read
from millstream.graph.table_nodes import RankWindows
from millstream.jobs.console.amounts import time_text
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.plan.stages import Plan
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.state.stored.accounts import OperatorAccount, accounts_of
from millstream.state.stored.table_names import (
    EVENT_TIMERS,
    OVER_ROWS,
    PANES,
    RANKED_ROWS,
    TABLE_SESSIONS,
    VERSIONS,
    WINDOW_EVENT_TIMERS,
    WINDOW_VALUES,
)

__all__ = ["StallReport", "stalled_watermarks"]

_WAITING_TABLES = frozenset(
    {EVENT_TIMERS, WINDOW_EVENT_TIMERS, PANES, WINDOW_VALUES, TABLE_SESSIONS, VERSIONS, OVER_ROWS}
)
_RETAINING_TABLES = frozenset({VERSIONS, OVER_ROWS})
"""Tables that retain rows after their time, too: they are certain to wait only if rows arrive while time is stalled."""
_NEVER_EPOCHS, _STALLED_EPOCHS, _STALLED_MS = 3, 10, 60_000
_NAMED_MAX = 3

Accounts = Mapping[str, OperatorAccount]


def stalled_watermarks(
    plan: Plan,
    accounts: Accounts,
    positions: Mapping[str, Mapping[str, SplitPosition]],
    outcome: EpochOutcome,
    newest: Manifest | None,
    now_ms: int,
) -> dict[str, StalledWatermark]:
    """The stalled watermarks after an epoch with these `accounts` and `positions`, which follows `newest`."""
    nodes = {node.id: node for node in plan.nodes()}
    before, last = accounts_of(newest), stalled_watermarks_of(newest)
    had_input = any(outcome.operators.get(node.uid or "", {}).get("out") for node in _reads(plan))
    stalled: dict[str, StalledWatermark] = {}
    for node in _holders(plan, nodes, accounts, outcome, last):
        uid = node.uid or ""
        reached = _time(accounts, uid)
        if reached != _time(before, uid):
            continue
        known = last.get(uid)
        epochs = (known.epochs if known is not None else 0) + had_input
        if not epochs:
            continue
        splits, has_records = _behind(node, accounts.get(uid, OperatorAccount()), positions.get(uid, {}), outcome)
        reason = _reason(node, reached, has_records)
        since_ms = known.since_ms if known is not None else now_ms if newest is None else newest.created_ms
        is_long = (
            epochs >= _NEVER_EPOCHS
            if reason == "never"
            else epochs >= _STALLED_EPOCHS and now_ms - since_ms >= _STALLED_MS
        )
        stalled[uid] = StalledWatermark(reason, epochs, since_ms, splits, is_long)
    return stalled


def _time(accounts: Accounts, uid: str) -> int:
    return accounts.get(uid, OperatorAccount()).event_time


def _reads(plan: Plan) -> list[Node]:
    return [node for node in plan.nodes() if isinstance(node.operation, Read)]


def _strategy(node: Node) -> WatermarkStrategy | None:
    assert isinstance(node.operation, (Read, AssignTimestamps))
    return node.operation.watermarks


def _holders(
    plan: Plan,
    nodes: Mapping[int, Node],
    accounts: Accounts,
    outcome: EpochOutcome,
    last: Mapping[str, StalledWatermark],
) -> list[Node]:
    """The distinct nodes that make the watermarks that some operator waits for."""
    holders: dict[int, Node] = {}
    for node in nodes.values():
        account = accounts.get(node.uid or "", OperatorAccount())
        if account.event_time < MAX_WATERMARK and _waits(node, account):
            has_rows = account.event_time == MIN_WATERMARK or outcome.operators.get(node.uid or "", {}).get("in")
            is_sure = bool(has_rows) or _waits(node, account, _WAITING_TABLES - _RETAINING_TABLES)
            for holder in _upstream(plan, nodes, node, account.event_time, accounts):
                if (is_sure or holder.uid in last) and _may_be_blamed(plan, nodes, holder, outcome, accounts):
                    holders[holder.id] = holder
    return list(holders.values())


def _waits(node: Node, account: OperatorAccount, tables: frozenset[str] = _WAITING_TABLES) -> bool:
    """Whether an operator holds timers or rows that a later event time would fire or emit."""
    if not getattr(node.operation, "is_event_time", True):
        return False
    waiting = {*tables, RANKED_ROWS} if isinstance(node.operation, RankWindows) else tables
    for subtask in account.subtasks.values():
        if subtask.tables is None or subtask.by_clock or subtask.fired_ms is not None:
            continue
        if any(refs and (name in waiting or subtask.windows) for name, refs in subtask.tables.versions.items()):
            return True
    return False


def _upstream(plan: Plan, nodes: Mapping[int, Node], node: Node, reached: int, accounts: Accounts) -> Iterator[Node]:
    """The nearest upstream nodes that make watermarks and have not passed `reached`."""
    for channel in plan.into(node.id):
        before = nodes[channel.source]
        if _time(accounts, before.uid or "") > reached:
            continue
        if isinstance(before.operation, (Read, AssignTimestamps)):
            yield before
        else:
            yield from _upstream(plan, nodes, before, reached, accounts)


def _may_be_blamed(
    plan: Plan, nodes: Mapping[int, Node], node: Node, outcome: EpochOutcome, accounts: Accounts
) -> bool:
    """Excludes nodes whose input will end, nodes that have not begun all their splits, and nodes that are idle without
    records."""
    sources = list(_sources_of(plan, nodes, node))
    if all(source.operation.source.bounded for source in sources if isinstance(source.operation, Read)):
        return False
    account = accounts.get(node.uid or "", OperatorAccount())
    if account.unread or _is_silent_in_part(node, account):
        return False
    strategy = _strategy(node)
    leaves_out = strategy is not None and strategy.idle_timeout_ms is not None
    return not leaves_out or bool(outcome.operators.get(node.uid or "", {}).get("out"))


def _is_silent_in_part(node: Node, account: OperatorAccount) -> bool:
    """Whether `silent_subtasks` reports the node."""
    if not isinstance(node.operation, AssignTimestamps) or account.event_time != MIN_WATERMARK:
        return False
    return any(
        subtask.time is not None and subtask.time.watermark != MIN_WATERMARK for subtask in account.subtasks.values()
    )


def _sources_of(plan: Plan, nodes: Mapping[int, Node], node: Node) -> Iterator[Node]:
    if isinstance(node.operation, Read):
        yield node
    for channel in plan.into(node.id):
        yield from _sources_of(plan, nodes, nodes[channel.source])


def _behind(
    node: Node, account: OperatorAccount, positions: Mapping[str, SplitPosition], outcome: EpochOutcome
) -> tuple[tuple[str, ...], bool]:
    """Some of the splits that have not passed the node's event time, and whether these splits or the node had
    records."""
    uid = node.uid or ""
    if not isinstance(node.operation, Read):
        return (), bool(outcome.operators.get(uid, {}).get("in"))
    reached = {name: _reached(positions.get(name)) for name in account.splits}
    behind = sorted(name for name, watermark in reached.items() if watermark <= account.event_time)
    read = outcome.sources.get(uid, {})
    has_records = any(name in read and read[name].records for name in behind)
    return tuple(behind[:_NAMED_MAX]) if len(behind) < len(reached) else (), has_records


def _reached(position: SplitPosition | None) -> int:
    return MIN_WATERMARK if position is None or position.watermark is None else position.watermark


def _reason(node: Node, reached: int, has_records: bool) -> StallReason:
    strategy = _strategy(node)
    if reached == MIN_WATERMARK and (strategy is None or strategy.kind is WatermarkKind.NONE):
        return "never"
    if has_records:
        return "stuck"
    return "silent" if reached == MIN_WATERMARK else "idle"


# --- the report -----------------------------------------------------------------------------------------------------


class StallReport:
    """Reports the stalled watermarks of a run of a job: each source once, and when time advances again."""

    def __init__(self) -> None:
        self._awaited: dict[str, str] = {}
        self._reported: set[str] = set()

    @property
    def awaited(self) -> tuple[str, ...]:
        """The sources that event time waits for now."""
        return tuple(dict.fromkeys(self._awaited.values()))

    def committed(self, manifest: Manifest, plan: Plan) -> list[str]:
        """Records a committed epoch. Returns the warnings to log."""
        stalled = {uid: time for uid, time in stalled_watermarks_of(manifest).items() if time.is_long}
        nodes = {node.uid or "": node for node in plan.nodes()}
        moving = [uid for uid in self._awaited if uid not in stalled]
        lines = [f"event time no longer waits for '{self._awaited.pop(uid)}'" for uid in moving]
        for uid, time in stalled.items():
            if uid in nodes and uid not in self._awaited:
                self._awaited[uid] = nodes[uid].name
                if uid not in self._reported:
                    lines.append(_sentence(nodes[uid], time, manifest, plan))
                self._reported.add(uid)
        return lines


def _sentence(node: Node, time: StalledWatermark, manifest: Manifest, plan: Plan) -> str:
    name, (reason, advice) = _named(node, plan), _REASONS[time.reason]
    if time.splits:
        more = ", …" if len(time.splits) == _NAMED_MAX else ""
        name = f"{name} in {', '.join(map(repr, time.splits))}{more}"
    reached = _time(accounts_of(manifest), node.uid or "")
    at = "" if reached == MIN_WATERMARK else f" at {time_text(reached, manifest.created_ms)} UTC"
    waiting = ", ".join(f"'{name}'" for name in _waiting_names(node, manifest, plan))
    held = f"so no window or timer of {waiting} fires"
    return f"event time is stalled{at}: {name} {reason}, {held}. {advice} ({node.site})"


_IDLE_ADVICE = (
    "Let its watermark strategy exclude idle inputs: .with_idleness(Duration.of_minutes(1)); in SQL, "
    "SET 'table.exec.source.idle-timeout' = '1 min'"
)
_REASONS: dict[StallReason, tuple[str, str]] = {
    "never": (
        "emits no watermarks",
        "Define its event time: pass a WatermarkStrategy to from_source(), or call "
        ".assign_timestamps_and_watermarks(...) after it; in SQL, declare WATERMARK FOR … AS … in CREATE TABLE",
    ),
    "silent": ("has had no record yet", _IDLE_ADVICE),
    "idle": ("has had no record for a minute or longer", _IDLE_ADVICE),
    "stuck": (
        "has records, and its watermark does not follow them",
        "Check the timestamps that its strategy assigns, and whether its generator emits watermarks",
    ),
}


def _named(node: Node, plan: Plan) -> str:
    """The operator's name, with its upstream sources if it is not a source itself."""
    nodes = {each.id: each for each in plan.nodes()}
    sources = list(dict.fromkeys(source.name for source in _sources_of(plan, nodes, node)))
    if isinstance(node.operation, Read) or not sources:
        return f"'{node.name}'"
    return f"'{node.name}' after {', '.join(map(repr, sources[:_NAMED_MAX]))}"


def _waiting_names(node: Node, manifest: Manifest, plan: Plan) -> list[str]:
    nodes: dict[int, Node] = {each.id: each for each in plan.nodes()}
    accounts: Any = accounts_of(manifest)
    names = [
        each.name
        for each in nodes.values()
        if _waits(each, account := accounts.get(each.uid or "", OperatorAccount()))
        and node in _upstream(plan, nodes, each, account.event_time, accounts)
    ]
    return list(dict.fromkeys(names))[:_NAMED_MAX]
