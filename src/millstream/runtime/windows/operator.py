"""The general window operator: any assigner, trigger and evictor, merging windows, late records, early results.

For every record, in arrival order per key:

1. the assigner returns its windows;
2. each unexpired window receives it (`lifecycle`), and may fire;
3. a late record without a window goes to the side output for late records, or is counted as dropped.

When event time (or the clock) reaches timers of windows, they are handled in time order. Within an epoch the watermark
stays at its initial value, so a late record is late in every repetition. Results of a window have its last millisecond
as timestamp. Store reads for records and timers are batched.

A processing-time window ends after its last millisecond: processing-time timers fire when the clock has passed them, so
that the window of an epoch's records is never already closed.

In BATCH nothing is late: event time does not advance until the input has ended, and then reaches its end at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from millstream.graph.window_traits import FiringRule, firing_rule
from millstream.records.batch import Batch
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.operators.suspicious_results import warn_if_iterated
from millstream.runtime.operators.user_code import Described
from millstream.runtime.task.spec import EpochSpec
from millstream.runtime.windows.contexts import AssignerContext
from millstream.runtime.windows.lifecycle import NO_TIMESTAMP, WindowLife
from millstream.runtime.windows.merging import MergedWindows
from millstream.runtime.windows.window_functions import WindowFunctions
from millstream.state.windows.places import Place

__all__ = ["WindowOperator"]

Assigned: TypeAlias = list[tuple[Any, Place]]
"""The windows of one record, each with its place."""

# Windows fire in batches of about this many results, so that downstream operators receive batches, too.
_FIRED_RECORDS_MAX = 16_384
_ANNOUNCED_PLACES_MAX = 16_384


class WindowOperator(WindowFunctions):
    """One window node in one subtask."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        context = self.setting.context
        self._assigner_context = AssignerContext(self.time, context)
        self._fires_by_time = firing_rule(self._operation.trigger) is not FiringRule.UNKNOWN
        self._windows = WindowLife(
            self._operation, self.store, self.of_key, self.tokens, context, self.time, self._function
        )

    # --- an epoch -------------------------------------------------------------------------------------------------

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._windows.begin()
        if self.setting.facts.batch:
            self._windows.set_final_only()
            self.time.watermark = MIN_WATERMARK

    def wake(self) -> None:
        """Fire due processing-time timers, before any element."""
        if not self._windows.firings.is_final_only:
            self._fire_timers(self.store.processing_timers, self.time.now_ms - 1, None)

    def advance(self, watermark: int) -> int:
        if not self._windows.firings.is_final_only:
            self._fire_timers(self.store.processing_timers, self.time.now_ms - 1, None)
        before = self.time.watermark
        reached = super().advance(watermark)
        if not self._windows.firings.is_final_only:
            self._fire_timers(self.store.event_timers, reached, before)
        elif reached == MAX_WATERMARK:
            self._fire_timers(self.store.processing_timers, MAX_WATERMARK, None)
            self._fire_timers(self.store.event_timers, MAX_WATERMARK, None)
        return reached

    # --- records --------------------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """Process a whole batch. Keys alone do not determine which state it reads, so visits to keys do not help."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        values, keys, stamps = self.records(batch), self.keying.values(batch), self._timestamps(batch)
        with self.call.running("state"):
            self.store.prefetch(keys, ())
        assigned = self._assigned(keys, stamps, values)
        with self.call.running("state"):
            self._prefetch_records(keys, assigned)
        self._take_records(keys, stamps, assigned, values)
        self.store.leave()
        self.busy_ns += time.perf_counter_ns() - started
        self._hand_on_results()

    def records(self, batch: Batch) -> list[Any]:
        """The records as windows store them."""
        return batch.values()

    def _timestamps(self, batch: Batch) -> list[int | None]:
        self.check_timestamps(batch)
        if batch.timestamps is not None:
            return batch.timestamps.tolist()  # type: ignore[no-any-return]
        return [None] * len(batch)

    def _assigned(self, keys: list[Any], stamps: list[int | None], values: list[Any]) -> list[Assigned]:
        """The unexpired windows of every record; for merging windows, all windows."""
        assign, context, scope = self._operation.assigner.assign_windows, self._assigner_context, self.store.keys
        token, is_expired = self.tokens.token, self._windows.times.is_expired
        remaining = iter(values)
        assigned: list[Assigned] = []
        try:
            for key, stamp, value in zip(keys, stamps, remaining, strict=True):
                scope.at = key
                windows = assign(value, NO_TIMESTAMP if stamp is None else stamp, context)
                assigned.append([(window, (key, token(window))) for window in windows])
        except Exception as error:
            raise self.call.failed(error, "window assigner", self.call.current(values, remaining)) from error
        is_event_time = self._windows.times.is_event_time
        if self._windows.merged is not None or not is_event_time or self.time.watermark == MIN_WATERMARK:
            return assigned
        expired = {window for windows in assigned for window, _ in windows}
        expired = {window for window in expired if is_expired(window)}
        return [[pair for pair in pairs if pair[0] not in expired] for pairs in assigned] if expired else assigned

    def _prefetch_records(self, keys: list[Any], assigned: list[Assigned]) -> None:
        """Prefetch the contents of the records' windows."""
        if self._windows.merged is not None:
            assigned_places = [place for pairs in assigned for _, place in pairs]
            self.store.prefetch((), [*self._windows_of_keys(self._windows.merged, keys), *assigned_places])
            return
        places = {place: window for pairs in assigned for window, place in pairs}
        self.store.prefetch((), places)
        if self._fires_by_time:
            # Open windows fire at their time, not on a record; a record fires only late windows.
            now = self.time.watermark
            self._windows.contents.prepare([place for place, window in places.items() if window.max_timestamp() <= now])
        else:
            self._windows.contents.prepare(list(places))

    def _windows_of_keys(self, merged: MergedWindows, keys: list[Any]) -> Iterator[Place]:
        """All windows of these keys, and their state windows."""
        merged.load(keys)
        for key in dict.fromkeys(keys):
            self.store.keys.at = key
            for window, state_window in merged.all():
                yield key, window
                yield key, state_window

    def _take_records(
        self, keys: list[Any], stamps: list[int | None], assigned: list[Assigned], values: list[Any]
    ) -> None:
        take, firings, scope, remaining = self._windows.take, self._windows.firings, self.store.keys, iter(values)
        try:
            for scope.at, stamp, windows, value in zip(keys, stamps, assigned, remaining, strict=True):
                has_window = False
                for window, place in windows:
                    has_window |= take(window, place, value, stamp)
                if not has_window and stamp is not None and self._windows.times.is_late(stamp):
                    self.emit_late(value, stamp, firings.results, firings.stamps)
        except Exception as error:
            raise self.call.failed(error, self.role, self.call.current(values, remaining)) from error

    # --- timers ---------------------------------------------------------------------------------------------------

    def _fire_timers(self, timers: Timers, through: int, after: int | None) -> None:
        """Handle the timers of windows up to `through`."""
        started = time.perf_counter_ns()
        with self.call.running("timers"):
            timers_due = timers.due_through(through, after)
        timers_due.sort(key=lambda timer: timer[0])
        prefetched: set[Place] = set()
        for moment, place in timers.take_in_order(timers_due, through):
            if place not in prefetched:
                with self.call.running("state"):
                    self._prefetch_timers(timers_due, prefetched, place)
            self.store.keys.at = place[0]
            try:
                self._windows.on_timer(moment, place, timers is self.store.event_timers)
            except Exception as error:
                raise self.call.failed(error, self.role, (Described(f"timer {moment} of key {place[0]!r}"),)) from error
            if len(self._windows.firings.results) >= _FIRED_RECORDS_MAX:
                self.busy_ns += time.perf_counter_ns() - started
                self._hand_on_results()
                started = time.perf_counter_ns()
        self.store.leave()
        self.busy_ns += time.perf_counter_ns() - started
        self._hand_on_results()

    def _prefetch_timers(self, timers_due: list[tuple[int, Place]], prefetched: set[Place], place: Place) -> None:
        """Prefetch the contents of the next windows: the window of `place`, and windows due soon after."""
        start = len(prefetched)
        places = list(
            dict.fromkeys([place, *(other for _, other in timers_due[start : start + _ANNOUNCED_PLACES_MAX])])
        )
        prefetched.update(places)
        keys = [key for key, _ in places]
        self.store.prefetch(keys, places)
        homes = places
        if self._windows.merged is not None:
            self._windows.merged.load(keys)
            homes = list(self._homes(self._windows.merged, places))
            self.store.prefetch((), homes)
        self._windows.contents.prepare(homes)

    def _homes(self, merged: MergedWindows, places: list[Place]) -> Iterator[Place]:
        """The state windows of existing windows."""
        for key, token in places:
            self.store.keys.at = key
            state_window = merged.state_window(token)
            if state_window is not None:
                yield key, state_window

    # --- results --------------------------------------------------------------------------------------------------

    def _hand_on_results(self) -> None:
        results, stamps = self._windows.firings.results, self._windows.firings.stamps
        if results:
            warn_if_iterated(self._windows.firings.last_results, self.node, "window")
            self._windows.firings.begin()
            for tag, batch in self._parts(results, np.array(stamps, dtype=np.int64)):
                self._emit_part(tag, batch)
