"""Count windows and global windows, which do not depend on time, and triggers that do not depend on the clock: by
count, by distance, never, and a wrapper that purges.

An assigner of count windows is pure: the windows of a record depend only on a count in state and the assigner's
settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.common.serializer import TypeSerializer
from millstream.common.typeinfo import TypeInformation, Types
from millstream.datastream.functions.function import ReduceFunction
from millstream.datastream.state import ReducingState, ReducingStateDescriptor, ValueState, ValueStateDescriptor
from millstream.datastream.streams.argument_checks import checked_count
from millstream.datastream.window.assigners import WindowAssigner
from millstream.datastream.window.evictors import checked_delta
from millstream.datastream.window.triggers import Trigger, TriggerResult
from millstream.datastream.window.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    Window,
)
from millstream.graph.window_traits import EndlessAssigner, TimedTrigger, as_described

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "DeltaTrigger",
    "GlobalWindows",
    "NeverTrigger",
    "PurgingTrigger",
]

T = TypeVar("T")


class _Sum(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


@as_described
class PurgingTrigger(Trigger[T, Window], TimedTrigger):
    """Purges a window's contents whenever the nested trigger fires."""

    def __init__(self, nested_trigger: Trigger[T, Any]) -> None:
        self.nested_trigger = nested_trigger

    @property
    def wraps(self) -> Trigger[T, Any]:
        return self.nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[T, Any]) -> PurgingTrigger[T]:
        """Wraps another trigger."""
        return PurgingTrigger(nested_trigger)

    @staticmethod
    def _purging(result: TriggerResult) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result

    def on_element(self, element: T, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)


class CountTrigger(Trigger[T, CountWindow]):
    """Fires when a window has received a number of records, and restarts the count."""

    def __init__(self, window_size: int) -> None:
        self._window_size = checked_count("CountTrigger", window_size)
        self._count_state_descriptor = ReducingStateDescriptor("count", _Sum(), Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any]:
        """Fires after `window_size` records."""
        return CountTrigger(window_size)

    def on_element(self, element: T, timestamp: int, window: CountWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        count = cast("ReducingState[int]", ctx.get_partitioned_state(self._count_state_descriptor))
        count.add(1)
        if (count.get() or 0) < self._window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: CountWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: CountWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: CountWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count_state_descriptor)

    def clear(self, window: CountWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._count_state_descriptor).clear()


class DeltaTrigger(Trigger[T, Window]):
    """Fires when a record's distance from the record of the last firing exceeds a threshold (beyond PyFlink).

    The distance is `delta_function(last, record)`. The first record of a window is only stored. This state cannot be
    merged, so merging windows reject the trigger.
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[T, T], float], type_info: TypeInformation | None = None
    ) -> None:
        self._threshold = threshold
        self._delta = checked_delta("DeltaTrigger", delta_function)
        self._last_descriptor = ValueStateDescriptor("last-element", type_info or Types.PICKLED_BYTE_ARRAY())

    @staticmethod
    def of(
        threshold: float, delta_function: Callable[[Any, Any], float], type_info: TypeInformation | None = None
    ) -> DeltaTrigger[Any]:
        """Creates the trigger from a threshold and a distance function; `type_info` is the records' type, if
        declared."""
        return DeltaTrigger(threshold, delta_function, type_info)

    def on_element(self, element: T, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        last = cast("ValueState[T]", ctx.get_partitioned_state(self._last_descriptor))
        before = last.value()
        if before is not None and self._delta(before, element) <= self._threshold:
            return TriggerResult.CONTINUE
        last.update(element)
        return TriggerResult.CONTINUE if before is None else TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        """Not supported: `can_merge` is False."""

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last_descriptor).clear()


@as_described
class NeverTrigger(Trigger[T, GlobalWindow], TimedTrigger):
    """Never fires: global windows need a trigger set by the program."""

    def on_element(
        self, element: T, timestamp: int, window: GlobalWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: GlobalWindow, ctx: Trigger.OnMergeContext) -> None:
        """Does nothing: the trigger is stateless."""

    def clear(self, window: GlobalWindow, ctx: Trigger.TriggerContext) -> None:
        """Does nothing: the trigger is stateless."""


class _CountedWindows(WindowAssigner[T, CountWindow], EndlessAssigner):
    """Base of both assigners of count windows, which use the sequence numbers of a key's records."""

    _window_size: int
    _count_descriptor: ValueStateDescriptor

    def _next_number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """The sequence number of this record among those of its key, from 0."""
        counter: ValueState[Any] = context.get_runtime_context().get_state(self._count_descriptor)
        number: int = counter.value() or 0
        counter.update(number + 1)
        return number

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, CountWindow]:
        return CountTrigger.of(self._window_size)

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_CountedWindows[T]):
    """Assigns a window per `window_size` records of a key."""

    def __init__(self, window_size: int) -> None:
        self._window_size = checked_count("CountTumblingWindowAssigner", window_size)
        self._count_descriptor = ValueStateDescriptor("assigner-count", Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner[Any]:
        """Windows of `window_size` records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        count = self._next_number(context)
        return [CountWindow(count // self._window_size)]


class CountSlidingWindowAssigner(_CountedWindows[T]):
    """A window of `window_size` records starts every `window_slide` records of a key."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        self._window_size = checked_count("CountSlidingWindowAssigner, window_size", window_size)
        self._window_slide = checked_count("CountSlidingWindowAssigner, window_slide", window_slide)
        self._count_descriptor = ValueStateDescriptor("slide-count-assigner", Types.LONG())

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner[Any]:
        """Windows of `window_size` records, every `window_slide` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        count = self._next_number(context)
        last = count // self._window_slide
        first = max(0, -(-(count - self._window_size + 1) // self._window_slide))
        return [CountWindow(id) for id in range(last, first - 1, -1)]


class GlobalWindows(WindowAssigner[T, GlobalWindow], EndlessAssigner):
    """Assigns all records to one window, which fires only with a trigger set by the program."""

    @staticmethod
    def create() -> GlobalWindows[Any]:
        """Creates the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, GlobalWindow]:
        return NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False
