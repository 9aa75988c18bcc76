"""Session windows: records less than a gap apart belong together.

Each record opens a window of the gap's length at its time; windows that overlap merge. The gap is fixed, or taken
from each record by an extractor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common.serializer import TypeSerializer
from millstream.common.time import DurationLike, as_duration
from millstream.datastream.argument_checks import checked_count, refuse
from millstream.datastream.window.assigners import MergingWindowAssigner, WindowAssigner, _timestamp_of
from millstream.datastream.window.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from millstream.datastream.window.windows import TimeWindow, TimeWindowSerializer

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]

T = TypeVar("T")


class SessionWindowTimeGapExtractor(ABC):
    """Takes the gap from a record."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """How long after `element` its session ends, in ms; above 0."""


class _Sessions(MergingWindowAssigner[T, TimeWindow]):
    """What all session windows share."""

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


class _ByClock(_Sessions[T]):
    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class _ByEventTime(_Sessions[T]):
    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


def _gap_of(extractor: SessionWindowTimeGapExtractor | Callable[[Any], int], element: Any) -> int:
    gap_ms = extractor.extract(element) if isinstance(extractor, SessionWindowTimeGapExtractor) else extractor(element)
    if not isinstance(gap_ms, int) or gap_ms <= 0:
        raise refuse(f"session window: the extractor gave the gap {gap_ms!r} for {element!r}, expected ms above 0")
    return gap_ms


class ProcessingTimeSessionWindows(_ByClock[T]):
    """Sessions by the clock, with a fixed gap."""

    def __init__(self, session_gap: int) -> None:
        self._session_gap = checked_count("ProcessingTimeSessionWindows", session_gap)

    @staticmethod
    def with_gap(size: DurationLike) -> ProcessingTimeSessionWindows[Any]:
        """From a duration."""
        return ProcessingTimeSessionWindows(as_duration(size).to_millis())

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows[Any]:
        """With a gap of each record's own."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + self._session_gap)]


class EventTimeSessionWindows(_ByEventTime[T]):
    """Sessions by event time, with a fixed gap.

    >>> EventTimeSessionWindows(10).assign_windows("x", 5, None)
    [TimeWindow(start=5, end=15)]
    """

    def __init__(self, session_gap: int) -> None:
        self._session_gap = checked_count("EventTimeSessionWindows", session_gap)

    @staticmethod
    def with_gap(size: DurationLike) -> EventTimeSessionWindows[Any]:
        """From a duration."""
        return EventTimeSessionWindows(as_duration(size).to_millis())

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows[Any]:
        """With a gap of each record's own."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = _timestamp_of("EventTimeSessionWindows", timestamp)
        return [TimeWindow(start, start + self._session_gap)]


class DynamicProcessingTimeSessionWindows(_ByClock[T]):
    """Sessions by the clock, each record with a gap of its own."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = session_window_time_gap_extractor

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows[Any]:
        """From an extractor."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + _gap_of(self._extractor, element))]


class DynamicEventTimeSessionWindows(_ByEventTime[T]):
    """Sessions by event time, each record with a gap of its own."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = session_window_time_gap_extractor

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows[Any]:
        """From an extractor."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = _timestamp_of("DynamicEventTimeSessionWindows", timestamp)
        return [TimeWindow(start, start + _gap_of(self._extractor, element))]
