"""Assigners of tumbling, sliding and cumulative time windows.

An assigner is pure: the windows of a record depend on its timestamp (or the clock) and the assigner's settings.
`session_assigners` defines merging windows, `counting` count windows and global windows.

Cumulative windows produce the partial results of a day, an hour or a minute at regular steps. Windows with the same
start grow by a step up to a maximum: `[start, start + step)`, `[start, start + 2 step)` … A record belongs to all of
these windows that end after it. PyFlink has them only in SQL (`CUMULATE`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.common.serializer import TypeSerializer
from millstream.common.time import DurationLike, duration_ms
from millstream.datastream.functions.runtime_context import RuntimeContext
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.window.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from millstream.datastream.window.windows import (
    TimeWindow,
    TimeWindowSerializer,
    Window,
)
from millstream.graph.window_traits import FixedTimeAssigner, MergingAssigner, as_described
from millstream.state.windows.pane_windows import PaneWindows

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "CumulativeEventTimeWindows",
    "CumulativeProcessingTimeWindows",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2")

_CACHED_STARTS_MAX = 1_024

# Flink's value for a record without a timestamp.
_NO_TIMESTAMP = -(2**63)


class WindowAssigner(ABC, Generic[T, W]):
    """Determines the windows of a record."""

    class WindowAssignerContext(ABC):
        """The context available to an assigner."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The epoch's processing time, in ms."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """The task, with the state of the current key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """The windows of `element`."""

    @abstractmethod
    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, W]:
        """The trigger used unless the program sets one."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """The serializer of the assigner's windows."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows use event time, as opposed to processing time or a count."""


class MergingWindowAssigner(WindowAssigner[T, W], MergingAssigner):
    """An assigner whose windows can merge."""

    class MergeCallback(ABC, Generic[W2]):
        """Receives the windows to merge."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Merges `to_be_merged` into `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Calls `callback` for each group of `windows` to merge."""


def _checked_offset(name: str, offset_ms: int, period_ms: int) -> int:
    if abs(offset_ms) >= period_ms:
        raise refuse(f"{name}: the offset is {offset_ms} ms, expected less than the window's period of {period_ms} ms")
    return offset_ms


def _starts(timestamp: int, size_ms: int, slide_ms: int, offset_ms: int) -> range:
    """The starts of all windows that contain `timestamp`, the latest first."""
    latest = TimeWindow.get_window_start_with_offset(timestamp, offset_ms, slide_ms)
    return range(latest, timestamp - size_ms, -slide_ms)


def _timestamp_of(name: str, timestamp: int | None) -> int:
    if timestamp is None or timestamp <= _NO_TIMESTAMP:
        raise refuse(
            f"{name}: a record has no timestamp. Call assign_timestamps_and_watermarks() with an assigner first"
        )
    return timestamp


