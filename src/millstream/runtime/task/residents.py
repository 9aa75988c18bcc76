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
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.graph.nodes import (
    AssignTimestamps,
    AsyncCalls,
    BroadcastProcess,
    Cache,
    CoFlatMap,
    CoGroupWindow,
    CoMap,
    CoProcess,
    IntervalJoin,
    KeyedBatches,
    KeyedBroadcastProcess,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedCoProcess,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedProcess,
    LoopHead,
    LoopTail,
    Node,
    Read,
    Reduce,
    Window,
    Write,
)
from millstream.metrics.registry import MetricRegistry
from millstream.plan.operations import (
    FoldedWindow,
    PaneAggregate,
    PartialAggregate,
    ProjectedIntervalJoin,
    Rolling,
    WindowJoin,
)
from millstream.plan.stages import Plan
from millstream.runtime.exchange.cached_blocks import CacheOperator
from millstream.runtime.joins.co_group_operator import CoGroupOperator
from millstream.runtime.joins.interval_join import ProcessJoinOperator, ProjectedJoinOperator
from millstream.runtime.joins.window_join import WindowJoinOperator
from millstream.runtime.operators.async_calls import AsyncCallsOperator
from millstream.runtime.operators.broadcast_operators import BroadcastProcessOperator, KeyedBroadcastOperator
from millstream.runtime.operators.connected_operators import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from millstream.runtime.operators.context import TaskContext
from millstream.runtime.operators.endpoints import ReadOperator, TimestampOperator, WriteOperator
from millstream.runtime.operators.keyed_batches import KeyedBatchesOperator
from millstream.runtime.operators.keyed_operators import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
)
from millstream.runtime.operators.loops import LoopHeadOperator, LoopTailOperator
from millstream.runtime.operators.operator_state import keeps_state
from millstream.runtime.operators.operators import OPERATORS, Operator, OperatorSetting
from millstream.runtime.operators.rolling import ReduceOperator, RollingOperator
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.runtime.windows.folding import FoldingWindowOperator
from millstream.runtime.windows.operator import WindowOperator
from millstream.runtime.windows.pane_operator import PaneOperator
from millstream.runtime.windows.partial_aggregates import PartialAggregateOperator

__all__ = ["Job", "Residents", "operator_for"]

_LOG = logging.getLogger(__name__)


_KINDS: dict[type, Callable[[OperatorSetting], Operator]] = {
    **OPERATORS,
    Read: ReadOperator,
    AssignTimestamps: TimestampOperator,
    Write: WriteOperator,
    Cache: CacheOperator,
    AsyncCalls: AsyncCallsOperator,
    LoopHead: LoopHeadOperator,
    LoopTail: LoopTailOperator,
    KeyedMap: KeyedMapOperator,
    KeyedFlatMap: KeyedFlatMapOperator,
    KeyedFilter: KeyedFilterOperator,
    KeyedProcess: KeyedProcessOperator,
    CoMap: CoMapOperator,
    CoFlatMap: CoFlatMapOperator,
    CoProcess: CoProcessOperator,
    KeyedCoMap: KeyedCoMapOperator,
    KeyedCoFlatMap: KeyedCoFlatMapOperator,
    KeyedCoProcess: KeyedCoProcessOperator,
    BroadcastProcess: BroadcastProcessOperator,
    KeyedBroadcastProcess: KeyedBroadcastOperator,
    Reduce: ReduceOperator,
    Rolling: RollingOperator,
    KeyedBatches: KeyedBatchesOperator,
    Window: WindowOperator,
    FoldedWindow: FoldingWindowOperator,
    CoGroupWindow: CoGroupOperator,
    WindowJoin: WindowJoinOperator,
    IntervalJoin: ProcessJoinOperator,
    ProjectedIntervalJoin: ProjectedJoinOperator,
    PartialAggregate: PartialAggregateOperator,
    PaneAggregate: PaneOperator,
}


def operator_for(setting: OperatorSetting) -> Operator:
    """The operator of a node, not open yet."""
    return _KINDS[type(setting.node.operation)](setting)


@dataclass(frozen=True)
class Job:
    """A job as it is sent to tasks: the pickled plan, so that every subtask can have its own copy, and the facts."""

    plan_pickle: bytes
    facts: JobFacts

    def plan(self) -> Plan:
        """A copy of the plan, with functions of its own. Our own driver pickled it and Spark delivered it."""
        plan: Plan = pickle.loads(self.plan_pickle)
        return plan


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

    def subtask(self, job: Job, spec: EpochSpec, stage: int, subtask: int, attempt: int) -> Subtask:
        """The open operators of a subtask; opened now if this process does not have them yet."""
        key = (job.facts.job_id, job.facts.run, stage, subtask)
        if key not in self._open:
            self._close_other_runs(job.facts)
            self._open[key] = _opened(job, spec, stage, subtask, attempt)
            self.openings += 1
        elif _renewed(self._open[key], job, spec, stage, subtask, attempt):
            self.openings += 1
        return self._open[key]

    def discard(self, job: Job, stage: int, subtask: int) -> None:
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


def _opened(job: Job, spec: EpochSpec, stage: int, subtask: int, attempt: int) -> Subtask:
    found = Subtask(job.plan(), {}, MetricRegistry())
    for node in found.plan.stages[stage].operators:
        assert node.parallelism is not None
        if subtask < node.parallelism:
            own = _with_own_function(node, job, stage)
            found.operators[node.id] = _operator(own, job, spec, subtask, attempt, found.metrics)
    return found


def _renewed(found: Subtask, job: Job, spec: EpochSpec, stage: int, subtask: int, attempt: int) -> bool:
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


def _with_own_function(node: Node, job: Job, stage: int) -> Node:
    """The node with an unused copy of its function, when that keeps operator state: of one operator, once."""
    function = getattr(node.operation, "function", getattr(node.operation, "source", None))
    if not keeps_state(function):
        return node
    return next(copy for copy in job.plan().stages[stage].operators if copy.id == node.id)


def _operator(node: Node, job: Job, spec: EpochSpec, subtask: int, attempt: int, metrics: MetricRegistry) -> Operator:
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
