"""The clock and the timers of a process function.

Processing time is fixed for an epoch, so that a repeated epoch returns the same result. The task implements the
service. Timers need a key: setting one on an unkeyed stream is rejected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["TimerService"]


class TimerService(ABC):
    """Returns the time, and sets and deletes timers of the current key. All times are in ms since 1970."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The processing time of the epoch."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's watermark: no earlier records are expected."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Requests a call of `on_timer` when processing time reaches `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Requests a call of `on_timer` when the watermark reaches `timestamp`."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Deletes that timer, if it exists."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Deletes that timer, if it exists."""
