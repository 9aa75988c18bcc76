"""The driver's watch: when an epoch was triggered, how long it ran, and what became of the one before.

It measures by a clock that cannot be set back, and keeps nothing that decides anything: were it wrong, only the
statistics would be.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.jobs.epochs.epoch_statistics import EpochTimes, PastEpoch

__all__ = ["EpochWatch"]


class EpochWatch:
    """Times one epoch after the other. Publishing is told from the publishing thread, before the next epoch's end."""

    def __init__(self) -> None:
        self._trigger_ms = 0
        self._triggered = self._ended = time.monotonic()
        self._started = self._ended
        self.run_ms = 0.0
        self._failures = 0
        self._epoch: int | None = None
        self._commit_ms: float | None = None
        self._published: tuple[int, float] | None = None

    def trigger(self, now_ms: int) -> None:
        """The sources are about to be asked."""
        self._trigger_ms, self._triggered = now_ms, time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the run of an epoch's tasks, all rounds of it."""
        self._started = time.monotonic()
        try:
            yield
        finally:
            self.run_ms = _since_ms(self._started)

    def failed(self) -> None:
        """The epoch is to be run again."""
        self._failures += 1

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Around the creation of a manifest."""
        started = time.monotonic()
        self._commit_ms = None
        yield
        self._commit_ms = _since_ms(started)

    def committed(self, epoch: int) -> None:
        """A manifest stands."""
        self._epoch, self._failures, self._ended = epoch, 0, time.monotonic()

    def published(self, epoch: int, took_ms: float) -> None:
        """An epoch's output is visible."""
        self._published = (epoch, took_ms)

    def pause_ms(self, min_interval_ms: int, min_pause_ms: int) -> float:
        """How long to wait so that the next epoch starts late enough after the start and the end of the last."""
        if self._epoch is None:
            return 0.0
        return max(0.0, min_interval_ms - _since_ms(self._started), min_pause_ms - _since_ms(self._ended))

    def running_s(self) -> float:
        """The time since the tasks of the epoch were started."""
        return time.monotonic() - self._started

    def times(self) -> EpochTimes:
        """Of the epoch whose manifest is being made."""
        before = None
        if self._epoch is not None:
            published = self._published
            publish_ms = published[1] if published is not None and published[0] == self._epoch else None
            before = PastEpoch(self._epoch, _rounded(self._commit_ms), _rounded(publish_ms))
        return EpochTimes(self._trigger_ms, _since_ms(self._triggered), self.run_ms, self._failures, before)


def _since_ms(moment: float) -> float:
    return (time.monotonic() - moment) * 1000


def _rounded(span_ms: float | None) -> float | None:
    return None if span_ms is None else round(span_ms, 3)
