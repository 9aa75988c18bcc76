"""Windows composed of panes: tumbling, sliding and cumulative windows, as plain arithmetic.

A **pane** is the longest stretch of time that no window boundary divides: the window itself for tumbling windows, the
greatest common divisor of size and slide for overlapping ones, the step for cumulative ones. A record is in exactly one
pane, and every window is a run of panes, so a record is written once regardless of its number of windows.

Windows are numbered by end, and by start within a cycle of equal ends. The windows of a pane are a range of numbers,
and so are the windows that end within a stretch of time:

    fired_through(t)                            the last window whose last millisecond is at or before t
    first_window(pane) … last_window(pane)      the windows that contain a pane (first > last: it lies in a gap)

Both bounds are monotonic in time, as firing in bulk requires.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PaneWindows"]

Int64s = npt.NDArray[np.int64]

_FAR = 1 << 62
_TIME_MIN = -(2**63)


@dataclass(frozen=True)
class PaneWindows:
    """Windows of `size_ms` that start every `slide_ms`. With `step_ms` they are cumulative: one window per start and
    multiple of the step up to the size.

    >>> sliding = PaneWindows(size_ms=60, slide_ms=20)
    >>> sliding.pane_ms, [sliding.bounds(n) for n in range(sliding.first_window(40), sliding.last_window(40) + 1)]
    (20, [(0, 60), (20, 80), (40, 100)])
    >>> growing = PaneWindows(size_ms=30, slide_ms=30, step_ms=10)
    >>> [growing.bounds(n) for n in range(growing.first_window(10), growing.last_window(10) + 1)]
    [(0, 20), (0, 30)]
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    step_ms: int | None = None
    is_event_time: bool = True
    lateness_ms: int = 0

    @property
    def lengths_ms(self) -> tuple[int, int, int, int | None]:
        """Size, slide, offset and step, which identify the windows regardless of the time domain."""
        return self.size_ms, self.slide_ms, self.offset_ms, self.step_ms

    @property
    def pane_ms(self) -> int:
        """The length of a pane."""
        return self.step_ms or math.gcd(self.size_ms, self.slide_ms)

    @property
    def windows_per_start(self) -> int:
        """The number of windows with the same start."""
        return 1 if self.step_ms is None else self.size_ms // self.step_ms

    @property
    def windows_per_time(self) -> int:
        """The maximum number of windows that contain an instant."""
        return self.windows_per_start if self.step_ms is not None else -(-self.size_ms // self.slide_ms)

    @property
    def is_tumbling(self) -> bool:
        """Whether every pane is a window."""
        return self.pane_ms == self.size_ms == self.slide_ms

    @property
    def has_gaps(self) -> bool:
        """Whether there is time between windows."""
        return self.slide_ms > self.size_ms

    def pane_of(self, times: Any) -> Any:
        """The start of the pane that contains each time."""
        if np.ndim(times) and len(times):
            first, last = int(times.min()), int(times.max())
            start = first - (first - self.offset_ms) % self.pane_ms
            # Times are roughly in order: most batches are within one pane.
            if start >= _TIME_MIN and last < start + self.pane_ms:
                return np.full(len(times), start, dtype=np.int64)
        return times - (times - self.offset_ms) % self.pane_ms

    def first_window(self, panes: Any) -> Any:
        """The first window that contains each pane."""
        if self.step_ms is None:
            return -((self.offset_ms + self.size_ms - self.pane_ms - panes) // self.slide_ms)
        since = panes - self.offset_ms
        return since // self.size_ms * self.windows_per_start + since % self.size_ms // self.step_ms

    def last_window(self, panes: Any) -> Any:
        """The last window that contains each pane."""
        cycles = (panes - self.offset_ms) // self.slide_ms
        return (cycles + 1) * self.windows_per_start - 1

    def starts(self, windows: Any) -> Any:
        """The start of each window."""
        return self.offset_ms + windows // self.windows_per_start * self.slide_ms

    def ends(self, windows: Any) -> Any:
        """The exclusive end of each window."""
        if self.step_ms is None:
            return self.starts(windows) + self.size_ms
        return self.starts(windows) + (windows % self.windows_per_start + 1) * self.step_ms

    def start_of(self, ends: Any) -> Any:
        """The start of the windows with these ends.

        >>> PaneWindows(size_ms=30, slide_ms=30, step_ms=10).start_of(np.array([10, 30, 40])).tolist()
        [0, 0, 30]
        """
        if self.step_ms is None:
            return ends - self.size_ms
        return ends - 1 - (ends - 1 - self.offset_ms) % self.size_ms

    def attached(self) -> PaneWindows:
        """Tumbling windows with the same ends: for records that are window results, whose timestamp is the window's
        last millisecond.

        >>> PaneWindows(size_ms=60, slide_ms=20, offset_ms=5).attached()
        PaneWindows(size_ms=20, slide_ms=20, offset_ms=5, step_ms=None, is_event_time=True, lateness_ms=0)
        """
        length_ms = self.step_ms or self.slide_ms
        offset_ms = (self.offset_ms + (0 if self.step_ms else self.size_ms)) % length_ms
        return PaneWindows(length_ms, length_ms, offset_ms, None, self.is_event_time, self.lateness_ms)

    def bounds(self, window: int) -> tuple[int, int]:
        """Start and end of one window."""
        return self.starts(window), self.ends(window)

    def fired_through(self, time_ms: int) -> int:
        """The last window that has ended after this millisecond. Numbers stay within ± 2⁶²."""
        passed = time_ms + 1 - self.offset_ms
        if self.step_ms is None:
            number = (passed - self.size_ms) // self.slide_ms
        else:
            cycle, within = divmod(passed, self.size_ms)
            number = cycle * self.windows_per_start + within // self.step_ms - 1
        return max(-_FAR, min(_FAR, number))

    def dead_through(self, time_ms: int) -> int:
        """The last window that late records can no longer change."""
        return self.fired_through(time_ms - self.lateness_ms) if self.is_event_time else self.fired_through(time_ms)

    def expiry_ms(self, panes: Int64s) -> Int64s:
        """The time at which each pane expires: its last window has ended, and the allowed lateness has passed."""
        lateness_ms = self.lateness_ms if self.is_event_time else 0
        expiry: Int64s = self.ends(self.last_window(panes)) - 1 + lateness_ms
        return expiry

    def describe(self) -> str:
        """The form shown in plans: `60000 ms every 1000 ms`."""
        if self.step_ms is not None:
            return f"windows growing by {self.step_ms} ms up to {self.size_ms} ms"
        if self.size_ms == self.slide_ms:
            return f"windows of {self.size_ms} ms"
        return f"windows of {self.size_ms} ms every {self.slide_ms} ms, in panes of {self.pane_ms} ms"
