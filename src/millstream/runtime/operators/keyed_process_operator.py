"""The operator of keyed process functions: state and timers of a key, and the contexts that offer them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.graph.nodes import KeyedProcess
from millstream.records.batch import Batch
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.operators.context import ElementContext
from millstream.runtime.operators.function_operators import inherited_timestamps
from millstream.runtime.operators.keyed_operator import Part, PerRecordOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.operators.process_operator import ProcessOperator
from millstream.state.stored.accounts import SubtaskAccount

__all__ = ["KeyedContext", "KeyedProcessOperator", "TimerContext"]

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


class KeyedProcessOperator(PerRecordOperator, ProcessOperator):
    """A `KeyedProcessFunction`: elements first, then the timers that are due. (A `ProcessFunction` has no timers to
    fire, but on a keyed stream it may hold state and set them.) In BATCH all come when the input has ended, those of
    processing time too: how the input is cut into epochs must not be seen."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._is_batch = setting.facts.batch
        operation = setting.node.operation
        assert isinstance(operation, KeyedProcess)
        self._on_timer = getattr(self.user_function(), "on_timer", None)
        self._domains: tuple[Any, Any] = operation.time_domains

    def wake(self) -> None:
        """Before any element: timers of processing time that have come."""
        if not self._is_batch:
            self._fire(self.backend.processing_timers, self.time.now_ms, None, self._domains[1])

    def write_states(self) -> SubtaskAccount:
        account = super().write_states()
        return replace(account, wake_ms=None) if self._is_batch else account  # in BATCH nobody need wake up for a timer

    def element_context(self) -> Any:
        return KeyedContext(self.backend)

    def timer_context(self, domain: Any) -> Any:
        """The `ctx` of `on_timer`."""
        return TimerContext(self.backend, domain)

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        values = batch.values()
        remaining = iter(values)
        stamps = batch.timestamps
        try:
            if stamps is None:
                out = self._process_untimed(numbers, remaining)
            else:
                out, ends = self._process_timed(numbers, remaining, stamps.tolist())
                stamps = inherited_timestamps(stamps, ends)
        except Exception as error:
            raise self.call.failed(error, "process", self.call.current(values, remaining)) from error
        return self._parts(out, stamps)

    def _process_untimed(self, numbers: list[int], remaining: Iterator[Any]) -> list[Any]:
        """What the function gives for every record, none of which has a timestamp to hand on."""
        function, scope, context = self._function, self.backend.scope, self.element_context()
        # A comprehension, because `extend` asks every generator first how long it is.
        return [
            item
            for scope.at, value in zip(numbers, remaining, strict=True)
            if (results := function(value, context)) is not None
            for item in results
        ]

    def _process_timed(
        self, numbers: list[int], remaining: Iterator[Any], stamps: list[int]
    ) -> tuple[list[Any], list[int]]:
        """The same for records with timestamps, and how many results there were up to each."""
        function, scope, context = self._function, self.backend.scope, self.element_context()
        out: list[Any] = []
        ends: list[int] = []
        add, append = out.append, ends.append
        for scope.at, context._timestamp, value in zip(numbers, stamps, remaining, strict=True):
            results = function(value, context)
            if results is not None:
                for item in results:
                    add(item)
            append(len(out))
        return out, ends

    def advance(self, watermark: int) -> int:
        self._work()
        if not self._is_batch or watermark == MAX_WATERMARK:
            self._fire(self.backend.processing_timers, self.time.now_ms, None, self._domains[1])
        before = self.time.watermark
        reached = super().advance(watermark)
        self._fire(self.backend.event_timers, reached, before, self._domains[0])
        return reached

    def _fire(self, timers: Timers, through: int, after: int | None, domain: Any) -> None:
        """Call `on_timer` for every timer up to `through`; in BATCH for all that were set before, and of those that
        they set, for the ones up to `through`: a timer that sets itself again must come to an end."""
        started = time.perf_counter_ns()
        with self.call.running("timers"):
            due = timers.due_through(MAX_WATERMARK if self._is_batch and domain is self._domains[1] else through, after)
            if not due:
                return
            visits = TimerVisits(self.backend, [key for _, key in sorted(due, key=_time_of)])
        out: list[Any] = []
        stamps: list[int] = []
        context = self.timer_context(domain)
        for moment, key in timers.take_in_order(due, through):
            with self.call.running("state"):
                visits.enter(key)
            context._timestamp = moment
            try:
                results = self._on_timer(moment, context) if self._on_timer is not None else None
                if results is not None:
                    out.extend(results)
            except Exception as error:
                raise self.call.failed(error, "on_timer", (f"timer {moment} of key {key!r}",)) from error
            stamps.extend([moment] * (len(out) - len(stamps)))
            if len(out) >= _FIRED_RECORDS_MAX:
                self.busy_ns += time.perf_counter_ns() - started
                self._emit_fired(out, stamps)
                started = time.perf_counter_ns()
                out, stamps = [], []
        with self.call.running("state"):
            self.backend.leave()
        self.busy_ns += time.perf_counter_ns() - started
        self._emit_fired(out, stamps)

    def _emit_fired(self, out: list[Any], stamps: list[int]) -> None:
        if out:
            for tag, batch in self._parts(out, np.array(stamps, dtype=np.int64)):
                self._hand_on(tag, batch)


def _time_of(timer: tuple[int, Any]) -> int:
    return timer[0]


class TimerVisits:
    """Visits the keys of timers. Timers fire by time, not by key: `keys` are entered one at a time, in that order, and
    visited in groups. A key that is not among them is visited with the next group."""

    def __init__(self, backend: KeyedBackend, keys: list[Any]) -> None:
        self._backend = backend
        self._keys = keys
        self._next = 0
        self._numbers: dict[Any, int] = {}

    def enter(self, key: Any) -> None:
        """The function is about to be called for `key`."""
        number = self._numbers.get(key)
        if number is None:
            self._visit(key)
            number = self._numbers[key]
        self._backend.scope.at = number

    def _visit(self, key: Any) -> None:
        """Visit `key` and the next of the others."""
        group = self._keys[self._next : self._next + self._backend.visit_keys_max]
        self._next += len(group)
        keys = list(dict.fromkeys((key, *group)))
        self._backend.leave()
        self._backend.settle()
        self._backend.visit(self._backend.column(keys), keys)
        self._numbers = {key: number for number, key in enumerate(keys)}
