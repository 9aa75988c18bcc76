"""Operators of keyed streams: functions that see one key at a time, with state and timers of that key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from millstream.graph.nodes import KeyedProcess
from millstream.records.batch import Batch, Timestamps
from millstream.runtime.barrier import Acknowledgement
from millstream.runtime.context import ElementContext
from millstream.runtime.keyed_backend import KeyedBackend
from millstream.runtime.keying import Keying
from millstream.runtime.operators import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    Operator,
    OperatorSetting,
    ProcessOperator,
    inherited_timestamps,
)
from millstream.runtime.spec import EpochSpec, JobFacts
from millstream.runtime.state_table import EpochPlace
from millstream.runtime.timers import Timers
from millstream.state.open_segments import OpenSegments

__all__ = [
    "KeyedFilterOperator",
    "KeyedFlatMapOperator",
    "KeyedMapOperator",
    "KeyedOperator",
    "KeyedProcessOperator",
    "TimerContext",
]

# Timers fire in batches of about this many results, so that downstream operators see batches too.
_FIRED_RECORDS_MAX = 16_384


class KeyedContext(ElementContext):
    """The `ctx` of `KeyedProcessFunction.process_element`."""

    __slots__ = ("_backend",)

    def __init__(self, backend: KeyedBackend) -> None:
        super().__init__(backend.timers)
        self._backend = backend

    def get_current_key(self) -> Any:
        return self._backend.scope.key


class TimerContext(KeyedContext):
    """The `ctx` of `on_timer`."""

    __slots__ = ("_domain",)

    def __init__(self, backend: KeyedBackend, domain: Any) -> None:
        super().__init__(backend)
        self._domain = domain

    def time_domain(self) -> Any:
        return self._domain


class KeyedOperator(Operator):
    """What all operators of a keyed stream share: how keys are found, and a backend that is opened for every epoch
    and written at its end."""

    def __init__(self, setting: OperatorSetting) -> None:
        node, context = setting.node, setting.context
        edge = node.inputs[0]
        assert edge.key_selector is not None
        self.backend = KeyedBackend(
            node.name, edge.key_type, context.parallelism, context.max_parallelism, context.subtask
        )
        super().__init__(setting.with_states(self.backend))
        self.time = self.backend.timers
        self.keying = Keying(edge.key_selector, edge.key_type, self.call)
        self._segments: OpenSegments | None = None

    def prepare(self, spec: EpochSpec, facts: JobFacts, nonce: str) -> None:
        """A new epoch or attempt: open the states at the last version."""
        if self._segments is None:
            self._segments = OpenSegments(facts.store, facts.cache_folder)
        place = EpochPlace(
            self.uid, spec.epoch, self.setting.context.subtask, nonce, self.backend.groups, spec.now_ms, self._segments
        )
        self.backend.begin(place, spec.states.get(self.uid, {}))

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Write the states and tell their new versions."""
        with self.call.running("state"):
            acknowledgement.states[self.uid] = self.backend.end(self.time.now_ms)

    def enter_batch(self, batch: Batch) -> list[Any]:
        """The key of every record; the states of all of them are read at once."""
        keys = self.keying.values(batch)
        with self.call.running("state"):
            self.backend.enter_batch(keys)
        return keys


class KeyedMapOperator(KeyedOperator, MapOperator):
    """A `MapFunction` on a keyed stream: it may hold state of the key of the record at hand."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._remaining: Iterator[Any] = iter(())
        self._function = self._at_each_key(self._function)

    def _at_each_key(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function, called for one record after another of the batch, each within its key."""
        enter = self.backend.scope.enter

        def call(value: Any) -> Any:
            enter(next(self._remaining))
            return function(value)

        return call

    def apply(self, batch: Batch) -> Batch:
        self._remaining = iter(self.enter_batch(batch))
        result = super().apply(batch)
        self.backend.scope.leave()
        return result


class KeyedFilterOperator(KeyedMapOperator, FilterOperator):
    """A `FilterFunction` on a keyed stream."""


