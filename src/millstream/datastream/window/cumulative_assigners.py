"""Cumulative windows: the result so far of a day, an hour, a minute, step by step.

Windows of one start grow by a step up to a maximum: `[start, start + step)`, `[start, start + 2 step)` … A record is in
all of them that reach beyond it. PyFlink has them in SQL only (`CUMULATE`).
"""

from __future__ import annotations

from typing import Any, TypeVar

from millstream.common.time import DurationLike
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.window.assigners import (
    _checked_offset,
    _ClockAssigner,
    _EventTimeAssigner,
    _FixedWindows,
    _ms,
)
from millstream.datastream.window.windows import TimeWindow
from millstream.graph.window_traits import as_described
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["CumulativeEventTimeWindows", "CumulativeProcessingTimeWindows"]

T = TypeVar("T")


class _CumulativeWindows(_FixedWindows[T]):
    """Windows of one start that grow by `step` up to `max_size`."""

    def __init__(self, max_size: int, step: int, offset: int = 0) -> None:
        name = type(self).__name__
        self._max_size = checked_count(f"{name}, max_size", max_size)
        self._step = checked_count(f"{name}, step", step)
        if max_size % step:
            raise refuse(
                f"{name}: the maximum size of {max_size} ms is no multiple of the step of {step} ms. Make it one"
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
    """Growing windows by event time.

    >>> CumulativeEventTimeWindows(30, 10).assign_windows("x", 14, None)
    [TimeWindow(start=0, end=20), TimeWindow(start=0, end=30)]
    """

    @staticmethod
    def of(
        max_size: DurationLike, step: DurationLike, offset: DurationLike | None = None
    ) -> CumulativeEventTimeWindows[Any]:
        """From durations; `max_size` is a multiple of `step`."""
        return CumulativeEventTimeWindows(_ms(max_size), _ms(step), _ms(offset))


@as_described
class CumulativeProcessingTimeWindows(_ClockAssigner[T], _CumulativeWindows[T]):
    """Growing windows by the clock."""

    @staticmethod
    def of(
        max_size: DurationLike, step: DurationLike, offset: DurationLike | None = None
    ) -> CumulativeProcessingTimeWindows[Any]:
        """From durations; `max_size` is a multiple of `step`."""
        return CumulativeProcessingTimeWindows(_ms(max_size), _ms(step), _ms(offset))
