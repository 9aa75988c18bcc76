"""Operators that stay open in a worker process across epochs.

Spark starts a task per epoch but reuses Python worker processes. A user's `open()` may load a model or connect to a
service, so the operators of a subtask are created once per worker process and *run* (one start or restart of the job),
and stay open. Each subtask has its own copies of the user's functions, as in Flink. Spark chooses the worker of a
subtask, so a worker may hold several subtasks, and a subtask may be open in several workers.

`close()` is called when the job ends (in the workers that took part in its last epoch), after a failure, when a worker
sees a newer run of the same job, and when its next task reports that a run has ended (`spark/live_runs.py`). A function
with operator state is also closed and reopened from the last manifest if its state belongs to another epoch
(`operator_state`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from millstream.common.typeinfo import TypeInformation
from millstream.graph.nodes import Node, Process, Read
from millstream.metrics.registry import MetricRegistry
from millstream.plan.stages import Plan
from millstream.runtime.operators.exits import exits_as_failures
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.operator_state import keeps_state
from millstream.runtime.operators.user_code import TaskContext, UserFailureError
from millstream.runtime.task.registry import operator_for
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec, JobFacts

__all__ = ["Residents", "Subtask"]

_LOG = logging.getLogger(__name__)

_Place: TypeAlias = tuple[str, str, int, int]


@dataclass
class Subtask:
    """The open operators of one subtask of one stage, in topological order, and the record types of its channels."""

    plan: Plan
    operators: dict[int, Operator]
    metrics: MetricRegistry
    channel_types: Mapping[int, TypeInformation | None]


@dataclass
class Residents:
    """The open subtasks of a process, by (job, run, stage, subtask). `openings` counts all that were ever opened."""

    openings: int = 0
    _open: dict[_Place, Subtask] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def subtask(self, job: ShippedJob, spec: EpochSpec, assignment: Assignment) -> Subtask:
        """Returns the open operators of a subtask; opens them if this process does not have them."""
        place = _place(job, assignment)
        subtask = self._open.get(place)
        if subtask is None:
            self._close_other_runs(job.facts)
            subtask = self._open[place] = _open_subtask(job, spec, assignment)
            self.openings += 1
        elif _renew(subtask, job, spec, assignment):
            self.openings += 1
        return subtask

    def discard(self, job: ShippedJob, assignment: Assignment) -> None:
        """Closes and removes a subtask."""
        subtask = self._open.pop(_place(job, assignment), None)
        if subtask is not None:
            _close_subtask(subtask)

    def close_runs(self, runs: Collection[str]) -> None:
        """Closes and removes the subtasks of runs that have ended, of any job."""
        for place in [place for place in self._open if place[1] in runs]:
            _close_subtask(self._open.pop(place))

    def close(self) -> None:
        """Closes and removes all subtasks."""
        for place in list(self._open):
            _close_subtask(self._open.pop(place))

    def _close_other_runs(self, facts: JobFacts) -> None:
        for place in [place for place in self._open if place[0] == facts.job_id and place[1] != facts.run]:
            _close_subtask(self._open.pop(place))


def _place(job: ShippedJob, assignment: Assignment) -> _Place:
    return job.facts.job_id, job.facts.run, assignment.stage, assignment.subtask


def _open_subtask(job: ShippedJob, spec: EpochSpec, assignment: Assignment) -> Subtask:
    plan = job.plan()
    subtask = Subtask(plan, {}, MetricRegistry(), _channel_types(plan))
    try:
        for node in plan.stages[assignment.stage].operators:
            assert node.parallelism is not None
            if assignment.subtask < node.parallelism:
                _open_operator(subtask, node, job, spec, assignment)
    except BaseException:
        _close_subtask(subtask)  # closes the operators opened before the failure: nothing else refers to them
        raise
    return subtask


def _renew(subtask: Subtask, job: ShippedJob, spec: EpochSpec, assignment: Assignment) -> bool:
    """Reopens operators whose function state differs from the last manifest; returns whether any were reopened."""
    outdated = [
        operator
        for operator in subtask.operators.values()
        if operator.operator_state.is_outdated(spec.operator_states.get(operator.uid, {}))
    ]
    for operator in outdated:
        _close_operator(operator)
        try:
            _open_operator(subtask, operator.node, job, spec, assignment)
        except BaseException:
            del subtask.operators[operator.node.id]  # already closed; the others are closed with the subtask
            raise
    return bool(outdated)


def _open_operator(subtask: Subtask, node: Node, job: ShippedJob, spec: EpochSpec, assignment: Assignment) -> None:
    """Creates the operator of a node and opens it with its account in the last manifest."""
    function = getattr(node.operation, "function", getattr(node.operation, "source", None))
    if keeps_state(function):  # a function with state belongs to one operator and is opened once
        node = next(copy for copy in job.plan().stages[assignment.stage].operators if copy.id == node.id)
    assert node.parallelism is not None and node.max_parallelism is not None and node.uid is not None
    context = TaskContext(
        task_name=node.name,
        parallelism=node.parallelism,
        max_parallelism=node.max_parallelism,
        subtask=assignment.subtask,
        attempt=assignment.attempt,
        parameters=job.facts.parameters,
        metrics=subtask.metrics.group(node.uid),
    )
    input_type = next((subtask.channel_types[channel.id] for channel in subtask.plan.into(node.id)), None)
    operator = operator_for(OperatorSetting(node, context, job.facts, input_type))
    operator.open(spec.operator_states.get(node.uid, {}))
    subtask.operators[node.id] = operator


def _channel_types(plan: Plan) -> dict[int, TypeInformation | None]:
    """The record type of each channel: of the source node's output or side output."""
    by_id = {node.id: node for node in plan.nodes()}
    types: dict[int, TypeInformation | None] = {}
    for channel in plan.channels:
        source = by_id[channel.source]
        if channel.edge.tag is not None and isinstance(source.operation, (Process, Read)):
            types[channel.id] = dict(source.operation.tags)[channel.edge.tag]
        else:
            types[channel.id] = source.output_type
    return types


def _close_subtask(subtask: Subtask) -> None:
    for operator in subtask.operators.values():
        _close_operator(operator)


def _close_operator(operator: Operator) -> None:
    try:
        with exits_as_failures():
            operator.close()
    except UserFailureError as failure:
        report = failure.report
        reason = f"{report.error}: {report.message}" if report.message else report.error
        _LOG.error(
            "close() of '%s' failed; the job continues: %s (%s)\n%s",
            report.operator,
            reason,
            report.site,
            report.trace.rstrip("\n"),
        )
    except Exception:
        _LOG.exception("close() of '%s' failed; the job continues", operator.node.name)
