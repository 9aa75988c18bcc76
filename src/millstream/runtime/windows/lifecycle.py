"""The life cycle of a window: it receives records, merges, fires when its trigger fires, and is deleted at its cleanup
time.

    record ──► take ──► trigger.on_element ──► fire? purge?      and a timer is set for its cleanup time
    timer  ──► on_timer ──► trigger.on_…_time ──► fire? purge?   and at the cleanup time it is always cleared

These are Flink's rules, one window at a time; the operator decides which keys and windows are handled, and when.

A firing window passes its contents to the window function; results have the window's last millisecond as timestamp. In
BATCH (`set_final_only`) a window with an end holds back its latest results, as state of its place, and emits them when
it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import Types
from millstream.errors import ProgramError
from millstream.graph.nodes import Window
from millstream.graph.window_traits import FiringRule, MergingAssigner, firing_rule
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.keyed.state_store import OwnState
from millstream.runtime.keyed.states import ValueHandle
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.operators.user_code import TaskContext, TaskTimerService
from millstream.runtime.windows.contents import Contents, contents_of
from millstream.runtime.windows.contexts import EvictorContext, FunctionContext, TriggerContext
from millstream.runtime.windows.merging import MergedWindows, Merger
from millstream.runtime.windows.window_store import PartyStates, WindowStore
from millstream.state.windows.places import Place, WindowTokens

__all__ = ["NO_TIMESTAMP", "WindowFirings", "WindowLife", "WindowTimes"]

_FINAL_RESULTS = OwnState("window results", Types.PICKLED_BYTE_ARRAY())


class WindowTimes:
    """Cleanup times of windows. An event-time window is cleaned up at its end plus the allowed lateness, any other
    window at its end. A window without an end is never deleted: its trigger has to purge it."""

    def __init__(self, is_event_time: bool, lateness_ms: int, service: TaskTimerService) -> None:
        self.is_event_time = is_event_time
        self.lateness_ms = lateness_ms if is_event_time else 0
        self.service = service

    def cleanup_time(self, window: Any) -> int:
        """The cleanup time of a window."""
        cleanup_ms: int = window.max_timestamp() + self.lateness_ms
        return min(cleanup_ms, MAX_WATERMARK)

    def is_expired(self, window: Any) -> bool:
        """Whether a window accepts no more records."""
        return self.is_event_time and self.cleanup_time(window) <= self.service.watermark

    def is_late(self, timestamp: int) -> bool:
        """Whether a record without a window arrived too late."""
        return self.is_event_time and timestamp + self.lateness_ms <= self.service.watermark

    def check_not_expired(self, window: Any) -> None:
        """Reject merging windows into an expired one."""
        now = self.service.watermark if self.is_event_time else self.service.now_ms
        if self.cleanup_time(window) <= now:
            raise ProgramError(
                f"windows were merged into {window!r}, whose cleanup time is {self.cleanup_time(window)} ms, but time "
                f"is at {now} ms already: merge_windows() of the assigner must not return an expired window"
            )


class WindowFirings:
    """The results of all windows of one operator in one subtask, collected in `results` and `stamps`."""

    def __init__(self, store: WindowStore, function: Callable[..., Any], context: FunctionContext) -> None:
        self._store = store
        self._function = function
        self.context = context
        self._final: ValueHandle | None = None
        self.begin()

    def begin(self) -> None:
        """Start an epoch or attempt without results."""
        self.results: list[Any] = []
        self.stamps: list[int] = []
        self.last_results: Any = None  # the last return value of the function

    @property
    def is_final_only(self) -> bool:
        """Whether only final results are emitted."""
        return self._final is not None

    def set_final_only(self) -> None:
        """Hold back early results: the job is BATCH."""
        self._final = self._store.state_of_place(_FINAL_RESULTS.name, ValueHandle, _FINAL_RESULTS)

    def fire(self, key: Any, window: Any, place: Place, contents: Contents, retained: bool) -> None:
        """Pass the contents to the window function unless empty; `retained`: the window keeps them."""
        start, end, is_called = len(self.results), window.max_timestamp(), False

        def call(value: Any) -> None:
            nonlocal is_called
            is_called = True
            self.last_results = results = self._function(key, window, self.context, value)
            if results is not None:
                self.results.extend(results)

        contents.fire(window, call, retained)
        self.stamps.extend([end] * (len(self.results) - start))
        if is_called and self._final is not None and end < MAX_WATERMARK:
            self._store.places.at = place
            self._final.update(self.results[start:])
            del self.results[start:], self.stamps[start:]

    def merge(self, parts: list[Place], result: Place) -> None:
        """Move results held back by merged windows to the merged one."""
        if self._final is None:
            return
        results: list[Any] = []
        for self._store.places.at in parts:
            results += self._final.value() or ()
            self._final.clear()
        self._store.places.at = result
        if results:
            self._final.update(results)

    def close(self, window: Any) -> None:
        """Emit the results held back by the current window, which is being deleted."""
        if self._final is not None:
            results = self._final.value() or ()
            self._final.clear()
            self.results.extend(results)
            self.stamps.extend([window.max_timestamp()] * len(results))


NO_TIMESTAMP = -(2**63)
"""The timestamp that triggers and assigners get for a record without one, as in Flink."""


class WindowLife:
    """All windows of one operator in one subtask."""

    def __init__(
        self,
        operation: Window,
        store: WindowStore,
        of_key: PartyStates,
        tokens: WindowTokens,
        context: TaskContext,
        time: TaskTimerService,
        function: Callable[..., Any],
    ) -> None:
        self._operation = operation
        self._store = store
        self._trigger = operation.trigger
        self._sets_one_timer = firing_rule(operation.trigger) is FiringRule.AT_ITS_END
        self.tokens = tokens
        self.times = WindowTimes(operation.assigner.is_event_time(), operation.allowed_lateness_ms, time)
        self.contents = contents_of(store, operation, EvictorContext(time, context.metrics))
        merges = isinstance(operation.assigner, MergingAssigner)
        self.merged = MergedWindows(store, operation.assigner, self.tokens) if merges else None
        self._trigger_context = TriggerContext(time, context.metrics, store)
        self.firings = WindowFirings(store, function, FunctionContext(time, store, of_key, merges))
        # Windows whose trigger has seen a record in this epoch and would treat the next one alike.
        self._waiting: set[Place] = set()

    def begin(self) -> None:
        """Start an epoch or attempt without results."""
        self.firings.begin()
        self._waiting.clear()

    def set_final_only(self) -> None:
        """Configure for BATCH: nothing is late, and early results are held back."""
        self.firings.set_final_only()
        self.times.lateness_ms = 0

    def _timers(self) -> Timers:
        return self._store.event_timers if self.times.is_event_time else self._store.processing_timers

    # --- a record -------------------------------------------------------------------------------------------------

    def take(self, window: Any, place: Place, value: Any, stamp: int | None) -> bool:
        """Add a record to one of its windows, which may merge with others; returns whether the window accepted it."""
        scope, key, home = self._store.places, place[0], place
        if place in self._waiting:
            scope.at = place
            self.contents.add(value, stamp)
            return True
        if self.merged is not None:
            place, home, window = self._merge_window(self.merged, key, place[1])
            if self.times.is_expired(window):
                self.merged.retire(place[1])
                return False
        scope.at = home
        self.contents.add(value, stamp)
        scope.at = place
        timestamp = NO_TIMESTAMP if stamp is None else stamp
        result = self._trigger.on_element(value, timestamp, window, self._trigger_context)
        self._apply_trigger_result(result, key, window, place, home, is_last=False)
        cleanup_ms = self.times.cleanup_time(window)
        if cleanup_ms < MAX_WATERMARK:
            self._timers().register(cleanup_ms, place)
        if self._sets_one_timer and self.merged is None and window.max_timestamp() > self.times.service.watermark:
            self._waiting.add(place)
        return True

    def _merge_window(self, merged: MergedWindows, key: Any, token: bytes) -> tuple[Place, Place, Any]:
        """Merge a record's window with the other windows of its key; returns the place of the result, the place of its
        contents, and the window."""
        result, mergers = merged.add(token)
        for merger in mergers:
            self._merge(key, merger)
        state_window = merged.state_window(result)
        assert state_window is not None
        return (key, result), (key, state_window), self.tokens.window(result)

    def _merge(self, key: Any, merger: Merger) -> None:
        window, context = self.tokens.window(merger.result), self._trigger_context
        self.times.check_not_expired(window)
        parts = [(key, part) for part in merger.parts]
        context.merged, self._store.places.at = parts, (key, merger.result)
        self._trigger.on_merge(window, context)
        for place in parts:
            self._store.places.at = place
            part = self.tokens.window(place[1])
            self._trigger.clear(part, context)
            self._timers().delete(self.times.cleanup_time(part), place)
        self.firings.merge(parts, (key, merger.result))
        if merger.state_parts:
            self.contents.merge((key, merger.state_window), [(key, state_part) for state_part in merger.state_parts])

    # --- a timer --------------------------------------------------------------------------------------------------

    def on_timer(self, moment: int, place: Place, is_event_time: bool) -> None:
        """Handle a timer of a window: one set by the trigger, or the cleanup timer."""
        self._waiting.discard(place)
        key, token = place
        window, home = self.tokens.window(token), place
        if self.merged is not None:
            state_window = self.merged.state_window(token)
            if state_window is None:
                return  # a leftover timer: the window was merged into another one
            home = (key, state_window)
        self._store.places.at = place
        on_time = self._trigger.on_event_time if is_event_time else self._trigger.on_processing_time
        result = on_time(moment, window, self._trigger_context)
        is_last = is_event_time == self.times.is_event_time and moment == self.times.cleanup_time(window)
        self._apply_trigger_result(result, key, window, place, home, is_last)
        if is_last:
            self._clear(window, place, home)

    # --- trigger results ------------------------------------------------------------------------------------

    def _apply_trigger_result(
        self, result: Any, key: Any, window: Any, place: Place, home: Place, is_last: bool
    ) -> None:
        """Fire or purge a window. `is_last`: it is cleared right after."""
        fires, purges = result.is_fire(), result.is_purge()
        if not (fires or purges):
            return
        scope = self._store.places
        scope.at = home
        if fires:
            self.firings.fire(key, window, place, self.contents, retained=not (is_last or purges))
        if purges:
            scope.at = home
            self.contents.clear()
        scope.at = place

    def _clear(self, window: Any, place: Place, home: Place) -> None:
        """Delete all state of a window."""
        scope = self._store.places
        scope.at = home
        self.contents.clear()
        scope.at = place
        self._trigger.clear(window, self._trigger_context)
        self._operation.function.clear(window, self.firings.context)
        self.firings.close(window)
        if self.merged is not None:
            self.merged.retire(place[1])
