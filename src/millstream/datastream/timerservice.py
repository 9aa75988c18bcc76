"""The clock and the timers a process function may use.

Processing time is fixed for an epoch, so that an epoch run again gives the same answer. The task makes the concrete
service; timers need a key, and setting one elsewhere is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["TimerService"]


class TimerService(ABC):
    """Tells the time, and sets and deletes timers of the current key. All times are in ms since 1970."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The processing time of the epoch."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's watermark: no earlier record is expected any more."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the clock has reached `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark has reached `timestamp`."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget that timer; nothing happens when there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget that timer; nothing happens when there is none."""
