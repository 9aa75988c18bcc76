"""Operators with broadcast state: one stream reads the state that a broadcast stream writes.

Order: within an epoch all broadcast records come first, by channel, sender and sequence, then the records of the other
side. Every subtask receives the same broadcast records and applies them in the same order, whatever the shuffle does.
So all subtasks reach the same state, and every record of the epoch sees it in any subtask, also in a repeated epoch.
Both inputs are buffered until everything from other tasks has arrived; records read in the same task are processed
later and are not buffered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from millstream.graph.nodes import BroadcastProcess, KeyedBroadcastProcess
from millstream.records.batch import Batch
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.keyed.broadcast_state import BroadcastMap, BroadcastStates, BroadcastView
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.operators.connected_operators import TwoInputs
from millstream.runtime.operators.function_operators import ProcessOperator
from millstream.runtime.operators.keyed_operator import KeyedContext, KeyedProcessOperator, TimerContext
from millstream.runtime.operators.operator import Operator, OperatorSetting, Origin, Output
from millstream.runtime.operators.user_code import ElementContext, TaskTimerService
from millstream.runtime.task.spec import EpochSpec
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import StoredTables, SubtaskAccount
from millstream.state.tables.state_table import TableSetting

__all__ = ["BroadcastInputs", "BroadcastProcessOperator", "KeyedBroadcastOperator"]


class _TimeReader:
    """The times available in every context."""

    __slots__ = ()
    _service: TaskTimerService

    def current_processing_time(self) -> int:
        return self._service.now_ms

    def current_watermark(self) -> int:
        return self._service.watermark


class _StateReader(_TimeReader):
    """Read access to broadcast state."""

    _view: BroadcastView

    def _read_from(self, states: BroadcastStates) -> None:
        self._states = states
        self._descriptor: Any = states  # a sentinel that is never a descriptor; callers might pass None

    def get_broadcast_state(self, state_descriptor: Any) -> BroadcastView:
        # Called for every record, mostly with the same descriptor.
        if state_descriptor is not self._descriptor:
            self._view, self._descriptor = self._states.readable(state_descriptor), state_descriptor
        return self._view


class ReadingContext(_StateReader, ElementContext):
    """The `ctx` of `BroadcastProcessFunction.process_element`."""

    def __init__(self, states: BroadcastStates, service: TaskTimerService) -> None:
        super().__init__(service)
        self._read_from(states)


class KeyedReadingContext(_StateReader, KeyedContext):
    """The `ctx` of `KeyedBroadcastProcessFunction.process_element`."""

    def __init__(self, states: BroadcastStates, backend: KeyedBackend) -> None:
        super().__init__(backend)
        self._read_from(states)


class TimerReadingContext(_StateReader, TimerContext):
    """The `ctx` of `KeyedBroadcastProcessFunction.on_timer`."""

    def __init__(self, states: BroadcastStates, backend: KeyedBackend, domain: Any) -> None:
        super().__init__(backend, domain)
        self._read_from(states)


class WritingContext(_TimeReader):
    """The `ctx` of `process_broadcast_element`. There is no key, so there are no timers to set."""

    __slots__ = ("_service", "_states", "_timestamp")

    def __init__(self, states: BroadcastStates, service: TaskTimerService) -> None:
        self._service, self._states = service, states
        self._timestamp: int | None = None

    def timestamp(self) -> int | None:
        return self._timestamp

    def get_broadcast_state(self, state_descriptor: Any) -> BroadcastMap:
        return self._states.writable(state_descriptor)


class KeyedWritingContext(WritingContext):
    """The same on a keyed stream, with access to the states of all keys."""

    __slots__ = ("_backend",)

    def __init__(self, states: BroadcastStates, backend: KeyedBackend) -> None:
        super().__init__(states, backend.timers)
        self._backend = backend

    def apply_to_keyed_state(self, state_descriptor: Any, function: Callable[[Any, Any], Any]) -> None:
        apply = getattr(function, "process", function)
        for key, state in self._backend.keys_with(state_descriptor):
            apply(key, state)


class BroadcastInputs(TwoInputs):
    """Shared by both operators: the order of the inputs, and the broadcast states of each epoch."""

    methods = ("process_element", "process_broadcast_element")
    order = (2, 1)

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, (BroadcastProcess, KeyedBroadcastProcess))
        self.broadcast = BroadcastStates(setting.node.name, operation.states, setting.context.max_parallelism)
        self.operator_state.reserve(descriptor.get_name() for descriptor in operation.states)
        self._broadcast_segments = OpenSegments(setting.facts.store)

    def input(self, number: int, origin: Origin) -> Output:
        return partial(self._buffer_or_take, number, origin)

    def _buffer_or_take(self, number: int, origin: Origin, batch: Batch) -> None:
        if number == self.current_input == 1:
            self.take(batch)
        else:
            self.buffer(number, origin, batch)

    def receive_end(self) -> None:
        """All broadcast records have arrived, since they come from other tasks. The other input can be processed."""
        self.process_input(2)
        self.select_input(1)
        self.process_input(1)

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        context = self.setting.context
        everywhere = range(context.max_parallelism)
        place = TableSetting(
            self.uid, spec.epoch, context.subtask, nonce, everywhere, spec.now_ms, self._broadcast_segments
        )
        with self.call.running("state"):
            self.broadcast.begin(place, spec.states.get(self.uid, {}))

    def write_broadcast_states(self) -> StoredTables | None:
        """Writes the broadcast states in the one subtask that stores them; returns their tables."""
        with self.call.running("state"):
            return self.broadcast.end()


class BroadcastProcessOperator(BroadcastInputs, ProcessOperator):
    """A `BroadcastProcessFunction`."""

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        tables = self.write_broadcast_states()
        if tables is not None:
            acknowledgement.states[self.uid] = SubtaskAccount(broadcast=tables)
        super().acknowledge(acknowledgement)

    def element_context(self) -> Any:
        kind = WritingContext if self.current_input == 2 else ReadingContext
        return kind(self.broadcast, self.time)


class KeyedBroadcastOperator(BroadcastInputs, KeyedProcessOperator):
    """A `KeyedBroadcastProcessFunction`: broadcast records, then those of the keyed stream, then the timers due.
    Processing-time timers due at the start of the epoch fire first, and see the state of the previous epoch."""

    def write_states(self) -> SubtaskAccount:
        return replace(super().write_states(), broadcast=self.write_broadcast_states())

    def take(self, batch: Batch) -> None:
        if self.current_input == 2:
            Operator.take(self, batch)  # broadcast records have no key: they are not gathered
        else:
            super().take(batch)

    def finish_input(self) -> None:
        self._work()

    def element_context(self) -> Any:
        kind = KeyedWritingContext if self.current_input == 2 else KeyedReadingContext
        return kind(self.broadcast, self.backend)

    def timer_context(self, domain: Any) -> Any:
        return TimerReadingContext(self.broadcast, self.backend, domain)