class KeyedFlatMapOperator(KeyedMapOperator, FlatMapOperator):
    """A `FlatMapFunction` on a keyed stream."""


class KeyedProcessOperator(KeyedOperator, ProcessOperator):
    """A `KeyedProcessFunction`: elements first, then the timers that are due. (A `ProcessFunction` has no timers to
    fire, but on a keyed stream it may hold state and set them.)"""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, KeyedProcess)
        self._on_timer = getattr(self.user_function(), "on_timer", None)
        self._domains: tuple[Any, Any] = operation.time_domains

    def wake(self) -> None:
        """Before any element: timers of processing time that have come."""
        self._fire(self.backend.processing_timers, self.time.now_ms, None, self._domains[1])

    def apply(self, batch: Batch) -> Batch:
        values = batch.values()
        keys = self.enter_batch(batch)
        remaining = iter(values)
        out: list[Any] = []
        ends: list[int] | None = None
        try:
            if batch.timestamps is None:
                self._process_untimed(keys, remaining, out)
            else:
                ends = self._process_timed(keys, remaining, batch.timestamps.tolist(), out)
        except Exception as error:
            raise self.call.failed(error, "process", self.call.current(values, remaining)) from error
        self.backend.scope.leave()
        return self._part(out, None if ends is None else inherited_timestamps(batch.timestamps, ends))

    def _process_untimed(self, keys: list[Any], remaining: Iterator[Any], out: list[Any]) -> None:
        """Call the function for every record, none of which has a timestamp to hand on."""
        function, scope, context, extend = self._function, self.backend.scope, KeyedContext(self.backend), out.extend
        for scope.current, value in zip(keys, remaining, strict=True):
            results = function(value, context)
            if results is not None:
                extend(results)

    def _process_timed(
        self, keys: list[Any], remaining: Iterator[Any], stamps: list[int], out: list[Any]
    ) -> list[int]:
        """Call the function for every record; returns how many results there were up to each."""
        function, scope, context, extend = self._function, self.backend.scope, KeyedContext(self.backend), out.extend
        ends: list[int] = []
        for scope.current, context._timestamp, value in zip(keys, stamps, remaining, strict=True):
            results = function(value, context)
            if results is not None:
                extend(results)
            ends.append(len(out))
        return ends

    def _part(self, out: list[Any], stamps: Timestamps | None) -> Batch:
        """Only pairs can be tagged: where there is none, nothing needs to be looked at one by one."""
        if tuple in (kinds := set(map(type, out))) and (len(kinds) > 1 or 2 in set(map(len, out))):
            return super()._part(out, stamps)
        return self.typed(out, stamps, self.node.output_type)

    def advance(self, watermark: int) -> int:
        self._fire(self.backend.processing_timers, self.time.now_ms, None, self._domains[1])
        before = self.time.watermark
        reached = super().advance(watermark)
        self._fire(self.backend.event_timers, reached, before, self._domains[0])
        return reached

    def _fire(self, timers: Timers, through: int, after: int | None, domain: Any) -> None:
        """Call `on_timer` for every timer up to `through`."""
        with self.call.running("timers"):
            come = timers.come(through, after)
            if not come:
                return
            self.backend.enter_batch([key for _, key in come])
        out: list[Any] = []
        stamps: list[int] = []
        context = TimerContext(self.backend, domain)
        for time, key in timers.due(come, through):
            self.backend.scope.enter(key)
            context._timestamp = time
            try:
                results = self._on_timer(time, context) if self._on_timer is not None else None
                if results is not None:
                    out.extend(results)
            except Exception as error:
                raise self.call.failed(error, "on_timer", (f"timer {time} of key {key!r}",)) from error
            stamps.extend([time] * (len(out) - len(stamps)))
            if len(out) >= _FIRED_RECORDS_MAX:
                self._emit_fired(out, stamps)
                out, stamps = [], []
        self.backend.scope.leave()
        self._emit_fired(out, stamps)

    def _emit_fired(self, out: list[Any], stamps: list[int]) -> None:
        if out:
            main = self._part(out, np.array(stamps, dtype=np.int64))
            if len(main):
                self.emit(main)
