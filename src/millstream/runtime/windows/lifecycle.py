"""The life of a window: it takes records, merges, fires when its trigger says so, and is forgotten when it is over.

    record ──► take ──► trigger.on_element ──► fire? purge?      and a timer is set for its last moment
    timer  ──► on_timer ──► trigger.on_…_time ──► fire? purge?   and at the last moment it is cleared in any case

These are Flink's rules, one window at a time; which keys and windows there are, and when, is the operator's business.
When a window is over, and what it gives out, `firings` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.graph.nodes import Window
from millstream.graph.window_traits import FiringRule, MergingAssigner, firing_rule
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.keyed.timers import Timers
from millstream.runtime.operators.context import TaskContext, TaskTimerService
from millstream.runtime.windows.contents import contents_of
from millstream.runtime.windows.contexts import EvictorContext, FunctionContext, TriggerContext
from millstream.runtime.windows.firings import WindowFirings, WindowTimes
from millstream.runtime.windows.merging import MergedWindows, Merger
from millstream.runtime.windows.window_store import PartyStates, WindowStore
from millstream.state.windows.places import Place, WindowTokens

__all__ = ["NO_TIMESTAMP", "WindowLife"]

NO_TIMESTAMP = -(2**63)
"""What triggers and assigners are told of a record without a timestamp, as in Flink."""


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
        # Windows whose trigger has been told of a record in this epoch, and would say and do the same for the next.
        self._waiting: set[Place] = set()

    def begin(self) -> None:
        """An epoch or attempt begins: nothing was given out yet."""
        self.firings.begin()
        self._waiting.clear()

    def want_final_only(self) -> None:
        """The job is BATCH: nothing is late, and early results are kept back."""
        self.firings.want_final_only()
        self.times.lateness_ms = 0

    def _timers(self) -> Timers:
        return self._store.event_timers if self.times.is_event_time else self._store.processing_timers

    # --- a record -------------------------------------------------------------------------------------------------

    def take(self, window: Any, place: Place, value: Any, stamp: int | None) -> bool:
        """A record comes into one of its windows, which may merge with others; whether it could still take it."""
        scope, key, home = self._store.places, place[0], place
        if place in self._waiting:
            scope.at = place
            self.contents.add(value, stamp)
            return True
        if self.merged is not None:
            place, home, window = self._joined(self.merged, key, place[1])
            if self.times.is_over(window):
                self.merged.retire(place[1])
                return False
        scope.at = home
        self.contents.add(value, stamp)
        scope.at = place
        timestamp = NO_TIMESTAMP if stamp is None else stamp
        result = self._trigger.on_element(value, timestamp, window, self._trigger_context)
        self._obey(result, key, window, place, home, is_last=False)
        last = self.times.last_moment(window)
        if last < MAX_WATERMARK:
            self._timers().register(last, place)
        if self._sets_one_timer and self.merged is None and window.max_timestamp() > self.times.service.watermark:
            self._waiting.add(place)
        return True

    def _joined(self, merged: MergedWindows, key: Any, token: bytes) -> tuple[Place, Place, Any]:
        """Merge a record's window with those of its key: the place of the result, that of its contents, and it."""
        result, mergers = merged.add(token)
        for merger in mergers:
            self._merge(key, merger)
        state_window = merged.state_window(result)
        assert state_window is not None
        return (key, result), (key, state_window), self.tokens.window(result)

    def _merge(self, key: Any, merger: Merger) -> None:
        window, context = self.tokens.window(merger.result), self._trigger_context
        self.times.check_not_over(window)
        parts = [(key, part) for part in merger.parts]
        context.merged, self._store.places.at = parts, (key, merger.result)
        self._trigger.on_merge(window, context)
        for place in parts:
            self._store.places.at = place
            part = self.tokens.window(place[1])
            self._trigger.clear(part, context)
            self._timers().delete(self.times.last_moment(part), place)
        self.firings.merge(parts, (key, merger.result))
        if merger.state_parts:
            self.contents.merge((key, merger.state_window), [(key, state_part) for state_part in merger.state_parts])

    # --- a timer --------------------------------------------------------------------------------------------------

    def on_timer(self, moment: int, place: Place, is_event_time: bool) -> None:
        """A timer of a window has come: one that the trigger set, or the window's last."""
        self._waiting.discard(place)
        key, token = place
        window, home = self.tokens.window(token), place
        if self.merged is not None:
            state_window = self.merged.state_window(token)
            if state_window is None:
                return  # a timer that a trigger left behind: the window is part of another one now
            home = (key, state_window)
        self._store.places.at = place
        ask = self._trigger.on_event_time if is_event_time else self._trigger.on_processing_time
        result = ask(moment, window, self._trigger_context)
        is_last = is_event_time == self.times.is_event_time and moment == self.times.last_moment(window)
        self._obey(result, key, window, place, home, is_last)
        if is_last:
            self._clear(window, place, home)

    # --- what the trigger says ------------------------------------------------------------------------------------

    def _obey(self, result: Any, key: Any, window: Any, place: Place, home: Place, is_last: bool) -> None:
        """Fire or purge a window. `is_last`: it is cleared right after."""
        fires, purges = result.is_fire(), result.is_purge()
        if not (fires or purges):
            return
        scope = self._store.places
        scope.at = home
        if fires:
            self.firings.fire(key, window, place, self.contents, stays=not (is_last or purges))
        if purges:
            scope.at = home
            self.contents.clear()
        scope.at = place

    def _clear(self, window: Any, place: Place, home: Place) -> None:
        """Forget all there is of a window."""
        scope = self._store.places
        scope.at = home
        self.contents.clear()
        scope.at = place
        self._trigger.clear(window, self._trigger_context)
        self._operation.function.clear(window, self.firings.context)
        self.firings.close(window)
        if self.merged is not None:
            self.merged.retire(place[1])