class _ClockAssigner(WindowAssigner[T, TimeWindow]):
    """Windows in processing time."""

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False

    def _time(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return context.get_current_processing_time()


class _EventTimeAssigner(WindowAssigner[T, TimeWindow]):
    """Windows in event time."""

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

    def _time(self, timestamp: int, context: WindowAssigner.WindowAssignerContext) -> int:
        return _timestamp_of(type(self).__name__, timestamp)


class _FixedWindows(WindowAssigner[T, TimeWindow], FixedTimeAssigner):
    """Windows that depend only on a record's time; a `_ClockAssigner` or `_EventTimeAssigner` defines that time."""

    window_type = TimeWindow
    _time: Callable[[int, WindowAssigner.WindowAssignerContext], int]

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows(self._time(timestamp, context))

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    @abstractmethod
    def _windows(self, time: int) -> list[TimeWindow]:
        """All windows that contain this time."""


class _TimeWindows(_FixedWindows[T]):
    """Windows of a fixed size that start every `slide` ms."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        name = type(self).__name__
        self._size = checked_count(f"{name}, size", size)
        self._slide = checked_count(f"{name}, slide", slide)
        self._offset = _checked_offset(name, offset, slide)
        self._windows_by_starts: dict[range, list[TimeWindow]] = {}  # most records have the windows of the previous one

    def _windows(self, time: int) -> list[TimeWindow]:
        starts = _starts(time, self._size, self._slide, self._offset)
        windows = self._windows_by_starts.get(starts)
        if windows is None:
            if len(self._windows_by_starts) >= _CACHED_STARTS_MAX:
                self._windows_by_starts.clear()
            windows = self._windows_by_starts[starts] = [TimeWindow(start, start + self._size) for start in starts]
        return list(windows)

    def panes(self, lateness_ms: int) -> PaneWindows:
        is_event_time = self.is_event_time()
        late_ms = lateness_ms if is_event_time else 0
        return PaneWindows(self._size, self._slide, self._offset, None, is_event_time, late_ms)


@as_described
class TumblingProcessingTimeWindows(_ClockAssigner[T], _TimeWindows[T]):
    """Tumbling windows in processing time."""

    def __init__(self, size: int, offset: int) -> None:
        super().__init__(size, size, offset)

    @staticmethod
    def of(size: DurationLike, offset: DurationLike | None = None) -> TumblingProcessingTimeWindows[Any]:
        """Creates the assigner from durations."""
        return TumblingProcessingTimeWindows(_ms(size), _ms(offset))


@as_described
class TumblingEventTimeWindows(_EventTimeAssigner[T], _TimeWindows[T]):
    """Tumbling windows in event time.

    >>> from millstream.common import Duration
    >>> TumblingEventTimeWindows.of(Duration.of_seconds(1)).assign_windows("x", 1500, None)
    [TimeWindow(start=1000, end=2000)]
    """

    def __init__(self, size: int, offset: int) -> None:
        super().__init__(size, size, offset)

    @staticmethod
    def of(size: DurationLike, offset: DurationLike | None = None) -> TumblingEventTimeWindows[Any]:
        """Creates the assigner from durations."""
        return TumblingEventTimeWindows(_ms(size), _ms(offset))


@as_described
class SlidingProcessingTimeWindows(_ClockAssigner[T], _TimeWindows[T]):
    """Sliding windows in processing time."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        super().__init__(size, slide, offset)

    @staticmethod
    def of(
        size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> SlidingProcessingTimeWindows[Any]:
        """Creates the assigner from durations."""
        _check_no_gaps("SlidingProcessingTimeWindows", _ms(size), _ms(slide))
        return SlidingProcessingTimeWindows(_ms(size), _ms(slide), _ms(offset))


@as_described
class SlidingEventTimeWindows(_EventTimeAssigner[T], _TimeWindows[T]):
    """Sliding windows in event time.

    >>> SlidingEventTimeWindows(10, 5, 0).assign_windows("x", 12, None)
    [TimeWindow(start=10, end=20), TimeWindow(start=5, end=15)]
    """

    def __init__(self, size: int, slide: int, offset: int) -> None:
        super().__init__(size, slide, offset)

    @staticmethod
    def of(size: DurationLike, slide: DurationLike, offset: DurationLike | None = None) -> SlidingEventTimeWindows[Any]:
        """Creates the assigner from durations."""
        _check_no_gaps("SlidingEventTimeWindows", _ms(size), _ms(slide))
        return SlidingEventTimeWindows(_ms(size), _ms(slide), _ms(offset))


def _check_no_gaps(name: str, size_ms: int, slide_ms: int) -> None:
    if slide_ms > size_ms > 0:
        raise refuse(
            f"{name}: the slide of {slide_ms} ms is larger than the size of {size_ms} ms: records between two windows "
            "would be lost. Slide by at most the size, or filter these records out and use tumbling windows"
        )


def _ms(length: DurationLike | None) -> int:
    return 0 if length is None else duration_ms(length)


class _CumulativeWindows(_FixedWindows[T]):
    """Windows with the same start that grow by `step` up to `max_size`."""

    def __init__(self, max_size: int, step: int, offset: int = 0) -> None:
        name = type(self).__name__
        self._max_size = checked_count(f"{name}, max_size", max_size)
        self._step = checked_count(f"{name}, step", step)
        if max_size % step:
            raise refuse(
                f"{name}: the maximum size of {max_size} ms is not a multiple of the step of {step} ms. Use a multiple"
            )
        self._offset = _checked_offset(name, offset, max_size)

    def _windows(self, time: int) -> list[TimeWindow]:
        start = TimeWindow.get_window_start_with_offset(time, self._offset, self._max_size)
        first = (time - start) // self._step + 1
        return [TimeWindow(start, start + n * self._step) for n in range(first, self._max_size // self._step + 1)]

    def panes(self, lateness_ms: int) -> PaneWindows:
        size_ms, is_event_time = self._max_size, self.is_event_time()
        late_ms = lateness_ms if is_event_time else 0
        return PaneWindows(size_ms, size_ms, self._offset, self._step, is_event_time, late_ms)


@as_described
class CumulativeEventTimeWindows(_EventTimeAssigner[T], _CumulativeWindows[T]):
    """Cumulative windows in event time.

    >>> CumulativeEventTimeWindows(30, 10).assign_windows("x", 14, None)
    [TimeWindow(start=0, end=20), TimeWindow(start=0, end=30)]
    """

    @staticmethod
    def of(
        max_size: DurationLike, step: DurationLike, offset: DurationLike | None = None
    ) -> CumulativeEventTimeWindows[Any]:
        """Creates the assigner from durations; `max_size` must be a multiple of `step`."""
        return CumulativeEventTimeWindows(_ms(max_size), _ms(step), _ms(offset))


@as_described
class CumulativeProcessingTimeWindows(_ClockAssigner[T], _CumulativeWindows[T]):
    """Cumulative windows in processing time."""

    @staticmethod
    def of(
        max_size: DurationLike, step: DurationLike, offset: DurationLike | None = None
    ) -> CumulativeProcessingTimeWindows[Any]:
        """Creates the assigner from durations; `max_size` must be a multiple of `step`."""
        return CumulativeProcessingTimeWindows(_ms(max_size), _ms(step), _ms(offset))
