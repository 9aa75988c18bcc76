"""From an epoch's outcome to its manifest, and from a manifest to the next epoch's spec. Pure.

What the manifest keeps per operator lies under `states[uid]`: its event time, the small state of its subtasks, what
a source knows of its splits besides their positions, and what a sink holds back for a later epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest, SplitFile, SplitPosition, Staged
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contract_checks import due_ms_of, is_finished, planned_commit
from millstream.connectors.contracts import Sink, Source
from millstream.errors import ProgramError, StoreError
from millstream.graph.nodes import Node
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.watermarks import (
    floors,
    kept_of_source,
    strategies_of,
    timed_reads,
    told_times,
    uneven_times,
)
from millstream.metrics.registry import merge
from millstream.plan.stages import Plan
from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.runtime.task.spec import EpochSpec, JobFacts

__all__ = [
    "closing_manifest",
    "epoch_manifest",
    "epoch_spec",
    "next_wake_ms",
    "sink_is_due",
    "subtask_accounts",
    "timer_is_due",
]


def epoch_spec(
    action: e.RunEpoch, plan: InputPlan, newest: Manifest | None, strategies: Mapping[str, WatermarkStrategy]
) -> EpochSpec:
    """What the tasks are told of the epoch that follows `newest`. Which round it is, says whoever runs it."""
    states: Mapping[str, Any] = {} if newest is None else newest.states
    return EpochSpec(
        epoch=action.epoch,
        round=0,
        now_ms=plan.now_ms,
        final=action.final,
        reads=timed_reads(plan, strategies, states),
        floors=floors(plan, strategies, states, plan.now_ms),
        watermarks={uid: state.get("watermark", MIN_WATERMARK) for uid, state in states.items()},
        states={
            **{uid: state["subtasks"] for uid, state in states.items() if "subtasks" in state},
            **told_times(strategies, states, plan),
        },
        operator_states={uid: state["functions"] for uid, state in states.items() if "functions" in state},
        event_times={uid: state["event_times"] for uid, state in states.items() if "event_times" in state},
    )


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
) -> Manifest:
    """The manifest that commits `outcome`. `finished`: by source, a file in which splits that were finished before
    stand from now on."""
    final = action.status == "DRAINED"
    before: Mapping[str, Any] = {} if newest is None else newest.states
    _check_queryable(plan, outcome)
    states = _kept(outcome, before)
    positions = _positions(planned, outcome, newest, sources, final, finished)
    strategies = strategies_of(plan)
    for uid in planned.reads:
        kept, read = before.get(uid, {}), outcome.sources.get(uid, {})
        states[uid].update(kept_of_source(uid, planned, read, positions[uid], strategies.get(uid), kept))
        if facts.records_input:
            states[uid]["recorded"] = {split: one["recorded"] for split, one in read.items()}
    staged: dict[str, tuple[Staged, ...]] = {}
    for uid, sink in sinks.items():
        given = outcome.staged.get(uid, [])
        pending = before.get(uid, {}).get("pending")
        decided = planned_commit(sink, [item for _, item in given], pending, now_ms, final)
        if decided.publish:
            staged[uid] = tuple(Staged(-1, item) for item in decided.publish)
        if decided.pending is not None:
            states.setdefault(uid, {})["pending"] = decided.pending
    # A program without sinks ends in states that are asked for.
    last = sinks if sinks else {node.uid for node in plan.nodes() if node.queryable is not None}
    ends = [states[node.uid]["watermark"] for node in plan.nodes() if node.uid in last and node.uid in states]
    return Manifest(
        job=facts.job_name,
        job_id=facts.job_id,
        epoch=action.epoch,
        parent=0 if newest is None else newest.epoch,
        created_ms=now_ms,
        run=facts.run,
        status=action.status,
        sources=positions,
        states=states,
        staged=staged,
        published_through=action.published_through,
        watermark=min(ends, default=None),
        counters=_counters(outcome, newest),
        program={node.uid or "": _described(node) for node in plan.nodes()},
        finished=_filed(newest, finished),
    )


def _filed(newest: Manifest | None, finished: Mapping[str, SplitFile]) -> dict[str, tuple[SplitFile, ...]]:
    before = {} if newest is None else dict(newest.finished)
    return before | {uid: (*before.get(uid, ()), file) for uid, file in finished.items()}


def _kept(outcome: EpochOutcome, before: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What every operator keeps: its event time, and the accounts of its subtasks and functions."""
    states: dict[str, dict[str, Any]] = {}
    for uid, watermark in outcome.watermarks.items():
        # Event time never goes back, not even when a parallelism or a split set has changed; idle, it stands still.
        reached = MIN_WATERMARK if watermark == IDLE_WATERMARK else watermark
        stands = max(reached, before.get(uid, {}).get("watermark", MIN_WATERMARK))
        times = uneven_times(outcome, uid, stands)
        states[uid] = {"watermark": stands, "event_times": times} if times else {"watermark": stands}
    for uid, subtasks in outcome.states.items():
        states[uid]["subtasks"] = subtasks
    for uid, functions in outcome.operator_states.items():
        states[uid]["functions"] = functions
    return states


