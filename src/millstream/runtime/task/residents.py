"""Operators that stay open in a worker process from one epoch to the next.

Spark starts a task per epoch, but reuses Python worker processes. A user's `open()` may load a model or connect
to a service, so the operators of a subtask are made once per worker process and *run* (one start or restart of
the job), and kept. Each subtask has its own copies of the user's functions, as in Flink. Which worker gets which
subtask is Spark's choice, so a worker may hold several subtasks, and a subtask may be open in several workers.

`close()` is called when the job ends (in the workers that took part in its last epoch), after a failure, and when
a worker notices that another run of the same job has begun. A function with operator state is also closed, and opened
anew from what the last manifest keeps, when what it remembers is of another epoch (`operator_state`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from millstream.graph.nodes import Node
from millstream.metrics.registry import MetricRegistry
from millstream.plan.stages import Plan
from millstream.runtime.operators.context import TaskContext
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.operator_state import keeps_state
from millstream.runtime.operators.registry import operator_for
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec, JobFacts

__all__ = ["Residents", "Subtask"]

_LOG = logging.getLogger(__name__)


@dataclass
class Subtask:
    """The open operators of one subtask of one stage, in topological order."""

    plan: Plan
    operators: dict[int, Operator]
    metrics: MetricRegistry


@dataclass
class Residents:
    """The open subtasks of a process, by (job, run, stage, subtask). `openings` counts those ever opened."""

    openings: int = 0
    _open: dict[tuple[str, str, int, int], Subtask] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def subtask(self, job: ShippedJob, spec: EpochSpec, stage: int, subtask: int, attempt: int) -> Subtask:
        """The open operators of a subtask; opened now if this process does not have them yet."""
        key = (job.facts.job_id, job.facts.run, stage, subtask)
        if key not in self._open:
            self._close_other_runs(job.facts)
            self._open[key] = _opened(job, spec, stage, subtask, attempt)
            self.openings += 1
        elif _renewed(self._open[key], job, spec, stage, subtask, attempt):
            self.openings += 1
        return self._open[key]

    def discard(self, job: ShippedJob, stage: int, subtask: int) -> None:
        """Close and forget a subtask."""
        found = self._open.pop((job.facts.job_id, job.facts.run, stage, subtask), None)
        if found is not None:
            _close(found)

    def close(self) -> None:
        """Close and forget all subtasks."""
        for key in list(self._open):
            _close(self._open.pop(key))

    def _close_other_runs(self, facts: JobFacts) -> None:
        for key in [key for key in self._open if key[0] == facts.job_id and key[1] != facts.run]:
            _close(self._open.pop(key))


def _opened(job: ShippedJob, spec: EpochSpec, stage: int, subtask: int, attempt: int) -> Subtask:
    found = Subtask(job.plan(), {}, MetricRegistry())
    for node in found.plan.stages[stage].operators:
        assert node.parallelism is not None
        if subtask < node.parallelism:
            own = _with_own_function(node, job, stage)
            found.operators[node.id] = _operator(own, job, spec, subtask, attempt, found.metrics)
    return found


def _renewed(found: Subtask, job: ShippedJob, spec: EpochSpec, stage: int, subtask: int, attempt: int) -> bool:
    """Replace the operators whose function does not hold what the last manifest keeps; whether there were any."""
    outdated = [
        operator
        for operator in found.operators.values()
        if operator.operator_state.is_outdated(spec.operator_states.get(operator.uid, {}))
    ]
    for operator in outdated:
        _close_operator(operator)
        try:
            own = _with_own_function(operator.node, job, stage)
            found.operators[own.id] = _operator(own, job, spec, subtask, attempt, found.metrics)
        except BaseException:
            del found.operators[operator.node.id]  # it is closed; the others will be when the subtask is discarded
            raise
    return bool(outdated)


def _with_own_function(node: Node, job: ShippedJob, stage: int) -> Node:
    """The node with an unused copy of its function, when that keeps operator state: of one operator, once."""
    function = getattr(node.operation, "function", getattr(node.operation, "source", None))
    if not keeps_state(function):
        return node
    return next(copy for copy in job.plan().stages[stage].operators if copy.id == node.id)


def _operator(
    node: Node, job: ShippedJob, spec: EpochSpec, subtask: int, attempt: int, metrics: MetricRegistry
) -> Operator:
    """One operator, restored and open."""
    assert node.parallelism is not None and node.max_parallelism is not None and node.uid is not None
    context = TaskContext(
        task_name=node.name,
        parallelism=node.parallelism,
        max_parallelism=node.max_parallelism,
        subtask=subtask,
        attempt=attempt,
        parameters=job.facts.parameters,
        metrics=metrics.group(node.uid),
    )
    operator = operator_for(OperatorSetting(node, context, job.facts.batch_records_max))
    operator.operator_state.restore(spec.operator_states.get(node.uid, {}), job.facts.store)
    operator.open()
    return operator


def _close(subtask: Subtask) -> None:
    for operator in subtask.operators.values():
        _close_operator(operator)


def _close_operator(operator: Operator) -> None:
    try:
        operator.close()
    except Exception:
        _LOG.exception("close() of '%s' failed", operator.node.name)
