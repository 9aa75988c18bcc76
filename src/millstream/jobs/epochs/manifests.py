"""Makes an epoch's manifest from its outcome, and the next epoch's spec from a manifest. Pure.

The manifest holds an account of each operator (`state/stored/accounts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest, SplitFile, SplitPosition, Staged
from millstream.checkpoint.meanings import meanings_to_json
from millstream.checkpoint.program import ProgramOperator, program_to_json
from millstream.checkpoint.stalled_watermarks import StalledWatermark, stalled_to_json
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contract_checks import due_ms_of, is_finished, planned_commit
from millstream.connectors.contracts import Sink, Source
from millstream.errors import ProgramError, StoreError
from millstream.graph.nodes import Node
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.stalled_watermarks import stalled_watermarks
from millstream.jobs.epochs.watermarks import (
    floors,
    strategies_of,
    subtask_times,
    timed_reads,
    uneven_times,
    with_splits,
)
from millstream.metrics.registry import merge
from millstream.plan.stages import Plan
from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.state.schemas.state_schemas import with_shared_schemas
from millstream.state.stored.accounts import OperatorAccount, SubtaskAccount, accounts_of, to_json

__all__ = [
    "Joined",
    "closing_manifest",
    "epoch_manifest",
    "epoch_spec",
    "next_wake_ms",
    "processing_time_ms",
    "sink_is_due",
    "staged_values",
    "subtask_accounts",
    "timer_is_due",
]

_PROCESSING_TIME = "processing_time_ms"


def epoch_spec(
    action: e.RunEpoch, plan: InputPlan, newest: Manifest | None, strategies: Mapping[str, WatermarkStrategy]
) -> EpochSpec:
    """The spec, sent to tasks, of the epoch that follows `newest`. The caller sets its round."""
    accounts = accounts_of(newest)
    return EpochSpec(
        epoch=action.epoch,
        round=0,
        now_ms=plan.now_ms,
        final=action.final,
        reads=timed_reads(plan, strategies, accounts),
        floors=floors(plan, strategies, accounts, plan.now_ms),
        watermarks={uid: account.event_time for uid, account in accounts.items()},
        states={
            **{uid: with_shared_schemas(account.subtasks) for uid, account in accounts.items() if account.subtasks},
            **subtask_times(strategies, accounts, plan),
        },
        operator_states={uid: account.functions for uid, account in accounts.items() if account.functions},
        event_times={uid: account.event_times for uid, account in accounts.items() if account.event_times},
    )


@dataclass(frozen=True)
class Joined:
    """Acknowledged epochs that are committed as one with the next: the manifest `parent` that the first of them
    followed, and their staged output by sink, in order. Sinks decide once for all of them which output to hold back."""

    parent: Manifest | None
    staged: Mapping[str, Sequence[tuple[int, Any]]]


def staged_values(uid: str, outcome: EpochOutcome, joined: Joined | None) -> list[Any]:
    """The values staged for a sink, in the order of the epochs."""
    before = [] if joined is None else joined.staged.get(uid, [])
    return [item for _, item in (*before, *outcome.staged.get(uid, []))]


def epoch_manifest(
    action: e.Commit,
    plan: Plan,
    facts: JobFacts,
    planned: InputPlan,
    outcome: EpochOutcome,
    newest: Manifest | None,
    now_ms: int,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    finished: Mapping[str, SplitFile],
    joined: Joined | None = None,
) -> Manifest:
    """The manifest that commits `outcome`. `finished`: by source, a file that lists from now on the splits finished
    before. `joined`: the manifest commits other epochs as well, the last of which made `newest`."""
    final = action.status == "DRAINED"
    before = accounts_of(newest)
    _check_queryable(plan, outcome)
    accounts = _operator_accounts(outcome, before)
    positions = _positions(planned, outcome, newest, sources, final, finished)
    strategies = strategies_of(plan)
    for uid in planned.reads:
        read, last_account = outcome.sources.get(uid, {}), before.get(uid, OperatorAccount())
        accounts[uid] = with_splits(
            accounts[uid], uid, planned, read, positions[uid], strategies.get(uid), last_account
        )
        if facts.records_input:
            recorded = {name: split.recorded for name, split in read.items() if split.recorded is not None}
            accounts[uid] = replace(accounts[uid], recorded=recorded)
    parent = newest if joined is None else joined.parent
    staged: dict[str, tuple[Staged, ...]] = {}
    for uid, sink in sinks.items():
        staged_items = staged_values(uid, outcome, joined)
        pending = accounts_of(parent).get(uid, OperatorAccount()).pending
        reached = accounts[uid].event_time if uid in accounts else MIN_WATERMARK
        decided = planned_commit(sink, staged_items, pending, max(now_ms, planned.now_ms), final, reached)
        if decided.publish:
            staged[uid] = tuple(Staged(-1, item) for item in decided.publish)
        if decided.pending is not None:
            accounts[uid] = replace(accounts.get(uid, OperatorAccount()), pending=decided.pending)
    return Manifest(
        job=facts.job_name,
        job_id=facts.job_id,
        epoch=action.epoch,
        parent=0 if parent is None else parent.epoch,
        created_ms=now_ms,
        run=facts.run,
        status=action.status,
        sources=positions,
        states={uid: to_json(account) for uid, account in accounts.items()},
        staged=staged,
        published_through=action.published_through,
        watermark=_end_of_time(plan, sinks, accounts),
        counters=_counters(
            planned, outcome, newest, stalled_watermarks(plan, accounts, positions, outcome, newest, now_ms)
        ),
        program=program_to_json({node.uid or "": _described(node) for node in plan.nodes()}),
        finished=_filed(newest, finished),
        meanings=meanings_to_json({node.uid or "": node.meaning for node in plan.nodes() if node.meaning is not None}),
    )


def _end_of_time(plan: Plan, sinks: Mapping[str, Sink], accounts: Mapping[str, OperatorAccount]) -> int | None:
    """The event time that the ends of the program have reached. A program without sinks ends in queryable states."""
    last = sinks if sinks else {node.uid for node in plan.nodes() if node.queryable is not None}
    ends = [accounts[uid].event_time for node in plan.nodes() if (uid := node.uid or "") in last and uid in accounts]
    return min(ends, default=None)


def _filed(newest: Manifest | None, finished: Mapping[str, SplitFile]) -> dict[str, tuple[SplitFile, ...]]:
    before = {} if newest is None else dict(newest.finished)
    return before | {uid: (*before.get(uid, ()), file) for uid, file in finished.items()}


def _operator_accounts(outcome: EpochOutcome, before: Mapping[str, OperatorAccount]) -> dict[str, OperatorAccount]:
    """The account of every operator: its event time, and the accounts of its subtasks and functions."""
    accounts: dict[str, OperatorAccount] = {}
    for uid, watermark in outcome.watermarks.items():
        # Event time never decreases, even if the parallelism or the splits changed; an idle operator's time is
        # unchanged.
        reached = MIN_WATERMARK if watermark == IDLE_WATERMARK else watermark
        event_time = max(reached, before.get(uid, OperatorAccount()).event_time)
        accounts[uid] = OperatorAccount(
            event_time,
            tuple(uneven_times(outcome, uid, event_time)),
            outcome.states.get(uid, {}),
            outcome.operator_states.get(uid, {}),
        )
    return accounts


def _described(node: Node) -> ProgramOperator:
    """The operator as the manifest describes it; a later program is compared with it."""
    operator = ProgramOperator(node.name, node.parallelism, node.max_parallelism)
    return replace(operator, uid="derived") if node.uid_is_derived else operator


def _check_queryable(plan: Plan, outcome: EpochOutcome) -> None:
    """Functions declare their queryable states when they are opened, so duplicate names are detected only here."""
    owners: dict[str, str] = {}
    nodes = {node.uid: node for node in plan.nodes()}
    for uid, subtasks in outcome.states.items():
        for name in sorted({name for account in subtasks.values() for name in account.queryable}):
            other = nodes[owners.setdefault(name, uid)]
            if other.uid != uid:
                raise ProgramError(
                    f"'{name}' is the name of queryable states of both '{other.name}' ({other.site}) and "
                    f"'{nodes[uid].name}'. Names of queryable states must be unique: change one of them",
                    at=str(nodes[uid].site),
                )


def _positions(
    planned: InputPlan,
    outcome: EpochOutcome,
    newest: Manifest | None,
    sources: Mapping[str, Source],
    final: bool,
    finished: Mapping[str, SplitFile],
) -> dict[str, dict[str, SplitPosition]]:
    positions = {} if newest is None else {uid: dict(splits) for uid, splits in newest.sources.items()}
    for uid, ranges in planned.reads.items():
        # Finished splits that a file lists, or that the source no longer lists, are omitted to keep the manifest small.
        unlisted = planned.unlisted.get(uid, frozenset())
        of_source = {
            name: at
            for name, at in positions.get(uid, {}).items()
            if not at.finished or (uid not in finished and name not in unlisted)
        }
        positions[uid] = of_source
        for range_ in ranges:
            read = outcome.sources[uid][range_.split.name]
            ends = is_finished(sources[uid], range_.split, read.offset)
            if final and not ends:
                raise StoreError(
                    f"split '{range_.split.name}' of source '{uid}' was to be read to its end, "
                    f"but stopped at {read.offset!r} before {range_.stop!r}. Was the input truncated while it was read?"
                )
            of_source[range_.split.name] = SplitPosition(read.offset, ends, read.time.watermark)
        for name, start in planned.starts.get(uid, {}).items():
            of_source.setdefault(name, SplitPosition(start))
    return positions


def _counters(
    planned: InputPlan, outcome: EpochOutcome, newest: Manifest | None, stalled: Mapping[str, StalledWatermark]
) -> dict[str, Any]:
    before: Mapping[str, Any] = {} if newest is None else newest.counters
    totals = {uid: dict(counts) for uid, counts in before.get("operators", {}).items()}
    for uid, counts in outcome.operators.items():
        total = totals.setdefault(uid, {"in": 0, "out": 0})
        total["in"] += counts["in"]
        total["out"] += counts["out"]
    metrics = merge(before.get("metrics", {}), outcome.metrics)
    return {"operators": totals, "metrics": metrics, _PROCESSING_TIME: planned.now_ms, **stalled_to_json(stalled)}


def processing_time_ms(manifest: Manifest | None) -> int | None:
    """The processing time of the last epoch that ran; None: unknown."""
    counters: Mapping[str, Any] = {} if manifest is None else manifest.counters
    own = counters.get("epoch")  # manifests of older versions contain it only in the statistics of their epoch
    stored_ms = counters.get(_PROCESSING_TIME, own.get("now_ms") if isinstance(own, dict) else None)
    return stored_ms if type(stored_ms) is int else None


def closing_manifest(action: e.Commit, newest: Manifest, facts: JobFacts, now_ms: int) -> Manifest:
    """The manifest that records that everything is published. It has the parent's positions, and no output."""
    return Manifest(
        job=newest.job,
        job_id=newest.job_id,
        epoch=action.epoch,
        parent=newest.epoch,
        created_ms=now_ms,
        run=facts.run,
        status=action.status,
        sources=newest.sources,
        states=newest.states,
        published_through=action.published_through,
        watermark=newest.watermark,
        counters=newest.counters,
        program=newest.program,
        finished=newest.finished,
        meanings=newest.meanings,
    )


def sink_is_due(sinks: Mapping[str, Sink], newest: Manifest | None, now_ms: int) -> bool:
    """Whether a sink needs an epoch now, even without input, for output that it holds back."""
    accounts = accounts_of(newest)
    for uid, sink in sinks.items():
        pending = accounts.get(uid, OperatorAccount()).pending
        due_ms = None if pending is None else due_ms_of(sink, pending)
        if due_ms is not None and due_ms <= now_ms:
            return True
    return False


def timer_is_due(newest: Manifest | None, now_ms: int) -> bool:
    """Whether a timer of processing time is due."""
    wake_ms = next_wake_ms(newest)
    return wake_ms is not None and wake_ms <= now_ms


def next_wake_ms(newest: Manifest | None) -> int | None:
    """The earliest pending timer of processing time, over all operators and subtasks."""
    times_ms = (account.wake_ms for account in subtask_accounts(newest))
    return min((wake_ms for wake_ms in times_ms if wake_ms is not None), default=None)


def subtask_accounts(manifest: Manifest | None) -> Iterator[SubtaskAccount]:
    """The accounts of all subtasks of all operators."""
    return (account for operator in accounts_of(manifest).values() for account in operator.subtasks.values())
