"""Contexts that operators pass to assigners, triggers, evictors and window functions.

There is one object of each per operator; it refers to the operator's current key, window and time. Contexts have the
methods of PyFlink's context classes (Flink's for evictors).
"""

from __future__ import annotations

from typing import Any

from millstream.errors import ProgramError
from millstream.metrics import MetricGroup
from millstream.runtime.keyed.timers import timer_time
from millstream.runtime.operators.user_code import TaskContext, TaskTimerService
from millstream.runtime.windows.window_store import PartyStates, WindowStore
from millstream.state.windows.places import Place

__all__ = ["AssignerContext", "EvictorContext", "FunctionContext", "TriggerContext"]


class AssignerContext:
    """For `WindowAssigner.assign_windows`."""

    def __init__(self, time: TaskTimerService, context: TaskContext) -> None:
        self._time = time
        self._context = context

    def get_current_processing_time(self) -> int:
        return self._time.now_ms

    def get_runtime_context(self) -> TaskContext:
        return self._context


class EvictorContext:
    """For `Evictor.evict_before` and `evict_after`."""

    def __init__(self, time: TaskTimerService, metrics: MetricGroup) -> None:
        self._time = time
        self._metrics = metrics

    def get_current_processing_time(self) -> int:
        return self._time.now_ms

    def get_current_watermark(self) -> int:
        return self._time.watermark

    def get_metric_group(self) -> MetricGroup:
        return self._metrics


class TriggerContext(EvictorContext):
    """For all methods of a `Trigger`: timers and state of the store's current place."""

    def __init__(self, time: TaskTimerService, metrics: MetricGroup, store: WindowStore) -> None:
        super().__init__(time, metrics)
        self._store = store
        self._states = PartyStates(store, "trigger ", of_places=True)
        self.merged: list[Place] = []  # in on_merge: the places merged into the current one

    def register_processing_time_timer(self, time: int) -> None:
        self._store.processing_timers.register(timer_time(time), self._store.places.at)

    def register_event_time_timer(self, time: int) -> None:
        self._store.event_timers.register(timer_time(time), self._store.places.at)

    def delete_processing_time_timer(self, time: int) -> None:
        self._store.processing_timers.delete(timer_time(time), self._store.places.at)

    def delete_event_time_timer(self, time: int) -> None:
        self._store.event_timers.delete(timer_time(time), self._store.places.at)

    def get_partitioned_state(self, state_descriptor: Any) -> Any:
        return self._states.state(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: Any) -> None:
        if self.merged:
            self._states.state(state_descriptor).merge(self._store.places.at, self.merged)


class FunctionContext:
    """For window functions: PyFlink's `InternalWindowContext`, to which their own contexts delegate."""

    def __init__(self, time: TaskTimerService, store: WindowStore, of_key: PartyStates, merges: bool) -> None:
        self._time = time
        self._of_key = of_key
        self._of_window = None if merges else PartyStates(store, "window ", of_places=True)

    def current_processing_time(self) -> int:
        return self._time.now_ms

    def current_watermark(self) -> int:
        return self._time.watermark

    def window_state(self) -> PartyStates:
        if self._of_window is None:
            raise ProgramError(
                "window_state: merging windows, such as sessions, have no state of their own: it could not be merged. "
                "Use global_state()"
            )
        return self._of_window

    def global_state(self) -> PartyStates:
        return self._of_key
