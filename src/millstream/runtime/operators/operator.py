"""The operators: what each kind of node does to a batch.

An operator takes a batch, computes what it gives out, and hands that to its outputs (further operators of the
task, or exchanges). It is opened once per task attempt and kept across epochs in its worker process. Operators
measure their own time, not that of those they hand to, so the shares add up.

No operator does anything per record outside the user's own function.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import TypeMismatchError
from millstream.graph.nodes import (
    Node,
)
from millstream.records.batch import Batch, Timestamps
from millstream.runtime.operators.context import TaskContext, TaskTimerService
from millstream.runtime.operators.failure import UserCall
from millstream.runtime.operators.operator_state import OperatorState
from millstream.runtime.task.barrier import Acknowledgement
from millstream.runtime.task.spec import EpochSpec

__all__ = ["Operator", "OperatorSetting", "Origin", "Output"]

Output = Callable[[Batch], None]
Origin = tuple[int, int]
"""Where a batch comes from: the channel and the subtask that sent it."""


@dataclass(frozen=True)
class OperatorSetting:
    """Where an operator stands: its node, its runtime context, and whether its batches may be large."""

    node: Node
    context: TaskContext
    batch_records_max: int

    def with_states(self, states: Any) -> OperatorSetting:
        """The same, for an operator whose functions may ask for keyed state."""
        return replace(self, context=replace(self.context, states=states))


class Operator:
    """One node in one subtask. Subclasses say what `apply` gives for a batch."""

    method = ""  # the name of the user's method, for function classes
    role = "function"
    is_keyed = False

    def __init__(self, setting: OperatorSetting) -> None:
        node = setting.node
        assert node.uid is not None
        self.node = node
        self.uid = node.uid
        self.setting = setting
        self.call = UserCall(node.name, node.uid, str(node.site))
        self.outputs: list[Output] = []
        self.side_outputs: dict[str, list[Output]] = {}
        self.time = TaskTimerService()
        self.operator_state = OperatorState(self.uid, setting.context.parallelism, setting.context.subtask, self.call)
        self.records_in = self.records_out = self.busy_ns = 0

    # The user's function object, when it is one with open() and close().
    def user_function(self) -> Any:
        return getattr(self.node.operation, "function", None)

    def stateful(self) -> Any:
        """The object that keeps operator state as long as this operator is open, if it has the methods for it."""
        return self.user_function()

    def open(self) -> None:
        """Give the user's function its operator state and open it, once."""
        self.operator_state.initialize(self.stateful(), self.setting.context.states)
        opener = getattr(self.user_function(), "open", None)
        if callable(opener):
            with self.call.running("open"):
                opener(self.setting.context)

    def close(self) -> None:
        """Close the user's function."""
        closer = getattr(self.user_function(), "close", None)
        if callable(closer):
            with self.call.running("close"):
                closer()

    def begin(self, spec: EpochSpec) -> None:
        """An epoch begins. Time stands at what the last epoch ended with."""
        context = self.setting.context
        key_groups = context.max_parallelism if self.is_keyed else None
        self.time.now_ms = spec.now_ms
        self.time.watermark = spec.event_time(self.uid, context.subtask, context.parallelism, key_groups)
        self.records_in = self.records_out = self.busy_ns = 0

    def keep(self, acknowledgement: Acknowledgement) -> None:
        """An epoch ends, and all its output is made: keep the function's operator state."""
        started = time.perf_counter_ns()
        self.operator_state.acknowledge(acknowledgement)
        self.busy_ns += time.perf_counter_ns() - started

    @property
    def state_read_ns(self) -> int:
        """The time this operator has spent looking up keyed state since it was made."""
        return 0

    def wake(self) -> None:
        """All operators of the task have begun; none has taken a batch. Emit what is due, if anything is."""

    def receive_end(self) -> None:
        """All that other tasks sent is here, and nothing is missing. What is read in this task comes after."""

    def input(self, number: int, origin: Origin) -> Output:
        """What takes the batches of an input. Operators of connected streams have two, numbered from 1."""
        return self.take

    def take(self, batch: Batch) -> None:
        """Work on a batch and hand on the result."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        result = self.apply(batch)
        self.busy_ns += time.perf_counter_ns() - started
        if result is not None and len(result):
            self.emit(result)

    def apply(self, batch: Batch) -> Batch | None:
        """What this operator makes of a batch."""
        raise NotImplementedError

    def emit(self, batch: Batch) -> None:
        """Hand a batch to every output."""
        self.records_out += len(batch)
        for output in self.outputs:
            output(batch)

    def advance(self, watermark: int) -> int:
        """Event time has come to `watermark` on all inputs; returns where it stands behind this operator."""
        self.time.watermark = max(self.time.watermark, watermark)
        return self.time.watermark

    def typed(
        self,
        values: list[Any],
        timestamps: Timestamps | None,
        type_info: TypeInformation | None,
        role: str = "output type",
    ) -> Batch:
        """A batch of what user code returned, checked against the type it was declared to have."""
        try:
            return Batch.of_values(values, type_info, timestamps)
        except TypeMismatchError as error:
            raise self.call.failed(error, role) from error
