"""Operators of keyed streams: functions that see one key at a time, with state and timers of that key."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.graph.nodes import KeyedProcess
from millstream.records.batch import Batch, alike, is_typed
from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.exchange.keying import Keying
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.keyed.visits import KeyRange, Visit, visits
from millstream.runtime.operators.context import ElementContext
from millstream.runtime.operators.operators import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    Operator,
    OperatorSetting,
    ProcessOperator,
    inherited_timestamps,
)
from millstream.runtime.operators.pieces import Pieces
from millstream.runtime.task.barrier import MAX_WATERMARK, Acknowledgement
from millstream.runtime.task.spec import EpochSpec, JobFacts, own_accounts
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.state_table import EpochPlace

__all__ = [
    "KeyPlaces",
    "KeyedContext",
    "KeyedFilterOperator",
    "KeyedFlatMapOperator",
    "KeyedMapOperator",
    "KeyedOperator",
    "KeyedProcessOperator",
    "Part",
    "PerRecordOperator",
    "TimerContext",
]

# Timers fire in batches of about this many results, so that downstream operators see batches too.
_FIRED_RECORDS_MAX = 16_384
# Of a visit's records so many are Python values at once.
_PIECE_RECORDS = 4_096
# What is gathered before it is worked on, even if more is to come in this epoch. Results that are not columns are
# Python values until they are sent, hence fewer.
_GATHERED_BYTES_MAX = 64 << 20
_GATHERED_RECORDS_MAX = 4_000_000
_GATHERED_UNTYPED_MAX = 65_536

Part = tuple[str | None, Batch]
"""Results for one output: None is the main one, else the tag of a side output."""


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
    """What all operators of a keyed stream share: how records are gathered and visited key by key, and a backend that
    is opened for every epoch and written at its end."""

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
        self._segments: OpenSegments | None = None
        self._gathered: list[Batch] = []
        self._gathered_bytes = self._gathered_records = 0

    def prepare(self, spec: EpochSpec, facts: JobFacts, nonce: str) -> None:
        """A new epoch or attempt: open the states at the last version."""
        if self._segments is None:
            self._segments = OpenSegments(facts.store, facts.cache_folder)
        self._gathered, self._gathered_bytes, self._gathered_records = [], 0, 0
        self.place = EpochPlace(
            self.uid,
            spec.epoch,
            self.setting.context.subtask,
            nonce,
            self.backend.groups,
            spec.now_ms,
            self._segments,
            decode_key=decode_key,
        )
        with self.call.running("state"):
            self.backend.begin(self.place, self.kept(spec))

    def kept(self, spec: EpochSpec) -> Mapping[int, SubtaskAccount]:
        """What was acknowledged last of this subtask's keys, by the subtasks that did."""
        context = self.setting.context
        return own_accounts(spec.states.get(self.uid, {}), context.subtask, context.parallelism)

    @property
    def state_read_ns(self) -> int:
        return 0 if self._segments is None else self._segments.read_ns

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Write the states and tell their new versions."""
        with self.call.running("state"):
            acknowledgement.states[self.uid] = self.backend.end(self.time.now_ms)

    def take(self, batch: Batch) -> None:
        """Keep a batch until there is enough to work on, or the epoch's input is in."""
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
        """Visit the records gathered so far and hand on what comes of them."""
        if not self._gathered:
            return
        started = time.perf_counter_ns()
        records = Batch.concat(self._gathered)
        self._gathered, self._gathered_bytes, self._gathered_records = [], 0, 0
        with self.call.running("state"):
            self.backend.settle()
        for visit in visits(records, self.keying.gathered(records), self._owned, self.backend.visit_keys_max):
            with self.call.running("state"):
                self.backend.visit(visit.keys, visit.values)
            for tag, batch in self.work(visit):
                self.busy_ns += time.perf_counter_ns() - started
                self._hand_on(tag, batch)
                started = time.perf_counter_ns()
            with self.call.running("state"):
                self.backend.leave()
        self.busy_ns += time.perf_counter_ns() - started

    def _hand_on(self, tag: str | None, batch: Batch) -> None:
        if not len(batch):
            return
        if tag is None:
            self.emit(batch)
        else:
            for output in self.side_outputs.get(tag, ()):
                output(batch)

    def work(self, visit: Visit) -> Iterator[Part]:
        """What this operator makes of the records of a visit."""
        raise NotImplementedError


