"""What windows give out, and when they are over.

A window that fires hands its contents to the window function; what that gives carries the last moment before the
window's end as its timestamp. In BATCH (`want_final_only`) a window that has an end keeps back what it fired last, as
state of its place, and gives it out when it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import Types
from millstream.errors import ProgramError
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.keyed.state_store import OwnState
from millstream.runtime.keyed.states import ValueHandle
from millstream.runtime.operators.context import TaskTimerService
from millstream.runtime.windows.contents import Contents
from millstream.runtime.windows.contexts import FunctionContext
from millstream.runtime.windows.window_store import WindowStore
from millstream.state.windows.places import Place

__all__ = ["WindowFirings", "WindowTimes"]

_FINAL_RESULTS = OwnState("window results", Types.PICKLED_BYTE_ARRAY())


class WindowTimes:
    """When windows are forgotten. The last moment of a window of event time is its end plus the allowed lateness; of
    any other, its end. A window without an end is never forgotten: its trigger has to purge it."""

    def __init__(self, is_event_time: bool, lateness_ms: int, service: TaskTimerService) -> None:
        self.is_event_time = is_event_time
        self.lateness_ms = lateness_ms if is_event_time else 0
        self.service = service

    def last_moment(self, window: Any) -> int:
        """When a window is forgotten."""
        last: int = window.max_timestamp() + self.lateness_ms
        return min(last, MAX_WATERMARK)

    def is_over(self, window: Any) -> bool:
        """Whether a window takes nothing more."""
        return self.is_event_time and self.last_moment(window) <= self.service.watermark

    def is_late(self, timestamp: int) -> bool:
        """Whether a record that found no window came too late."""
        return self.is_event_time and timestamp + self.lateness_ms <= self.service.watermark

    def check_not_over(self, window: Any) -> None:
        """Refuse to merge windows into one that takes nothing more."""
        now = self.service.watermark if self.is_event_time else self.service.now_ms
        if self.last_moment(window) <= now:
            raise ProgramError(
                f"windows were merged into {window!r}, whose last moment is {self.last_moment(window)} ms, and time is "
                f"at {now} ms already: merge_windows() of the assigner must not give a window that is over"
            )


class WindowFirings:
    """The results of all windows of one operator in one subtask. `results` and `stamps` gather them."""

    def __init__(self, store: WindowStore, function: Callable[..., Any], context: FunctionContext) -> None:
        self._store = store
        self._function = function
        self.context = context
        self._final: ValueHandle | None = None
        self.begin()

    def begin(self) -> None:
        """An epoch or attempt begins: nothing was given out yet."""
        self.results: list[Any] = []
        self.stamps: list[int] = []

    @property
    def is_final_only(self) -> bool:
        """Whether only final results are wanted."""
        return self._final is not None

    def want_final_only(self) -> None:
        """The job is BATCH: early results are kept back."""
        self._final = self._store.state_of_place(_FINAL_RESULTS.name, ValueHandle, _FINAL_RESULTS)

    def fire(self, key: Any, window: Any, place: Place, contents: Contents, stays: bool) -> None:
        """Hand the contents, if there are any, to the window function; `stays`: the window keeps them."""
        start, end, is_called = len(self.results), window.max_timestamp(), False

        def call(value: Any) -> None:
            nonlocal is_called
            is_called = True
            results = self._function(key, window, self.context, value)
            if results is not None:
                self.results.extend(results)

        contents.fire(window, call, stays)
        self.stamps.extend([end] * (len(self.results) - start))
        if is_called and self._final is not None and end < MAX_WATERMARK:
            self._store.places.at = place
            self._final.update(self.results[start:])
            del self.results[start:], self.stamps[start:]

    def merge(self, parts: list[Place], result: Place) -> None:
        """What merged windows would give out, the merged one gives out, unless it fires itself."""
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
        """The window at hand is forgotten: give out what it kept back."""
        if self._final is not None:
            results = self._final.value() or ()
            self._final.clear()
            self.results.extend(results)
            self.stamps.extend([window.max_timestamp()] * len(results))