def _described(node: Node) -> dict[str, Any]:
    """What a later program is held against."""
    derived = {"uid": "derived"} if node.uid_is_derived else {}
    return {
        "name": node.name,
        "parallelism": node.parallelism,
        "max_parallelism": node.max_parallelism,
        **derived,
    }


def _check_queryable(plan: Plan, outcome: EpochOutcome) -> None:
    """Functions name their queryable states when they are opened: here, all are known for the first time."""
    owners: dict[str, str] = {}
    nodes = {node.uid: node for node in plan.nodes()}
    for uid, subtasks in outcome.states.items():
        accounts = [account for account in subtasks.values() if isinstance(account, dict)]
        for name in sorted({name for account in accounts for name in account.get("queryable", ())}):
            other = nodes[owners.setdefault(name, uid)]
            if other.uid != uid:
                raise ProgramError(
                    f"'{name}' is the name of queryable states of both '{other.name}' ({other.site}) and "
                    f"'{nodes[uid].name}'. A name stands for one state: change one of them",
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
        # A finished split that is in a file, or that its source has forgotten, is not listed: the manifest stays small.
        forgotten = planned.forgotten.get(uid, frozenset())
        own = {
            name: at
            for name, at in positions.get(uid, {}).items()
            if not at.finished or (uid not in finished and name not in forgotten)
        }
        positions[uid] = own
        for range_ in ranges:
            read = outcome.sources[uid][range_.split.name]
            ends = is_finished(sources[uid], range_.split, read["offset"])
            if final and not ends:
                raise StoreError(
                    f"split '{range_.split.name}' of source '{uid}' was to be read to its end, "
                    f"but stopped at {read['offset']!r} before {range_.stop!r}. Was the input cut while it was read?"
                )
            own[range_.split.name] = SplitPosition(read["offset"], ends, read["watermark"])
    return positions


def _counters(outcome: EpochOutcome, newest: Manifest | None) -> dict[str, Any]:
    before: Mapping[str, Any] = {} if newest is None else newest.counters
    totals = {uid: dict(counts) for uid, counts in before.get("operators", {}).items()}
    for uid, counts in outcome.operators.items():
        total = totals.setdefault(uid, {"in": 0, "out": 0})
        total["in"] += counts["in"]
        total["out"] += counts["out"]
    return {"operators": totals, "metrics": merge(before.get("metrics", {}), outcome.metrics)}


def closing_manifest(action: e.Commit, newest: Manifest, facts: JobFacts, now_ms: int) -> Manifest:
    """The manifest that says everything is published: the parent's positions, no output of its own."""
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
    )


def sink_is_due(sinks: Mapping[str, Sink], newest: Manifest | None, now_ms: int) -> bool:
    """Whether a sink wants an epoch now, for the sake of what it keeps back, although there may be no input."""
    states: Mapping[str, Any] = {} if newest is None else newest.states
    for uid, sink in sinks.items():
        pending = states.get(uid, {}).get("pending")
        due_ms = None if pending is None else due_ms_of(sink, pending)
        if due_ms is not None and due_ms <= now_ms:
            return True
    return False


def timer_is_due(newest: Manifest | None, now_ms: int) -> bool:
    """Whether a timer of processing time has come."""
    wake_ms = next_wake_ms(newest)
    return wake_ms is not None and wake_ms <= now_ms


def next_wake_ms(newest: Manifest | None) -> int | None:
    """The earliest pending timer of processing time, over all operators and subtasks."""
    accounts = () if newest is None else subtask_accounts(newest)
    return min((account["wake_ms"] for account in accounts if "wake_ms" in account), default=None)


def subtask_accounts(manifest: Manifest) -> Iterator[Mapping[str, Any]]:
    """What each subtask of each operator has told of its state."""
    states: Mapping[str, Any] = manifest.states
    for state in states.values():
        yield from (account for account in state.get("subtasks", {}).values() if isinstance(account, dict))