class PerRecordOperator(KeyedOperator):
    """Calls a function for one record after another, each within its key."""

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
        """What comes of some records, whose keys have these numbers in the visit."""
        raise NotImplementedError


class KeyedMapOperator(PerRecordOperator, MapOperator):
    """A `MapFunction` on a keyed stream: it may hold state of the key of the record at hand."""

    def _results(self, batch: Batch, numbers: list[int]) -> list[Any]:
        """What the function returns for every record, each called within its key."""
        function, scope, values = self._function, self.backend.scope, batch.values()
        remaining = iter(values)
        results: list[Any] = []
        append = results.append
        try:
            for scope.at, value in zip(numbers, remaining, strict=True):
                append(function(value))
        except Exception as error:
            raise self.call.failed(error, self.method, self.call.current(values, remaining)) from error
        return results

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        results = self._results(batch, numbers)
        return [(None, self.typed(results, batch.timestamps, self.node.output_type))]


class KeyedFilterOperator(KeyedMapOperator, FilterOperator):
    """A `FilterFunction` on a keyed stream."""

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        kept = np.flatnonzero(list(map(bool, self._results(batch, numbers))))
        return [(None, batch.take(kept))]


class KeyedFlatMapOperator(KeyedMapOperator, FlatMapOperator):
    """A `FlatMapFunction` on a keyed stream."""

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        function, scope, values = self._function, self.backend.scope, batch.values()
        remaining = iter(values)
        out: list[Any] = []
        ends: list[int] = []
        try:
            for scope.at, value in zip(numbers, remaining, strict=True):
                results = function(value)
                if results is not None:
                    out.extend(results)
                ends.append(len(out))
        except Exception as error:
            raise self.call.failed(error, "flat_map", self.call.current(values, remaining)) from error
        return [(None, self.typed(out, inherited_timestamps(batch.timestamps, ends), self.node.output_type))]


class KeyedProcessOperator(PerRecordOperator, ProcessOperator):
    """A `KeyedProcessFunction`: elements first, then the timers that are due. (A `ProcessFunction` has no timers to
    fire, but on a keyed stream it may hold state and set them.) In BATCH all come when the input has ended, those of
    processing time too: how the input is cut into epochs must not be seen."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._is_batch = False
        operation = setting.node.operation
        assert isinstance(operation, KeyedProcess)
        self._on_timer = getattr(self.user_function(), "on_timer", None)
        self._domains: tuple[Any, Any] = operation.time_domains

    def prepare(self, spec: EpochSpec, facts: JobFacts, nonce: str) -> None:
        super().prepare(spec, facts, nonce)
        self._is_batch = facts.batch

    def wake(self) -> None:
        """Before any element: timers of processing time that have come."""
        if not self._is_batch:
            self._fire(self.backend.processing_timers, self.time.now_ms, None, self._domains[1])

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        super().acknowledge(acknowledgement)
        if self._is_batch:  # nobody need wake up for a timer
            acknowledgement.states[self.uid] = replace(acknowledgement.states[self.uid], wake_ms=None)

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
            come = timers.come(MAX_WATERMARK if self._is_batch and domain is self._domains[1] else through, after)
            if not come:
                return
            places = KeyPlaces(self.backend, [key for _, key in sorted(come, key=_time_of)])
        out: list[Any] = []
        stamps: list[int] = []
        context = self.timer_context(domain)
        for moment, key in timers.due(come, through):
            with self.call.running("state"):
                places.enter(key)
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


class KeyPlaces:
    """Enters keys one at a time, in an order known beforehand, and visits them in groups: timers fire by time, not by
    key. A key that was not foreseen is visited by itself."""

    def __init__(self, backend: KeyedBackend, foreseen: list[Any]) -> None:
        self._backend = backend
        self._foreseen = foreseen
        self._next = 0
        self._places: dict[Any, int] = {}

    def enter(self, key: Any) -> None:
        """The function is about to be called for `key`."""
        place = self._places.get(key)
        if place is None:
            self._visit_group_of(key)
            place = self._places[key]
        self._backend.scope.at = place

    def _visit_group_of(self, key: Any) -> None:
        group = self._foreseen[self._next : self._next + self._backend.visit_keys_max]
        self._next += len(group)
        keys = list(dict.fromkeys((key, *group)))
        self._backend.leave()
        self._backend.settle()
        self._backend.visit(self._backend.column(keys), keys)
        self._places = {key: place for place, key in enumerate(keys)}
