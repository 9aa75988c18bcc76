"""Operators of keyed streams: functions that see one key at a time, with state and timers of that key.

KeyedOperator          gathers the records of an epoch, visits them key by key, and has a backend that is opened for
                       every epoch and written at its end. Windows and joins derive from it too
PerRecordOperator      calls the function for every record of a visit
KeyedProcessOperator   a keyed process function: elements first, then the timers that are due
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.graph.nodes import KeyedProcess
from millstream.graph.notices import warn_once
from millstream.records.batch import Batch, alike, is_typed
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.keyed.keyed_backend import KeyedBackend, KeyRange, Visit, visits
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.operators.explanations import is_engine_file
from millstream.runtime.operators.function_operators import Pieces, ProcessOperator, inherited_timestamps
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.suspicious_results import warn_if_iterated
from millstream.runtime.operators.user_code import Described, ElementContext
from millstream.runtime.task.spec import EpochSpec, own_accounts
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.state_table import TableSetting

__all__ = ["KeyedContext", "KeyedOperator", "KeyedProcessOperator", "Part", "PerRecordOperator", "TimerContext"]

# Maximum records of a visit that are Python values at once.
_PIECE_RECORDS = 4_096
# Limits on gathered records, beyond which they are processed before the epoch's input is complete. Untyped results are
# Python values until they are sent, so fewer are gathered.
_GATHERED_BYTES_MAX = 64 << 20
_GATHERED_RECORDS_MAX = 4_000_000
_GATHERED_UNTYPED_MAX = 65_536

Part = tuple[str | None, Batch]
"""Results for one output: None is the main one, else the tag of a side output."""


class KeyedOperator(Operator):
    """Shared by all operators of a keyed stream: gathers records and visits them key by key, with a backend that is
    opened for every epoch and written at its end."""

    is_keyed = True

    def __init__(self, setting: OperatorSetting) -> None:
        node, context = setting.node, setting.context
        edge = node.inputs[0]
        assert edge.key_selector is not None
        self.backend = KeyedBackend(
            node.name, edge.key_type, context.parallelism, context.max_parallelism, context.subtask
        )
        super().__init__(setting.with_states(self.backend))
        self.time = self.backend.timers
        self._owned = KeyRange(self.backend.groups, context.max_parallelism)
        self.keying = Keying.of_edge(edge, self.call, self._owned)
        self._segments = OpenSegments(setting.facts.store)
        self._gathered: list[Batch] = []
        self._gathered_bytes = self._gathered_records = 0

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._gathered, self._gathered_bytes, self._gathered_records = [], 0, 0
        self._table_setting = TableSetting(
            self.uid,
            spec.epoch,
            self.setting.context.subtask,
            nonce,
            self.backend.groups,
            spec.now_ms,
            self._segments,
            decode_key=decode_key,
        )
        context = self.setting.context
        self.open_states(own_accounts(spec.states.get(self.uid, {}), context.subtask, context.parallelism))

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Opens the states at the last version. `accounts` cover this subtask's keys, by the subtask that wrote
        them."""
        with self.call.running("state"):
            self.backend.begin(self._table_setting, accounts)

    @property
    def state_read_ns(self) -> int:
        return self._segments.read_ns

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        acknowledgement.states[self.uid] = self.write_states()
        super().acknowledge(acknowledgement)

    def write_states(self) -> SubtaskAccount:
        """Writes the states; returns their account."""
        with self.call.running("state"):
            return self.backend.end(self.time.now_ms)

    def take(self, batch: Batch) -> None:
        """Gathers a batch until there is enough to process, or the epoch's input is complete."""
        if self._gathered and not alike(self._gathered[-1], batch):
            self._work()
        self.records_in += len(batch)
        self._gathered.append(batch)
        self._gathered_records += len(batch)
        self._gathered_bytes += batch.nbytes
        untyped = not batch.typed or not is_typed(self.node.output_type)
        if (
            self._gathered_records >= (_GATHERED_UNTYPED_MAX if untyped else _GATHERED_RECORDS_MAX)
            or self._gathered_bytes >= _GATHERED_BYTES_MAX
        ):
            self._work()

    def advance(self, watermark: int) -> int:
        self._work()
        return super().advance(watermark)

    def _work(self) -> None:
        """Visits the gathered records and emits the results."""
        if not self._gathered:
            return
        started = time.perf_counter_ns()
        records = Batch.concat(self._gathered)
        self._gathered, self._gathered_bytes, self._gathered_records = [], 0, 0
        with self.call.running("state"):
            self.backend.settle()
        for visit in visits(records, self.keying.gathered_keys(records), self._owned, self.backend.visit_keys_max):
            with self.call.running("state"):
                self.backend.visit(visit.keys, visit.values)
            for tag, batch in self.work(visit):
                self.busy_ns += time.perf_counter_ns() - started
                self._emit_part(tag, batch)
                started = time.perf_counter_ns()
            with self.call.running("state"):
                self.backend.leave()
        self.busy_ns += time.perf_counter_ns() - started

    def _emit_part(self, tag: str | None, batch: Batch) -> None:
        if not len(batch):
            return
        if tag is None:
            self.emit(batch)
        else:
            for output in self.side_outputs.get(tag, ()):
                output(batch)

    def work(self, visit: Visit) -> Iterator[Part]:
        """Processes the records of a visit; yields the results."""
        raise NotImplementedError


