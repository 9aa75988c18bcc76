"""The rounds of an epoch: a program with loops is run again, on the records that returned, before the epoch is
committed. Pure.

A round is one run of the whole plan. The first reads the epoch's input; every further one starts where the previous one
ended, with its states and event times, and its only input is the records that the loops returned
(`runtime/operators/loops.py`). Only the epoch's manifest names the files that the rounds wrote, so nothing is committed
between two rounds: a crash loses all of them together, and a round in which Spark mixed attempts is rerun alone.

An epoch runs another round while records return, and one more in which event time advances past those that did not, but
at most `rounds_max` in total. Remaining records are carried to the next epoch in the tail's state. After its input has
ended, the job ends only when all loops are empty and their event time has reached its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from millstream.checkpoint.manifest import Manifest
from millstream.graph.nodes import LoopHead, LoopTail
from millstream.jobs.epochs.outcome import EpochOutcome, added
from millstream.jobs.epochs.watermarks import uneven_times
from millstream.metrics.registry import merge
from millstream.plan.stages import Plan
from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.runtime.operators.loops import loop_is_settled, loop_records
from millstream.runtime.task.spec import EpochSpec
from millstream.state.schemas.state_schemas import with_shared_schemas
from millstream.state.stored.accounts import SubtaskAccount, accounts_of

__all__ = [
    "followed_by",
    "has_loops",
    "loops_are_busy",
    "next_round",
    "records_in_loops",
    "rounds_max",
    "wants_a_round",
]

_Accounts: TypeAlias = Mapping[str, Mapping[int, SubtaskAccount]]
"""By uid and subtask."""


def has_loops(plan: Plan) -> bool:
    """Whether the program has loops."""
    return any(isinstance(node.operation, LoopHead) for node in plan.nodes())


def rounds_max(plan: Plan, configured: int) -> int:
    """How many rounds an epoch may take: the largest number that any loop allows."""
    limits = (node.operation.rounds_max for node in plan.nodes() if isinstance(node.operation, LoopHead))
    return max((configured if rounds is None else rounds for rounds in limits), default=1)


def wants_a_round(plan: Plan, outcome: EpochOutcome) -> bool:
    """Whether another round has work to do after the rounds so far."""
    return _is_busy(plan, outcome.states)


def loops_are_busy(plan: Plan, newest: Manifest | None) -> bool:
    """Whether records carried over in loops need an epoch, even without input."""
    return _is_busy(plan, _accounts(newest))


def records_in_loops(plan: Plan, newest: Manifest | None) -> int:
    """The number of records in the loops after an epoch."""
    return sum(_in_loops(plan, _accounts(newest)))


def _accounts(newest: Manifest | None) -> _Accounts:
    return {uid: account.subtasks for uid, account in accounts_of(newest).items()}


def _in_loops(plan: Plan, accounts: _Accounts) -> Iterator[int]:
    for node in plan.nodes():
        if isinstance(node.operation, LoopTail):
            yield loop_records(accounts.get(node.uid or "", {}))


def _is_busy(plan: Plan, accounts: _Accounts) -> bool:
    heads = (node.uid or "" for node in plan.nodes() if isinstance(node.operation, LoopHead))
    return any(_in_loops(plan, accounts)) or not all(loop_is_settled(accounts.get(uid, {})) for uid in heads)


def next_round(spec: EpochSpec, outcome: EpochOutcome) -> EpochSpec:
    """The spec, sent to tasks, of the round that follows `outcome`, the outcome of all rounds so far."""
    before = spec.watermarks
    watermarks = {
        # As in a manifest: event time never decreases; an idle operator's time is unchanged.
        uid: max(MIN_WATERMARK if reached == IDLE_WATERMARK else reached, before.get(uid, MIN_WATERMARK))
        for uid, reached in outcome.watermarks.items()
    }
    return replace(
        spec,
        reads=dict.fromkeys(spec.reads, ()),
        floors={uid: outcome.watermarks[uid] for uid in spec.reads},
        watermarks=watermarks,
        states={uid: with_shared_schemas(accounts) for uid, accounts in outcome.states.items()},
        operator_states=outcome.operator_states,
        event_times={uid: times for uid, at in watermarks.items() if (times := uneven_times(outcome, uid, at))},
        is_ahead=spec.deferred_uploads,  # the previous round
    )


def followed_by(first: EpochOutcome, then: EpochOutcome) -> EpochOutcome:
    """Merges the outcomes of consecutive rounds: positions of the first, states of the last, output and counts of
    all."""
    staged = {uid: list(items) for uid, items in first.staged.items()}
    for uid, items in then.staged.items():
        staged.setdefault(uid, []).extend(items)
    return EpochOutcome(
        sources=first.sources,
        staged=staged,
        states=then.states,
        operator_states=then.operator_states,
        watermarks=then.watermarks,
        event_times=then.event_times,
        operators={uid: added(first.operators.get(uid, {}), counts) for uid, counts in then.operators.items()},
        metrics=merge(first.metrics, then.metrics),
        output=[*first.output, *then.output],
        tasks=[*first.tasks, *then.tasks],
    )
