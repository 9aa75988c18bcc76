"""Processing time between epochs: the machine's clock, without steps back.

State with a time-to-live and timers use processing time. If it went back, because a clock is corrected or a job
continues on a machine with a slower clock, expired rows would reappear: they would be retracted and inserted a second
time. So processing time is held until the clock has caught up with that of the last epoch, which the manifest records.
If a clock is more than a day behind, the previous one must have been wrong, and waiting would stop every timer for that
long. In this case the new clock is used, and the log reports the consequences.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.manifests import processing_time_ms

__all__ = ["ProcessingTime", "RunTimes"]

_LOG = logging.getLogger("millstream.time")
_HOLDS_MS_MAX = 24 * 60 * 60 * 1000
_WARNED_FROM_MS = 1000
_HOLDS_TEXT = (
    "processing time is held until the clock has caught up, and with it timers and times-to-live. Was the clock set "
    "back, or is this another machine?"
)
_STEPS_BACK_TEXT = (
    "that is more than a day, so the clock is trusted. Rows whose time-to-live ended in between reappear, and timers "
    "wait for their time once more"
)


class RunTimes(NamedTuple):
    """The current time, and when the driver took over or its clock was last reset: earlier idle times are unknown."""

    now_ms: int
    run_started_ms: int


class ProcessingTime:
    """The processing time of one driver's job.

    >>> from millstream.testing import ManualClock
    >>> counters = {"processing_time_ms": 9}
    >>> first = Manifest(job="j", job_id="j1", epoch=1, parent=0, created_ms=0, run="a", counters=counters)
    >>> clock = ManualClock(7)
    >>> ProcessingTime(clock).now_ms(first), ProcessingTime(clock).now_ms(None)
    (9, 7)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._warned = False
        self._last: RunTimes | None = None

    def run_times(self, newest: Manifest | None) -> RunTimes:
        """The current processing time, and that of the run's start."""
        now_ms, last = self.now_ms(newest), self._last
        is_anew = last is None or now_ms < last.now_ms
        self._last = RunTimes(now_ms, now_ms if last is None or is_anew else last.run_started_ms)
        return self._last

    def now_ms(self, newest: Manifest | None) -> int:
        """The processing time of the epoch that follows `newest`."""
        clock_ms, last_ms = self._clock.now_ms(), processing_time_ms(newest)
        if last_ms is None or clock_ms >= last_ms:
            self._warned = False
            return clock_ms
        behind_ms = last_ms - clock_ms
        holds = behind_ms <= _HOLDS_MS_MAX
        if not self._warned and behind_ms >= _WARNED_FROM_MS:
            self._warned = True
            text = _HOLDS_TEXT if holds else _STEPS_BACK_TEXT
            _LOG.warning("the clock is %d s behind the processing time of the last epoch: %s", behind_ms // 1000, text)
        return last_ms if holds else clock_ms
