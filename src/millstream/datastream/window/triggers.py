"""Triggers decide when a window's result is emitted; their state is stored per window.

A trigger is pure logic over its context, through which it reads times, sets timers and uses partitioned state. The
object itself is stateless and serves all windows of an operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from millstream.common.time import DurationLike, duration_ms
from millstream.common.typeinfo import Types
from millstream.datastream.functions.function import ReduceFunction
from millstream.datastream.state import ReducingState, ReducingStateDescriptor, State, StateDescriptor
from millstream.datastream.streams.argument_checks import checked_count
from millstream.datastream.window.windows import TimeWindow, Window
from millstream.graph.window_traits import FiringRule, TimedTrigger, as_described

if TYPE_CHECKING:
    from millstream.metrics import MetricGroup

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "EventTimeTrigger",
    "Min",
    "ProcessingTimeTrigger",
    "Trigger",
    "TriggerResult",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """The action for a window: emit its result, purge its contents, both, or neither.

    >>> TriggerResult.FIRE_AND_PURGE.is_fire(), TriggerResult.FIRE.is_purge()
    (True, False)
    """

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Whether the result is emitted."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether the contents are purged."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires."""

    class TriggerContext(ABC):
        """The context available to a trigger: times, timers of its window, and state of its key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The epoch's processing time, in ms."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The group for the trigger's metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The operator's watermark, in ms."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Requests a call of `on_processing_time` when processing time reaches `time`."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Requests a call of `on_event_time` when the watermark reaches `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Deletes that timer."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Deletes that timer."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
            """State of this key and window."""

    class OnMergeContext(TriggerContext):
        """The context available to a trigger when windows merge."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merges the states of the merged windows."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when a record is added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when a processing-time timer is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when an event-time timer is due."""

    def can_merge(self) -> bool:
        """Whether the trigger supports merging windows."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Called when several windows were merged into `window`."""

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """Called when the window is removed: deletes timers and state."""


@as_described
class EventTimeTrigger(Trigger[T, TimeWindow], TimedTrigger):
    """Fires when the watermark passes the window's end, and again for each late record."""

    fires = FiringRule.AT_ITS_END
    follows_event_time = True

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        # If the merged window's end has already passed, it fires with the record that caused the merge.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> EventTimeTrigger[Any]:
        """Creates the trigger."""
        return EventTimeTrigger()


@as_described
class ProcessingTimeTrigger(Trigger[T, TimeWindow], TimedTrigger):
    """Fires when processing time passes the window's end."""

    fires = FiringRule.AT_ITS_END

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> ProcessingTimeTrigger[Any]:
        """Creates the trigger."""
        return ProcessingTimeTrigger()


class Min(ReduceFunction):
    """Reduces two firing times to the smaller one."""

    def reduce(self, value1: int, value2: int) -> int:
        return min(value1, value2)


def _reducing(ctx: Trigger.TriggerContext, descriptor: ReducingStateDescriptor) -> ReducingState[int]:
    return cast("ReducingState[int]", ctx.get_partitioned_state(descriptor))


class _Continuous(Trigger[T, TimeWindow], TimedTrigger):
    """Fires periodically. The next firing time is stored in state; the subclasses differ only in their clock."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.state_desc = ReducingStateDescriptor("fire-time", Min(), Types.LONG())

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        raise NotImplementedError

    def register_next_fire_timestamp(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext, fire_timestamp_state: ReducingState[int]
    ) -> None:
        """Stores the next firing time, at most the window's end, and sets a timer for it."""
        next_fire = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire)
        self._register(next_fire, ctx)

    def _first_fire(self, now: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        state = _reducing(ctx, self.state_desc)
        if state.get() is None:
            self.register_next_fire_timestamp(now - now % self.interval, window, ctx, state)

    def _due(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = _reducing(ctx, self.state_desc)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        # Set no timer at the window's end: a timer for the current time would be due repeatedly.
        if time < window.max_timestamp():
            self.register_next_fire_timestamp(time, window, ctx, state)
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.state_desc)
        next_fire = _reducing(ctx, self.state_desc).get()
        if next_fire is not None:
            self._register(next_fire, ctx)


@as_described
class ContinuousEventTimeTrigger(_Continuous[T]):
    """Fires every `interval` ms of event time, and at the window's end."""

    def __init__(self, interval: int) -> None:
        super().__init__(checked_count("ContinuousEventTimeTrigger", interval))

    @staticmethod
    def of(interval: DurationLike) -> ContinuousEventTimeTrigger[Any]:
        """Creates the trigger from a duration."""
        return ContinuousEventTimeTrigger(duration_ms(interval))

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._first_fire(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else self._due(time, window, ctx)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        state = _reducing(ctx, self.state_desc)
        pending = state.get()
        if pending is not None:
            ctx.delete_event_time_timer(pending)
            state.clear()


@as_described
class ContinuousProcessingTimeTrigger(_Continuous[T]):
    """Fires every `interval` ms of processing time."""

    def __init__(self, interval: int) -> None:
        super().__init__(checked_count("ContinuousProcessingTimeTrigger", interval))

    @staticmethod
    def of(interval: DurationLike) -> ContinuousProcessingTimeTrigger[Any]:
        """Creates the trigger from a duration."""
        return ContinuousProcessingTimeTrigger(duration_ms(interval))

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        self._first_fire(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._due(time, window, ctx)

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        state = _reducing(ctx, self.state_desc)
        pending = state.get()
        if pending is not None:
            ctx.delete_processing_time_timer(pending)
            state.clear()
