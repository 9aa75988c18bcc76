"""The outcome of an epoch: the acknowledgements of all its tasks, checked and merged.

Invariant: an outcome exists only if every task of every stage acknowledged exactly once, and all tasks of a stage
received the output of that *attempt* of each upstream task that acknowledged. Spark may run a task again after others
have read its first output; if the two attempts differ (a user's function is not deterministic), some records would be
lost or duplicated. Such an epoch is rejected here and run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.metrics.registry import merge
from millstream.plan.stages import Plan
from millstream.runtime.exchange.messages import FAILURE, Acknowledgement, SplitRead, attempts_sum
from millstream.runtime.operators.user_code import FailureReport, UserFailureError
from millstream.state.stored.accounts import AccountReader, FunctionAccount, SubtaskAccount

__all__ = ["EpochOutcome", "MixedEpochError", "TaskAccount", "added", "gather"]


class MixedEpochError(RuntimeError):
    """The acknowledgements do not form one consistent epoch; it must be run again."""


@dataclass(frozen=True)
class TaskAccount:
    """The work and times of one run of one task, by operator; for statistics. `place`: the process of the cluster
    it ran in, if reported; `stayed`: whether it is the same process as before, None: the task has not run before."""

    stage: int
    subtask: int
    elapsed_ns: int
    alignment_ns: int
    operators: Mapping[str, Mapping[str, int]]
    requests: int = 0
    place: str = ""
    stayed: bool | None = None


@dataclass
class EpochOutcome:
    """One epoch's acknowledgements, merged over subtasks."""

    sources: dict[str, dict[str, SplitRead]] = field(default_factory=dict)
    staged: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    states: dict[str, dict[int, SubtaskAccount]] = field(default_factory=dict)
    operator_states: dict[str, dict[int, FunctionAccount]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    event_times: dict[str, dict[int, int]] = field(default_factory=dict)  # by uid and subtask: to continue from
    operators: dict[str, dict[str, int]] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    output: list[list[str]] = field(default_factory=list)
    tasks: list[TaskAccount] = field(default_factory=list)


def gather(plan: Plan, rows: Iterable[tuple[int, bytes]]) -> EpochOutcome:
    """The outcome of an epoch from the rows its last stage returned. Raises the user's failure, if there was one."""
    acknowledgements: list[Acknowledgement] = []
    reader = AccountReader()
    failed = False
    for kind, payload in rows:
        if kind == FAILURE:
            failed = True
            if payload:
                raise UserFailureError(FailureReport.decode(payload))
        else:
            acknowledgements.append(Acknowledgement.decode(payload, reader))
    if failed:
        raise MixedEpochError("a task failed, but its report did not arrive; the epoch is run again")
    _check(plan, acknowledgements)
    return _merged(acknowledgements)


def _check(plan: Plan, acknowledgements: list[Acknowledgement]) -> None:
    by_task = {(a.stage, a.subtask): a for a in acknowledgements}
    expected = {(stage.index, subtask) for stage in plan.stages for subtask in range(stage.width)}
    if len(by_task) != len(acknowledgements) or set(by_task) != expected:
        missing, doubled = sorted(expected - set(by_task)), len(acknowledgements) - len(by_task)
        raise MixedEpochError(f"tasks without an acknowledgement (stage, subtask): {missing}; with two: {doubled}")
    for stage in plan.stages[1:]:
        before = plan.stages[stage.index - 1]
        attempts = attempts_sum([by_task[before.index, subtask].nonce for subtask in range(before.width)])
        for subtask in range(stage.width):
            if by_task[stage.index, subtask].upstream_attempts != attempts:
                raise MixedEpochError(
                    f"task {subtask} of stage {stage.index} received other attempts of the tasks of stage "
                    f"{before.index} than the ones that acknowledged; the epoch is run again"
                )


def _merged(acknowledgements: list[Acknowledgement]) -> EpochOutcome:
    outcome = EpochOutcome()
    for ack in sorted(acknowledgements, key=lambda a: (a.stage, a.subtask)):
        for uid, positions in ack.sources.items():
            outcome.sources.setdefault(uid, {}).update(positions)
        for uid, staged in ack.staged.items():
            outcome.staged.setdefault(uid, []).extend((ack.subtask, item) for item in staged)
        for uid, state in ack.states.items():
            outcome.states.setdefault(uid, {})[ack.subtask] = state
        for uid, function in ack.operator_states.items():
            outcome.operator_states.setdefault(uid, {})[ack.subtask] = function
        for uid, watermark in ack.watermarks.items():
            outcome.watermarks[uid] = min(watermark, outcome.watermarks.get(uid, watermark))
        for uid, event_time in ack.event_times.items():
            outcome.event_times.setdefault(uid, {})[ack.subtask] = event_time
        for uid, counts in ack.operators.items():
            outcome.operators[uid] = added(outcome.operators.get(uid, {}), counts)
        outcome.metrics = merge(outcome.metrics, ack.metrics)
        outcome.output.extend(ack.output)
        times = ack.times
        outcome.tasks.append(
            TaskAccount(
                ack.stage,
                ack.subtask,
                times["took_ns"],
                times["alignment_ns"],
                ack.operators,
                times["requests"],
                ack.place,
            )
        )
    return outcome


def added(total: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Counts by name, summed."""
    return {key: total.get(key, 0) + value for key, value in more.items()}
