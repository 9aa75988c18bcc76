"""Session windows: records less than a gap apart share a window.

Each record opens a window of the gap's length at its time; overlapping windows merge. The gap is fixed, or extracted
from each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from millstream.common.serializer import TypeSerializer
from millstream.common.time import LENGTH_MAX_MS, DurationLike, duration_ms
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.streams.function_calls import check_takes
from millstream.datastream.window.assigners import (
    MergingWindowAssigner,
    WindowAssigner,
    _ClockAssigner,
    _EventTimeAssigner,
)
from millstream.datastream.window.windows import TimeWindow, TimeWindowSerializer

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]

T = TypeVar("T")


class SessionWindowTimeGapExtractor(ABC):
    """Extracts the gap from a record."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap in ms after `element`; must be positive."""


class _Sessions(MergingWindowAssigner[T, TimeWindow]):
    """Base of all session windows: the window of a single record has the length of its gap."""

    _time: Callable[[int, WindowAssigner.WindowAssignerContext], int]

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = self._time(timestamp, context)
        return [TimeWindow(start, start + self._gap_ms(element))]

    @abstractmethod
    def _gap_ms(self, element: T) -> int:
        """The time after `element` at which its session ends."""

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


Extractor = SessionWindowTimeGapExtractor | Callable[[Any], int]


def _checked_extractor(extractor: Any) -> Extractor:
    if isinstance(extractor, type) or not (isinstance(extractor, SessionWindowTimeGapExtractor) or callable(extractor)):
        raise refuse(
            f"with_dynamic_gap: found {extractor!r}, expected a SessionWindowTimeGapExtractor, or a function of a "
            "record that returns the gap in ms"
        )
    check_takes("with_dynamic_gap", getattr(extractor, "extract", extractor), "element")
    return extractor  # type: ignore[no-any-return]


def _gap_of(extractor: Extractor, element: Any) -> int:
    gap_ms = extractor.extract(element) if isinstance(extractor, SessionWindowTimeGapExtractor) else extractor(element)
    if not isinstance(gap_ms, int) or not 0 < gap_ms <= LENGTH_MAX_MS:
        raise refuse(
            f"session window: the extractor returned the gap {gap_ms!r} for {element!r}, expected 1 to "
            f"{LENGTH_MAX_MS} ms"
        )
    return gap_ms


class ProcessingTimeSessionWindows(_ClockAssigner[T], _Sessions[T]):
    """Sessions in processing time, with a fixed gap."""

    def __init__(self, session_gap: int) -> None:
        self._session_gap = checked_count("ProcessingTimeSessionWindows", session_gap)

    @staticmethod
    def with_gap(size: DurationLike) -> ProcessingTimeSessionWindows[Any]:
        """Creates the assigner from a fixed gap."""
        return ProcessingTimeSessionWindows(duration_ms(size))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows[Any]:
        """Creates an assigner with a gap extracted from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def _gap_ms(self, element: T) -> int:
        return self._session_gap


class EventTimeSessionWindows(_EventTimeAssigner[T], _Sessions[T]):
    """Sessions in event time, with a fixed gap.

    >>> EventTimeSessionWindows(10).assign_windows("x", 5, None)
    [TimeWindow(start=5, end=15)]
    """

    def __init__(self, session_gap: int) -> None:
        self._session_gap = checked_count("EventTimeSessionWindows", session_gap)

    @staticmethod
    def with_gap(size: DurationLike) -> EventTimeSessionWindows[Any]:
        """Creates the assigner from a fixed gap."""
        return EventTimeSessionWindows(duration_ms(size))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows[Any]:
        """Creates an assigner with a gap extracted from each record."""
        return DynamicEventTimeSessionWindows(extractor)

    def _gap_ms(self, element: T) -> int:
        return self._session_gap


class DynamicProcessingTimeSessionWindows(_ClockAssigner[T], _Sessions[T]):
    """Sessions in processing time, with a gap extracted from each record."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = _checked_extractor(session_window_time_gap_extractor)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows[Any]:
        """Creates the assigner from a gap extractor."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def _gap_ms(self, element: T) -> int:
        return _gap_of(self._extractor, element)


class DynamicEventTimeSessionWindows(_EventTimeAssigner[T], _Sessions[T]):
    """Sessions in event time, with a gap extracted from each record."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = _checked_extractor(session_window_time_gap_extractor)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows[Any]:
        """Creates the assigner from a gap extractor."""
        return DynamicEventTimeSessionWindows(extractor)

    def _gap_ms(self, element: T) -> int:
        return _gap_of(self._extractor, element)
