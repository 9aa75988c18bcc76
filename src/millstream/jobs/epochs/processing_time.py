"""Processing time between epochs: the machine's clock, but for steps back.

State with a time-to-live and timers go by processing time. If it went back, as when a clock is corrected, or a job goes
on on a machine whose clock is behind, rows that had expired would be there again: they would be retracted a second
time, and inserted again. So processing time stands still until the clock has caught up with that of the last epoch,
which the manifest names. A clock that is more than a day behind was wrong before: to wait for it would stop every timer
for as long. Then the clock is believed, and the log says what that means.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.manifests import processing_time_ms

__all__ = ["ProcessingTime", "RunTimes"]

_LOG = logging.getLogger("millstream.time")
_STANDS_MS_MAX = 24 * 60 * 60 * 1000
_WARNED_FROM_MS = 1000
_STANDS = (
    "processing time stands still until it has caught up, and with it timers and times-to-live. Was the clock set "
    "back, or is this another machine?"
)
_GOES_BACK = (
    "that is more than a day, so the clock is believed. Rows whose time-to-live ended in between are there again, and "
    "timers wait for their time once more"
)


class RunTimes(NamedTuple):
    """Now, and when the driver took over or its clock was last believed: what was idle before is not known."""

    now_ms: int
    run_started_ms: int


class ProcessingTime:
    """That of one driver's job.

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
        """The processing time now, with that of the run's start."""
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
        stands = behind_ms <= _STANDS_MS_MAX
        if not self._warned and behind_ms >= _WARNED_FROM_MS:
            self._warned = True
            what = _STANDS if stands else _GOES_BACK
            _LOG.warning("the clock is %d s behind the processing time of the last epoch: %s", behind_ms // 1000, what)
        return last_ms if stands else clock_ms