class PerRecordOperator(KeyedOperator):
    """Calls a function for every record, with the record's key as the current key."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._pieces = Pieces(_PIECE_RECORDS)

    def work(self, visit: Visit) -> Iterator[Part]:
        start = 0
        while start < len(visit):
            piece = visit.records.slice(start, min(self._pieces.records, len(visit) - start))
            parts = self.apply_at(piece, visit.codes[start : start + len(piece)].tolist())
            start += len(piece)
            self._pieces.learn(len(piece), sum(part.nbytes for _, part in parts))
            yield from parts
        self.backend.scope.leave()

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        """Processes records whose keys have these numbers in the visit; returns the results."""
        raise NotImplementedError


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
    """A `KeyedProcessFunction`: elements first, then the timers that are due. (A `ProcessFunction` has no `on_timer`,
    but on a keyed stream it may have state and set timers.) In BATCH all timers fire at the end of the input, also
    those of processing time: the division into epochs must not be visible."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._is_batch = setting.facts.batch
        operation = setting.node.operation
        assert isinstance(operation, KeyedProcess)
        self._on_timer = getattr(self.user_function(), "on_timer", None)
        self._domains: tuple[Any, Any] = operation.time_domains

    def wake(self) -> None:
        """Fires due processing-time timers, before any element is processed."""
        if not self._is_batch:
            self._fire(self.backend.processing_timers, self.time.now_ms, None, self._domains[1])

    def write_states(self) -> SubtaskAccount:
        account = super().write_states()
        return replace(account, wake_ms=None) if self._is_batch else account  # in BATCH no timer wakes the job

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
        """The function's results for all records, which have no timestamps."""
        function, scope, context = self._function, self.backend.scope, self.element_context()
        results = None
        # A comprehension, because `extend` queries every generator's length hint first.
        out = [
            item
            for scope.at, value in zip(numbers, remaining, strict=True)
            if (results := function(value, context)) is not None
            for item in results
        ]
        warn_if_iterated(results, self.node, "process")
        return out

    def _process_timed(
        self, numbers: list[int], remaining: Iterator[Any], stamps: list[int]
    ) -> tuple[list[Any], list[int]]:
        """The same for records with timestamps; also returns the number of results up to each record."""
        function, scope, context = self._function, self.backend.scope, self.element_context()
        out: list[Any] = []
        ends: list[int] = []
        add, append = out.append, ends.append
        results = None
        for scope.at, context._timestamp, value in zip(numbers, stamps, remaining, strict=True):
            results = function(value, context)
            if results is not None:
                for item in results:
                    add(item)
            append(len(out))
        warn_if_iterated(results, self.node, "process")
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
        """Calls `on_timer` for every timer up to `through`. In BATCH calls it for all existing timers, but for timers
        set by these calls only up to `through`: a timer that sets itself again must end."""
        started = time.perf_counter_ns()
        with self.call.running("timers"):
            due = timers.due_through(MAX_WATERMARK if self._is_batch and domain is self._domains[1] else through, after)
            if not due:
                return
            self._warn_of_unhandled_timers()
            visits = TimerVisits(self.backend, [key for _, key in sorted(due, key=_time_of)])
        out: list[Any] = []
        stamps: list[int] = []
        context = self.timer_context(domain)
        results = None
        for moment, key in timers.take_in_order(due, through):
            with self.call.running("state"):
                visits.enter(key)
            context._timestamp = moment
            try:
                results = self._on_timer(moment, context) if self._on_timer is not None else None
                if results is not None:
                    out.extend(results)
            except Exception as error:
                raise self.call.failed(error, "on_timer", (Described(f"timer {moment} of key {key!r}"),)) from error
            stamps.extend([moment] * (len(out) - len(stamps)))
            if len(out) >= _FIRED_RECORDS_MAX:
                self.busy_ns += time.perf_counter_ns() - started
                self._emit_fired(out, stamps)
                started = time.perf_counter_ns()
                out, stamps = [], []
        warn_if_iterated(results, self.node, "on_timer")
        with self.call.running("state"):
            self.backend.leave()
        self.busy_ns += time.perf_counter_ns() - started
        self._emit_fired(out, stamps)

    def _warn_of_unhandled_timers(self) -> None:
        """Warns of timers without effect: the function sets them but does not define `on_timer`."""
        kind = type(self.user_function())
        if self._on_timer is None or is_engine_file(self._on_timer.__code__.co_filename):
            warn_once(
                f"timers of {self.uid}",
                f"timers of '{self.node.name}' are due, and {kind.__name__} has no on_timer(self, timestamp, ctx): "
                "they have no effect. Write one, or set no timers",
                self.node.site,
            )

    def _emit_fired(self, out: list[Any], stamps: list[int]) -> None:
        if out:
            for tag, batch in self._parts(out, np.array(stamps, dtype=np.int64)):
                self._emit_part(tag, batch)


def _time_of(timer: tuple[int, Any]) -> int:
    return timer[0]


class TimerVisits:
    """Visits the keys of timers. Timers fire by time, not by key: `keys` are entered one at a time, in that order, and
    visited in groups. A key that is not in the current group is visited with the next one."""

    def __init__(self, backend: KeyedBackend, keys: list[Any]) -> None:
        self._backend = backend
        self._keys = keys
        self._next = 0
        self._numbers: dict[Any, int] = {}

    def enter(self, key: Any) -> None:
        """Makes `key` the current key before a call of the function."""
        number = self._numbers.get(key)
        if number is None:
            self._visit(key)
            number = self._numbers[key]
        self._backend.scope.at = number

    def _visit(self, key: Any) -> None:
        """Visits `key` and the next group of keys."""
        group = self._keys[self._next : self._next + self._backend.visit_keys_max]
        self._next += len(group)
        keys = list(dict.fromkeys((key, *group)))
        self._backend.leave()
        self._backend.settle()
        self._backend.visit(self._backend.column(keys), keys)
        self._numbers = {key: number for number, key in enumerate(keys)}
